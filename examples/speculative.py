"""Speculative decoding: a small model drafts, the large one verifies a window, rejected tokens are taken back.

    python examples/speculative.py

Each row accepts as many drafts as its own model agrees with: rows stand at different positions, which a cache of
kvgen is used to. The verify window is written into the ring in place (`storage ring slack 7`), and `bypass=True`
takes its rejected end back: exact, also long after the ring has wrapped.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_model import POLICY, LanguageModel, generate, prefill

DRAFTS = 7  # as `bypass 7` in tiny.kv allows


@torch.no_grad()
def speculate(
    model, caches, draft, draft_caches, prompts, tokens: int
) -> tuple[list[list[int]], float]:
    """The same tokens as `generate`, and how many each forward of the large model gave a row."""
    newest = prefill(model, caches, prompts)
    prefill(draft, draft_caches, prompts)
    rows = [[int(token)] for token in newest]
    forwards = 0
    while min(len(row) for row in rows) < tokens:
        window = drafted(draft, draft_caches, newest)
        choices = model(window, caches).argmax(-1)
        accepted = agreement(window[:, 1:], choices[:, :-1])
        rejected = (DRAFTS - accepted).tolist()
        caches.trim(rejected, bypass=True)
        draft_caches.trim(rejected)
        newest = choices.gather(1, accepted[:, None])
        for row, count, chosen in zip(rows, accepted.tolist(), choices.tolist(), strict=True):
            row += chosen[: count + 1]
        forwards += 1
    given = sum(len(row) - 1 for row in rows) / (len(rows) * forwards)
    return [row[:tokens] for row in rows], given


def drafted(draft, caches, newest: torch.Tensor) -> torch.Tensor:
    """[B, 1 + DRAFTS]: the newest token of each row and what the draft model says comes after it.

    The last draft is fed too, so that both models' caches hold the same tokens.
    """
    window = [newest]
    for _ in range(DRAFTS):
        window.append(draft(window[-1], caches, decode=True).argmax(-1))
    draft(window[-1], caches, decode=True)
    return torch.cat(window, 1)


def agreement(drafts: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
    """[B]: how many drafts of each row, from the first, the large model would have chosen too."""
    return (drafts == choices).int().cumprod(1).sum(1)


def models(layers: int = 4) -> tuple[LanguageModel, LanguageModel]:
    """A model of random weights, and a draft that is its first layer: the later layers add little, so it agrees often."""
    torch.manual_seed(0)
    model = LanguageModel(layers)
    with torch.no_grad():
        for i, block in enumerate(model.blocks):
            block.attention.queries.weight.mul_(3)
            block.attention.keys.weight.mul_(3)
            for layer in (block.attention.out, block.down):
                for parameter in layer.parameters():
                    parameter.mul_(2 if i == 0 else 0.4)
    draft = LanguageModel(1)
    draft.load_state_dict(model.state_dict(), strict=False)
    return model.eval(), draft.eval()


def main() -> None:
    import kvgen

    package = kvgen.load(POLICY)
    model, draft = models()
    prompts, tokens = [[1, 2, 3], [4] * 40, [5, 6]], 400
    start = time.perf_counter()
    plain = generate(model, package.TargetCaches(3), prompts, tokens)
    between = time.perf_counter()
    rows, given = speculate(
        model, package.TargetCaches(3), draft, package.DraftCaches(3), prompts, tokens
    )
    end = time.perf_counter()
    print(f"{tokens} tokens a row past a window of 24, 3 rows at their own pace")
    print(f"a forward of the large model gave {given:.1f} tokens a row, of {DRAFTS + 1} at best")
    print(f"plain {between - start:.2f} s, speculative {end - between:.2f} s")
    print("the same tokens" if rows == plain else "OTHER TOKENS: this is a fault, please report it")


if __name__ == "__main__":
    main()
