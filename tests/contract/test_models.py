"""Section 9: a model's caches, acted on as one. A `Stack` drives every layer beside the judge of its donor."""

import copy
import pickle

import pytest
import torch

from tests.contract.harness import (
    DEVICE,
    Pair,
    assert_close,
    package,
    policy_text,
    program,
    refused,
)

POLICIES = {
    "Near": "window 4 storage ring slack 1 padding left right",
    "Draft": "window 4 storage ring trim guarded bypass 3 padding left right",
    "Far": "padding left right trim guarded",
    "Chunked": "chunk 4 storage ring slack 2 heads query 2 kv 2 dim key 8 value 4 padding left right",
    "Room": "window full storage fixed padding left right",
}
MODELS = (
    "model Plain { layers 3 repeat Near, Far }\n"
    "model Shared { layers 6 repeat Near * 2, Far share 3 from 0 share 4 from 1 share 5 from 2 }\n"
    "model Mixed { layers 4 repeat Draft, Chunked, Far, Near share 3 from 0 }\n"
    "model Drafts { layers 2 repeat Draft }\n"
    "model Open { layers 3 repeat Room, Near }\n"
)
TEXT = "kvgen 1\n" + "".join(policy_text(*item) for item in POLICIES.items()) + MODELS
LAYERS = {
    "Plain": "Near Far Near", "Shared": "Near Near Far Near Near Far", "Mixed": "Draft Chunked Far Near",
    "Drafts": "Draft Draft",
}  # fmt: skip
DONORS = {"Plain": (0, 1, 2), "Shared": (0, 1, 2, 0, 1, 2), "Mixed": (0, 1, 2, 0), "Drafts": (0, 1)}


def caches(name: str, rows: int, backend: str, **options):
    return getattr(package(TEXT), f"{name}Caches")(rows, backend=backend, device=DEVICE, **options)


class Stack:
    """A model's caches and one judge a donor."""

    def __init__(self, name, rows, backend, seed=0):
        self.name, self.model, self.held = name, caches(name, rows, backend), []
        names = LAYERS[name].split()
        self.pairs = {
            layer: Pair(
                POLICIES[names[layer]],
                rows,
                backend=backend,
                seed=seed + layer,
                cls=type(self.model.layers[layer]),
            )
            for layer in sorted(set(DONORS[name]))
        }
        self._attach()

    def _attach(self):
        for layer, pair in self.pairs.items():
            pair.cache = self.model.layers[layer]

    def forward(self, call="window", *width):
        """Each layer in order: donors append, sharing layers attend the donor's read with queries of their own."""
        held = {}
        for layer, donor in enumerate(self.model.donors):
            if layer == donor:
                held[layer] = getattr(self.pairs[layer], call)(*width)
            elif held[donor] is not None:
                q = torch.randn(held[donor].query.shape, generator=self.pairs[donor].random).to(
                    DEVICE
                )
                held[donor].read.attend(q)
                held[donor].check()
        self.check()

    def call(self, name, *arguments, **options):
        """On the model; every judge is asked first. Refused by one: refused, and none is changed."""
        clones = [copy.copy(pair.reference) for pair in self.pairs.values()]
        try:
            for reference in clones:
                bypass = options.get("bypass") and reference.policy.trim.bypass_tokens > 0
                getattr(reference, name)(*arguments, **({"bypass": bypass} if options else {}))
        except (ValueError, RuntimeError) as error:
            refused(lambda: getattr(self.model, name)(*arguments, **options), type(error))
        else:
            getattr(self.model, name)(*arguments, **options)
            for pair, reference in zip(self.pairs.values(), clones, strict=True):
                pair.reference = reference
        self.check()

    def check(self):
        for layer, pair in self.pairs.items():
            assert pair.cache is self.model.layers[layer]
            pair.check()
        reference = next(iter(self.pairs.values())).reference
        assert self.model.offsets == reference.offsets
        assert self.model.positions(3).tolist() == reference.positions(3)
        for n in (0, 1, 2, 4):
            expected = all(pair.reference.is_trimmable(n) for pair in self.pairs.values())
            assert self.model.is_trimmable(n) == expected

    def becomes(self, model, change) -> "Stack":
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, model=model)
        other.pairs = {
            layer: pair.branch(model.layers[layer], change(pair.reference))
            for layer, pair in self.pairs.items()
        }
        other.check()
        return other

    def recheck(self):
        for pair in self.pairs.values():
            pair.recheck()


