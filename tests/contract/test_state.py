"""Section 7: state."""

import io

import pytest
import torch

from tests.contract.harness import (
    DEVICE,
    DTYPES,
    Pair,
    make_cache,
    package,
    program_text,
    refused,
    storage_tensors,
)

POLICIES = {
    "ring": "window 4 storage ring slack 2 padding left right trim guarded bypass 2",
    "no slack": "window 4 storage ring padding left right",
    "sinks": "window 3 sinks 2 storage ring padding left right",
    "chunk": "chunk 4 storage ring padding left right",
    "full": "window full padding left right",
    "fixed": "storage fixed 64 padding left right",
}


@pytest.fixture(params=POLICIES)
def clauses(request):
    return POLICIES[request.param]


def fresh(pair):
    return type(pair.cache)(pair.cache.batch_size, backend=pair.backend, device=DEVICE)


@pytest.mark.parametrize(
    "widths", [(), (0,), (3,), (4, 3), (9, 4), (9, 5), (1,) * 7, (40,)], ids=str
)
def test_there_and_back(clauses, widths, backend):
    pair = Pair(clauses, 3, backend=backend)
    pair.prefill([5, 0, 2], [1, 0, 3])
    for width in widths:
        pair.decode() if width == 1 else pair.window(width)
    pair.trim(next(n for n in (1, 0) if pair.reference.is_trimmable(n)))
    pair.probe()
    loaded = pair.save_load()
    loaded.check()
    loaded.probe()
    for n in range(4):
        loaded.branch().trim(n)
    for each in (pair, loaded):
        for step in (1, 3, 1, 9):
            each.window(step)
    pair.recheck()


def test_flat_plain_and_independent(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.window(5)
    state = pair.cache.state_dict()
    assert isinstance(state, dict) and all(isinstance(name, str) for name in state)
    assert all(type(value) in (torch.Tensor, int, str) for value in state.values())
    assert state["signature"] == pair.cache.signature
    before = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }
    for step in (1, 3, 9):
        pair.window(step)
    for name, value in before.items():
        assert (
            torch.equal(state[name], value)
            if isinstance(value, torch.Tensor)
            else state[name] == value
        )
    held = {t.untyped_storage().data_ptr() for t in storage_tensors(vars(pair.cache)) if t.numel()}
    assert not held & {
        v.untyped_storage().data_ptr() for v in state.values() if isinstance(v, torch.Tensor)
    }


def test_only_what_is_stored(clauses, backend):
    """No bytes of slots that hold nothing, none that a view drags along."""
    pair = Pair(clauses, 2, backend=backend)
    for width in (0, 3, 30):
        pair.window(width)
        tensors = [v for v in pair.cache.state_dict().values() if isinstance(v, torch.Tensor)]
        slots = min(pair.cache.offset, pair.cache.capacity or pair.cache.offset)
        assert (
            sum(t.untyped_storage().nbytes() for t in tensors)
            <= 2 * slots * pair.cache.bytes_per_token + 512
        )


