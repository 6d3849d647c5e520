"""The judge is not blind: each small wrong edit of the emitted files is noticed by a short set of checks."""

import itertools

import pytest

from tests.contract.harness import NAN, Pair, compile_files, import_files, program_text
from tests.contract.test_small_scope import Tree
from tests.contract.test_stateless import Forward

POLICIES = {
    "Ring": "window 3 sinks 2 storage ring slack 1 trim guarded bypass 1 padding left right dim 4",
    "Tight": "window 4 storage ring sink_logits softcap 2 padding left right dim 4",
    "Chunk": "chunk 4 storage ring padding left right dim 4",
    "Full": "window 5 storage contiguous padding left right dim 4",
    "Trained": "stateless window 4 sinks 1 softcap 2 sink_logits padding right dim 4",
}

MUTANTS = [
    # what a query sees
    ("Ring", "ring_policy", "q - k < WINDOW", "q - k <= WINDOW"),
    ("Ring", "ring_policy", "WINDOW = 3 ", "WINDOW = 4 "),
    ("Ring", "ring_policy", "WINDOW = 3 ", "WINDOW = 2 "),
    ("Ring", "ring_policy", "p - WINDOW + 1", "p - WINDOW + 2"),
    ("Ring", "ring_policy", "(q >= k)", "(q > k)"),
    ("Ring", "ring_policy", " | (k < SINKS)", ""),
    ("Ring", "ring_policy", "k < SINKS", "k <= SINKS"),
    ("Chunk", "chunk_policy", "k // CHUNK == q // CHUNK", "(k + 1) // CHUNK == q // CHUNK"),
    ("Chunk", "chunk_policy", "p - p % CHUNK", "p - p % CHUNK + 1"),
    ("Full", "full_policy", "q - k < WINDOW", "q - k < WINDOW - 1"),
    ("Full", "full_policy", "(q >= k)", "(q >= k - 1)"),
    # where tokens live
    ("Ring", "ring_policy", "(first - SINKS) % RING", "(first - SINKS)"),
    ("Ring", "ring_policy", "SINKS + (first - SINKS) % RING", "(first - SINKS) % RING"),
    ("Ring", "ring_policy", "RING = WINDOW + SLACK", "RING = WINDOW"),
    ("Tight", "tight_policy", "first % RING", "(first + 1) % RING"),
    ("Tight", "tight_policy", "max(first, end - RING)", "max(first, end - RING + 1)"),
    ("Ring", "ring_torch", " % RING\n", "\n"),
    ("Ring", "ring_torch", "p >= 0", "p > 0"),
    ("Ring", "ring_torch", "row.last + 1 >= used", "row.last + 2 >= used"),
    ("Ring", "ring_torch", "shown(columns.firsts", "shown(columns.ends"),
    ("Ring", "ring_torch", "shown(columns.ends", "shown(columns.firsts"),
    # appends
    ("Ring", "ring_cache", "width <= SLACK + 1", "width <= SLACK + 2"),
    ("Ring", "ring_cache", "columns._replace(ends=self._offsets)", "columns"),
    ("Ring", "ring_cache", "x.clone(memory_format=torch.contiguous_format)", "x.contiguous()"),
    ("Ring", "ring_cache", "columns.width > RING", "columns.width > RING + 1"),
    ("Ring", "ring_cache", "x.masked_fill_(padding, 0)", "x"),
    ("Ring", "_stateful", "self._offsets = columns.ends", "self._offsets = tuple(e + 1 for e in columns.ends)"),
    ("Ring", "_stateful", "min(left, width - skip)", "min(left, width)"),
    ("Ring", "_columns", "p < end", "p <= end"),
    # taking tokens back
    ("Ring", "ring_cache", "max(SINKS, first_seen(offset))", "max(SINKS, first_seen(offset)) + 1"),
    ("Ring", "ring_cache", "max(SINKS, first_seen(offset))", "first_seen(offset)"),
    ("Tight", "tight_cache", "min(oldest, offset) <= first_seen(offset)", "oldest <= first_seen(offset)"),
    ("Ring", "ring_cache", "max(oldest, end - RING)", "max(oldest, end - RING - 1)"),
    ("Ring", "ring_cache", "max(oldest, end - RING)", "oldest"),
    ("Chunk", "chunk_cache", "min(oldest, end) for oldest, end", "oldest for oldest, end"),
    ("Ring", "ring_cache", "max(0, left - count) for left", "left for left"),
    ("Ring", "ring_cache", "min(BYPASS, tokens)", "tokens"),
    ("Ring", "ring_cache", "        self._storage.erase(Columns(taken, taken, stored, 0), runs)\n", ""),
    ("Full", "full_cache", "count <= offset", "count <= offset + 1"),
    # snapshots and rows
    ("Ring", "_reads", "if self.overwritten:", "if False:"),
    ("Ring", "_storage", "reversed(overwritten)", "overwritten"),
    ("Ring", "_storage", "old = self.keys[index].clone(), self.values[index].clone()", "old = self.keys[index], self.values[index]"),
    ("Ring", "_rows", "tuple(values[row] for row in rows)", "values"),
    ("Ring", "ring_cache", "(k[rows], v[rows]), columns", "(k, v), columns"),
    # attention
    ("Tight", "tight_torch", "torch.logaddexp(lse, sink_logits.float()[:, None])", "lse"),
    ("Tight", "tight_torch", "out = (out * share[..., None]).to(q.dtype)", "out = out.to(q.dtype)"),
    ("Tight", "tight_torch", "SOFTCAP * torch.tanh(scores / SOFTCAP)", "scores"),
    ("Full", "full_torch", "out = out * shrink + weights", "out = out + weights"),
    ("Ring", "ring_torch", "out.masked_fill(padding, 0)", "out"),
    # training
    ("Trained", "trained_torch", "(1 - bent * bent)", "(1 - bent)"),
    ("Trained", "trained_torch", "(sink - lse).exp() * shift", "(sink - lse).exp()"),
    ("Trained", "trained_torch", "hide(SOFTCAP * bent - lse, hidden, width)", "(SOFTCAP * bent - lse)"),
    ("Trained", "trained_torch", "dv[:, :, low:high] += ", "dv[:, :, low:high] = "),
    ("Trained", "trained_torch", "x.masked_fill(padding, 0) for x in (q, k, v)", "x for x in (q, k, v)"),
    ("Trained", "trained_torch", '("stateless", limits, one, device)', '("stateless", limits, device)'),
]  # fmt: skip