@pytest.fixture(params=DONORS)
def name(request):
    return request.param


def test_what_it_says_of_itself(name, backend):
    model = caches(name, 2, backend)
    assert isinstance(model.layers, list) and isinstance(model.donors, tuple)
    assert model.donors == DONORS[name]
    assert [type(layer).__name__ for layer in model.layers] == [
        f"{policy}Cache" if layer == donor else type(model.layers[donor]).__name__
        for layer, (donor, policy) in enumerate(
            zip(DONORS[name], LAYERS[name].split(), strict=True)
        )
    ]
    for layer, donor in enumerate(model.donors):
        assert model.layers[layer] is model.layers[donor]
        assert model.layers[layer].masks is model.masks
    own = [model.layers[i] for i in sorted(set(model.donors))]
    assert len({id(cache) for cache in own}) == len(own)
    assert model.nbytes == sum(cache.nbytes for cache in own)
    assert model.offsets == (0, 0) and isinstance(model.signature, str)
    assert all(cache.backend == backend and cache.batch_size == 2 for cache in own)
    assert repr(model)


def test_the_declared_model_is_what_the_language_says(name):
    declared = next(m for m in program(TEXT).models if m.name == name)
    assert [declared.policy_of(i) for i in range(declared.layers)] == LAYERS[name].split()


def test_a_generation(name, backend):
    stack = Stack(name, 2, backend)
    stack.call("prepare_prefill", [7, 3], [0, 2])
    for width in (4, 2, 3):
        stack.forward("window", width)
    stack.call("finalize_prefill")
    for _ in range(6):
        stack.forward("decode")
    stack.forward("window", 4)
    stack.recheck()


def test_trim_is_all_or_nothing(name, backend):
    stack = Stack(name, 2, backend)
    stack.forward("window", 9)
    for n in (0, 1, 2, 3, [1, 0], [9, 9], 10):
        stack.call("trim", n)
        stack.forward("window", 2)
    for _ in range(5):
        stack.forward("decode")
    for n in (4, 3, 2, [0, 2], 1):
        stack.call("trim", n)
        stack.forward("decode")


def test_bypass_where_declared_and_guard_elsewhere(name, backend):
    stack = Stack(name, 2, backend)
    stack.forward("window", 9)
    for width in (1, 2, 3, 4, 5):
        for n in (4, 3, 2, 1, [1, 0]):
            stack.forward("window", width)
            stack.call("trim", n, bypass=True)
    stack.forward("decode")
    stack.call("trim", 1, bypass=True)
    stack.forward("decode")


@pytest.mark.parametrize("bad", [-1, 1.5, "1", [1], [1, 1, 1], None])
def test_bad_numbers(name, bad, backend):
    stack = Stack(name, 2, backend)
    stack.forward("window", 3)
    for call in ("trim", "is_trimmable"):
        refused(lambda call=call: getattr(stack.model, call)(bad), ValueError)
    refused(
        lambda: stack.model.prepare_prefill(bad if isinstance(bad, list) else [bad]), ValueError
    )
    stack.check()
    stack.forward("decode")


def test_rows(name, backend):
    stack = Stack(name, 3, backend)
    stack.call("prepare_prefill", [7, 3, 5])
    stack.forward("window", 7)
    stack.call("finalize_prefill")
    alone = stack.becomes(stack.model.extract_row(1), lambda r: r.extract_row(1))
    merged = stack.becomes(
        type(stack.model).merge_rows([stack.model, alone.model]),
        lambda r: type(r).merge_rows([r, r.extract_row(1)]),
    )
    clone = stack.becomes(stack.model.clone(), lambda r: r.clone())
    for model in (alone.model, merged.model, clone.model):
        assert model.donors == stack.model.donors
        assert all(model.layers[i] is model.layers[donor] for i, donor in enumerate(model.donors))
        assert all(layer.masks is model.masks for layer in model.layers)
    for other in (alone, merged, clone):
        other.forward("decode")
        other.forward("window", 3)
        other.recheck()
    stack.call("filter_rows", [2, 0])
    stack.forward("window", 6)
    for bad in ([], [2], [-1]):
        refused(lambda bad=bad: stack.model.filter_rows(bad), ValueError)
    refused(lambda: stack.model.extract_row(2), ValueError)
    refused(lambda: type(stack.model).merge_rows([]), ValueError)
    stack.call("reset")
    stack.forward("window", 5)