def test_through_a_file(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.prefill([7, 3])
    file = io.BytesIO()
    torch.save(pair.cache.state_dict(), file)
    file.seek(0)
    other = pair.branch(fresh(pair), pair.reference.clone())
    other.cache.load_state_dict(torch.load(file, weights_only=True))
    other.reference.load(pair.reference.saved())
    other.check()
    other.probe()


def test_saving_changes_nothing(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    for width in (9, 4, 3, 5):
        pair.window(width)
        pair.cache.state_dict()
        pair.check()
        pair.recheck()
        for n in range(5):
            pair.branch().trim(n)


def test_a_state_replaces_whatever_was_there(clauses, backend):
    first, second = Pair(clauses, 2, backend=backend), Pair(clauses, 2, backend=backend, seed=9)
    first.window(3)
    second.window(20)
    second.window(3)
    second.cache.load_state_dict(first.cache.state_dict())
    second.reference.load(first.reference.saved())
    second.check()
    second.recheck()  # reads opened before the load
    for step in (1, 3, 1, 9):
        second.window(step)
    first.window(4)
    second.recheck()
    with pytest.raises(RuntimeError):
        second.cache.trim(10**6)


def test_the_loaded_state_may_be_overwritten(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.window(5)
    state = pair.cache.state_dict()
    other = pair.branch(fresh(pair))
    other.cache.load_state_dict(state)
    other.reference.load(pair.reference.saved())
    for value in state.values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    other.probe()


def test_signature_is_what_the_bytes_mean(backend):
    same = package(
        program_text({"One": "window 4 padding left", "Another": "window 4 softcap 3 trim off"})
    )
    signatures = {
        getattr(same, f"{name}Cache")(rows, backend=kind, device=DEVICE).signature
        for name in ("One", "Another")
        for rows in (1, 5)
        for kind in (backend, "torch", "auto")
    }
    assert len(signatures) == 1
    different = [
        "window 4", "window 5", "window 4 sinks 1", "window 4 storage ring slack 1", "chunk 4", "window full",
        "window 8 chunk 4", "window 4 dim 4", "window 4 dim key 8 value 4", "window 4 dim key 4 value 8",
        "window 4 heads query 2 kv 2", "window 4 dtype bf16",
    ]  # fmt: skip
    found = [make_cache(clauses, backend=backend).signature for clauses in different]
    assert len(set(found)) == len(different)
    by_dtype = {make_cache("window 4", backend=backend, dtype=d).signature for d in DTYPES.values()}
    assert len(by_dtype) == 3
    sizes = {make_cache("storage fixed", backend=backend, capacity=n).signature for n in (4, 8)}
    assert len(sizes) == 2


def test_states_of_backends_and_names_fit_each_other(backend):
    made = package(
        program_text(
            {"First": "window 4 storage ring slack 1", "Second": "window 4 storage ring slack 1"}
        )
    )
    pair = Pair("window 4 storage ring slack 1", 2, backend=backend)
    pair.window(9)
    pair.window(3)
    for name, kind in (("First", "torch"), ("Second", backend)):
        other = pair.branch(getattr(made, f"{name}Cache")(2, backend=kind, device=DEVICE))
        other.cache.load_state_dict(pair.cache.state_dict())
        other.reference.load(pair.reference.saved())
        other.check()
        other.probe()


def test_refused_states_change_nothing(clauses, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.window(9)
    pair.window(3)
    good = pair.cache.state_dict()
    bad = list(_spoilt(good))
    for other in (Pair(clauses, 1, backend=backend), Pair(clauses, 3, backend=backend), Pair(f"dim 4 {clauses}", 2, backend=backend),
                  Pair("window 5 padding left right", 2, backend=backend)):  # fmt: skip
        other.window(9)
        bad.append((other.cache.state_dict(), "a foreign state"))
    for state, why in [*bad, (None, "none"), ({}, "empty"), ([1], "a list"), (3, "a number")]:
        before = pair.cache.offsets
        try:
            pair.cache.load_state_dict(state)
        except ValueError as error:
            assert str(error)
        else:
            pytest.fail(f"accepted: {why}")
        assert pair.cache.offsets == before
        pair.check()
    pair.recheck()
    pair.probe()
    pair.cache.load_state_dict(good)
    pair.reference.load(pair.reference.saved())
    pair.probe()


def _spoilt(good):
    """Every entry dropped; every tensor of another shape, type or with impossible numbers."""
    for name, value in good.items():
        yield {k: v for k, v in good.items() if k != name}, f"no {name}"
        yield {**good, name: None}, f"{name} is None"
        yield {**good, name: "x" if not isinstance(value, str) else 3}, f"{name} of another kind"
        if isinstance(value, torch.Tensor):
            yield {**good, name: value[:0]}, f"no {name}"
            yield {**good, name: torch.cat([value, value])}, f"{name} twice"
            yield (
                {
                    **good,
                    name: value.double() if value.is_floating_point() else value.float() + 0.5,
                },
                f"{name} of another type",
            )
            if value.is_floating_point():
                yield {**good, name: value[..., :-1, :]}, f"{name} short"
                yield {**good, name: value[..., :-1]}, f"{name} narrow"
            elif not value.is_floating_point():
                yield {**good, name: torch.full_like(value, -1)}, f"{name} negative"
                yield {**good, name: torch.full_like(value, 2**40)}, f"{name} huge"
    yield {**good, "signature": good["signature"] + "x"}, "a foreign signature"


def test_impossible_numbers(backend):
    """A ring cannot hold what it cannot hold: more than R tokens, or fewer than the next query sees."""
    pair = Pair("window 4 storage ring slack 2", 1, backend=backend)
    pair.window(20)
    good = pair.cache.state_dict()
    numbers = [
        n for n, v in good.items() if isinstance(v, torch.Tensor) and not v.is_floating_point()
    ]
    for name in numbers:
        for change in (-3, -20, 5, 1000):
            state = {**good, name: good[name] + change}
            try:
                pair.cache.load_state_dict(state)
            except ValueError:
                pair.check()
                pair.probe()
            else:  # another offset of the same ring may be possible; what it then says must hold together
                o = pair.cache.offset
                assert o == good[name].item() + change or pair.cache.is_trimmable(0)
                pair.cache.load_state_dict(good)


@pytest.mark.parametrize("device", ["cpu", None])
def test_to(clauses, device, backend):
    pair = Pair(clauses, 2, backend=backend)
    pair.prefill([7, 3])
    pair.window(3)
    moved = pair.cache.to(device or DEVICE) if device is None or DEVICE == "cpu" else None
    if moved is not None:
        pair.cache = moved
    pair.check()
    pair.probe()
    pair.recheck()
    refused(lambda: pair.cache.to("nowhere"), ValueError)
    pair.probe()