def served(cls, clauses: str) -> None:
    """Prefills with padding, windows, decodes, trims, rows and state, then every history of two calls."""
    for seed, rows in itertools.product(range(2), (1, 2)):
        pair = Pair(clauses, rows, seed=seed, cls=cls)
        pair.prefill([7, 3][:rows], [2, 0][:rows], [4, 3, 3])
        for width in (1, 1, 2, 3, 1, 4, 2, 5, 6, 1, 9, 1):
            pair.decode() if width == 1 else pair.window(width)
            pair.trim(1, bypass=width % 2 == 0)
            pair.trim([2, 1][:rows])
            pair.recheck()
            pair.probe()
        rejected(pair.branch())
        taken_back(pair)
        pair = pair.extract(rows - 1).merge(pair).save_load()
        pair.window(4)
        pair.call("filter_rows", [1, 0])
        pair.trim(2)
        pair.probe()
    if "sink_logits" not in clauses:
        for rows in (1, 2):
            Tree(cls, clauses, 3, rows, "torch").walk(2)


def rejected(pair: Pair) -> None:
    """Drafts that were NaN all over are taken back; what follows is shorter."""
    k, v = pair.tokens(2)
    pair.cache.append_window(k * NAN, v * NAN)
    pair.cache.trim(2)
    pair.reference.append_window(pair.store.add(k, v))
    pair.reference.trim(2)
    pair.probe()


def taken_back(pair: Pair) -> None:
    """Every number of tokens; of a verify window one after the other."""
    for n in range(1, pair.reference.offset):
        shorter = pair.branch()
        shorter.trim(n)
        shorter.decode()
        shorter.decode()
    verified = pair.branch()
    verified.window(3)
    for n in (2, 1, 1):
        verified.trim(n, bypass=True)


def trained(cls, clauses: str) -> None:
    masks = cls(2, backend="torch").masks
    for width, lengths in ((9, [2, 4]), (9, None), (9, [9, 4]), (3, None), (140, None)):
        cache = cls(2, backend="torch", row_lengths=lengths, masks=masks)
        Forward(clauses, 2, width, lengths).compare(cache)


def judge(name: str, mutation: tuple[str, str, str] | None) -> None:
    clauses = POLICIES[name]
    stem, files = compile_files(program_text({name: clauses}))
    if mutation is not None:
        part, old, new = mutation
        path = f"{stem}/{part}.py"
        assert old in files[path], f"{path} no longer has {old!r}: write the mutant anew"
        files[path] = files[path].replace(old, new)
    cls = getattr(import_files(files, stem), f"{name}Cache")
    (trained if name == "Trained" else served)(cls, clauses)


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_emitted_passes(name):
    judge(name, None)


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda m: f"{m[1]}: {m[2].strip()} -> {m[3].strip()}"
)
def test_a_mutant_is_noticed(mutant):
    name, *mutation = mutant
    try:
        judge(name, tuple(mutation))
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  a crash is noticed too
        assert "write the mutant anew" not in str(error), error
    else:
        pytest.fail(f"nothing notices {mutation}")