def test_models_of_another_kind_do_not_merge(backend):
    plain, shared = caches("Plain", 1, backend), caches("Shared", 1, backend)
    refused(lambda: type(plain).merge_rows([plain, shared]), ValueError)


def test_state(name, backend):
    stack = Stack(name, 2, backend)
    stack.call("prepare_prefill", [7, 3])
    stack.forward("window", 7)
    stack.call("finalize_prefill")
    state = stack.model.state_dict()
    assert all(type(value) in (torch.Tensor, int, str) for value in state.values()), "flat"
    assert state["signature"] == stack.model.signature
    fresh = caches(name, 2, backend)

    def settled(reference):
        other = reference.clone()
        other.load(reference.saved())
        return other

    fresh.load_state_dict(state)
    loaded = stack.becomes(fresh, settled)
    for _ in range(3):
        loaded.forward("decode")
        stack.forward("window", 2)
    others = [n for n in DONORS if n != name]
    for other in (caches(others[0], 2, backend), caches(name, 1, backend)):
        refused(lambda other=other: other.load_state_dict(state), ValueError)
        assert other.offsets == (0,) * len(other.offsets)
    for key in state:
        before = stack.model.offsets
        refused(
            lambda key=key: stack.model.load_state_dict(
                {k: v for k, v in state.items() if k != key}
            ),
            ValueError,
        )
        assert stack.model.offsets == before
    stack.check()
    stack.forward("decode")


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies(name, how, backend):
    stack = Stack(name, 2, backend)
    stack.forward("window", 6)
    model = (
        copy.deepcopy(stack.model) if how == "deepcopy" else pickle.loads(pickle.dumps(stack.model))
    )
    other = stack.becomes(model, lambda r: r.clone())
    assert all(model.layers[i] is model.layers[donor] for i, donor in enumerate(model.donors))
    assert all(layer.masks is model.masks for layer in model.layers)
    other.forward("decode")
    stack.forward("window", 3)
    other.recheck()


def test_in_between_a_prefill(name, backend):
    stack = Stack(name, 2, backend)
    state = stack.model.state_dict()
    stack.call("prepare_prefill", [3, 1], [0, 1])
    model = stack.model
    for call in (
        lambda: model.prepare_prefill([1, 1]),
        lambda: model.trim(1),
        lambda: model.filter_rows([0]),
        lambda: model.extract_row(0),
        lambda: type(model).merge_rows([model]),
        lambda: model.clone(),
        lambda: model.state_dict(),
        lambda: model.load_state_dict(state),
    ):
        refused(call, RuntimeError)
    stack.forward("window", 2)
    assert model.positions(3).tolist() == [[2, 0, 0], [0, 0, 0]]
    model.reset()
    assert model.offsets == (0, 0)


def test_one_layer_refuses_all_keep(backend):
    """A prefill that one layer cannot hold, a load that one layer refuses: no layer has changed."""
    model = caches("Open", 2, backend, capacity=4)
    k = torch.zeros(2, 1, 4, 8, device=DEVICE)
    for layer in model.layers:
        layer.append_window(k, k)
    good = model.state_dict()
    for key, value in good.items():
        if isinstance(value, torch.Tensor):
            bad = {**good, key: value.double() if value.is_floating_point() else value - 100}
            refused(lambda bad=bad: model.load_state_dict(bad), ValueError)
            assert all(layer.offsets == (4, 4) for layer in model.layers)
    assert model.layers[0].capacity == 4
    refused(lambda: caches("Open", 2, backend), ValueError)
    refused(lambda: caches("Plain", 2, backend, capacity=4), ValueError)


def test_a_sharing_layer_equals_its_own_cache(backend):
    """Layer 3 of Shared reads layer 0: what it sees is what a cache of its own with the same tokens would show it."""
    model = caches("Shared", 1, backend)
    own = type(model.layers[3])(1, backend=backend, device=DEVICE)
    for width in (6, 1, 2, 1):
        k, v, q = (torch.randn(1, h, width, 8, device=DEVICE) for h in (1, 1, 2))
        read = model.layers[0].append_window(k, v)
        read.attend(torch.randn_like(q))
        assert_close(read.attend(q), own.append_window(k, v).attend(q).double(), torch.float32)


def test_dtype_and_masks_reach_every_layer(backend):
    first = caches("Plain", 1, backend, dtype=torch.bfloat16)
    second = caches("Plain", 1, backend, dtype=torch.bfloat16, masks=first.masks)
    assert second.masks is first.masks and all(
        layer.masks is first.masks for layer in second.layers
    )
    assert all(layer.bytes_per_token == 32 for layer in first.layers)
    for bad in ({"backend": "nothing"}, {"dtype": torch.int8}, {"row_lengths": [1]}):
        options = {"backend": backend, "device": DEVICE, **bad}
        refused(lambda options=options: type(first)(1, **options), ValueError)


TRAINING = (
    "kvgen 1\n"
    + policy_text("Near", "stateless window 4 padding right")
    + policy_text("Far", "stateless padding right")
    + "model Trained { layers 6 repeat Near * 2, Far share 5 from 2 }\n"
)


def test_a_stateless_model(backend):
    """Row lengths and masks reach every layer; a stack of six layers builds each distinct mask once."""
    made = package(TRAINING).TrainedCaches(2, backend=backend, device=DEVICE, row_lengths=[9, 4])
    k, q = torch.zeros(2, 1, 9, 8, device=DEVICE), torch.zeros(2, 2, 9, 8, device=DEVICE)
    for layer in made.layers:
        assert tuple(layer.row_lengths) == (9, 4)
        layer.append_window(k, k).attend(q)
    assert made.masks.builds == 2 if backend == "torch" else made.masks.builds <= 2
    assert made.nbytes == 0 and made.offsets == (0, 0) and made.is_trimmable(3)
    assert made.positions(9)[1].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0]
    made.trim(2)
    made.reset()
    made.finalize_prefill()
    for call in (
        made.clone,
        made.state_dict,
        lambda: made.filter_rows([0]),
        lambda: made.extract_row(0),
        lambda: made.prepare_prefill([1, 1]),
        lambda: type(made).merge_rows([made, made]),
    ):
        assert "stateless" in str(refused(call, RuntimeError))


UNEVEN = (
    "kvgen 1\n"
    + policy_text("Any", "window 4 padding left right")
    + policy_text("Right", "window full padding right")
    + policy_text("Off", "window full trim off padding right")
    + "model Uneven { layers 2 repeat Any, Right }\n"
    + "model Kept { layers 2 repeat Any, Off }\n"
)


def test_all_layers_are_asked_before_one_is_changed(backend):
    model = package(UNEVEN).UnevenCaches(2, backend=backend, device=DEVICE)
    k = torch.zeros(2, 1, 3, 8, device=DEVICE)
    for layer in model.layers:
        layer.append_window(k, k)
    state = model.state_dict()
    refused(
        lambda: model.prepare_prefill([1, 1], [0, 1])
    )  # the second layer allows no left padding
    model.layers[0].clone()  # refused in a prepared prefill
    model.layers[1].prepare_prefill([1, 2])
    for call in (
        lambda: model.trim(1),
        lambda: model.filter_rows([0]),
        lambda: model.prepare_prefill([1, 1]),
        lambda: model.load_state_dict(state),
        lambda: model.extract_row(0),
        lambda: model.clone(),
    ):
        refused(call, RuntimeError)
        assert all(layer.offsets == (3, 3) and layer.batch_size == 2 for layer in model.layers)
    assert model.is_trimmable(0) and not model.is_trimmable(1)
    model.finalize_prefill()
    model.trim(1)
    assert all(layer.offsets == (2, 2) for layer in model.layers)


def test_a_layer_that_gives_nothing_back_keeps_the_others(backend):
    model = package(UNEVEN).KeptCaches(1, backend=backend, device=DEVICE)
    k = torch.zeros(1, 1, 3, 8, device=DEVICE)
    for layer in model.layers:
        layer.append_window(k, k)
    assert model.layers[0].is_trimmable(1) and not model.is_trimmable(1)
    refused(lambda: model.trim(1), RuntimeError)
    refused(lambda: model.trim(1, bypass=True), RuntimeError)
    model.trim(0)
    assert all(layer.offsets == (3,) for layer in model.layers)
