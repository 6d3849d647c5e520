"""Section 8: training and scoring. Gradients are judged by float64 autograd over dense scores and the model's mask."""

import copy
import math
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from kvgen import model
from kvgen.verify.float64 import attention
from tests.contract.harness import (
    DEVICE,
    DTYPES,
    NAN,
    assert_close,
    make_cache,
    package,
    policy_of,
    program_text,
    refused,
)

POLICIES = {
    "full": "stateless padding right",
    "window": "stateless window 5 padding right",
    "window 1": "stateless window 1 padding right",
    "chunk": "stateless chunk 4 padding right",
    "window in chunk": "stateless window 3 chunk 8 padding right",
    "sinks": "stateless window 4 sinks 2 padding right",
    "capped": "stateless window 4 softcap 1.5 scale 0.4 padding right",
    "sink logits": "stateless window 4 sink_logits padding right",
    "everything": "stateless window 4 sinks 1 softcap 2 sink_logits padding right",
    "grouped": "stateless window 4 heads query 6 kv 2 dim key 4 value 6 sink_logits padding right",
}


@pytest.fixture(params=POLICIES)
def clauses(request):
    return POLICIES[request.param]


class Forward:
    """Random q, k, v (and sink logits) of `rows` and `width`; NaN past each row's length; the judge's answer and gradients."""

    def __init__(self, clauses, rows, width, lengths=None, dtype=torch.float32, seed=0):
        self.policy, self.lengths, self.dtype = policy_of(clauses), lengths, dtype
        heads, self.shape = self.policy.heads, (rows, width)
        random = torch.Generator().manual_seed(seed)
        sizes = [
            (heads.query, heads.key_dim),
            (heads.kv, heads.key_dim),
            (heads.kv, heads.value_dim),
        ]
        self.leaves = [
            torch.randn(rows, h, width, d, generator=random).to(dtype).to(DEVICE) for h, d in sizes
        ]
        if self.policy.scores.sink_logits:
            self.leaves.append(torch.randn(heads.query, generator=random).to(DEVICE))
        self.weights = torch.randn(rows, heads.query, width, heads.value_dim, generator=random).to(
            DEVICE
        )
        ends = torch.tensor(lengths or [width] * rows, device=DEVICE)
        self.real = torch.arange(width, device=DEVICE) < ends[:, None]

    def inputs(self):
        """Leaves that need gradients, NaN at padding."""
        padded = [x.masked_fill(~self.real[:, None, :, None], NAN) for x in self.leaves[:3]]
        return [x.clone().requires_grad_() for x in (*padded, *self.leaves[3:])]

    def seen(self):
        width = self.shape[1]
        mask = [
            [model.visible(self.policy.retention, q, k) for k in range(width)] for q in range(width)
        ]
        mask = torch.tensor(mask, dtype=torch.bool, device=DEVICE).reshape(width, width)
        return mask & self.real[:, None, :] & self.real[:, :, None]

    def judged(self):
        """(out, lse, gradients of the weighted sum of out)."""
        leaves = [x.double().requires_grad_() for x in self.leaves]
        sinks = leaves[3] if len(leaves) > 3 else None
        out, lse = attention(self.policy, *leaves[:3], self.seen(), sink_logits=sinks)
        out = out.masked_fill(~self.real[:, None, :, None], 0)
        lse = lse.masked_fill(~self.real[:, None, :], -math.inf)
        (out * self.weights).sum().backward()
        return out.detach(), lse.detach(), [x.grad for x in leaves]

    def run(self, cache, append="append_window", **options):
        """(out, lse, inputs) of the cache."""
        q, k, v, *sinks = inputs = self.inputs()
        if sinks:
            options["sink_logits"] = sinks[0]
        out, lse = getattr(cache, append)(k, v).attend(q, return_lse=True, **options)
        return out, lse, inputs

    def compare(self, cache, append="append_window"):
        expected, expected_lse, gradients = self.judged()
        out, lse, inputs = self.run(cache, append)
        assert_close(out.detach(), expected, self.dtype)
        assert_close(lse.detach(), expected_lse, self.dtype, "log-sum-exp")
        (out * self.weights).sum().backward()
        for name, leaf, gradient in zip(
            ("dq", "dk", "dv", "dsinks"), inputs, gradients, strict=False
        ):
            assert_close(leaf.grad, gradient, self.dtype, name)


@pytest.mark.parametrize("width", [0, 1, 2, 5, 6, 17])
def test_gradients(clauses, width, backend):
    Forward(clauses, 2, width, seed=width).compare(make_cache(clauses, 2, backend=backend))


@pytest.mark.parametrize(
    "lengths", [[9, 4, 1], [0, 9, 3], [0, 0, 0], [9, 9, 9], [2, 1, 0]], ids=str
)
def test_gradients_with_row_lengths(clauses, lengths, backend):
    """NaN in padding of q, k and v reaches no output and no gradient; rows that see nothing are zero."""
    forward = Forward(clauses, 3, 9, lengths)
    forward.compare(make_cache(clauses, 3, backend=backend, row_lengths=lengths))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_gradients_of_narrow_types(clauses, dtype, backend):
    for lengths in (None, [13, 6]):
        forward = Forward(f"{clauses} dtype {dtype}", 2, 13, lengths, DTYPES[dtype])
        forward.compare(
            make_cache(f"{clauses} dtype {dtype}", 2, backend=backend, row_lengths=lengths)
        )


def test_float32_queries_on_narrow_keys(backend):
    cache = make_cache("stateless window 4 dtype bf16", 2, backend=backend)
    forward = Forward("stateless window 4 dtype bf16", 2, 9, dtype=torch.bfloat16)
    q, k, v = forward.inputs()
    out = cache.append_window(k, v).attend(q.float())
    assert out.dtype == torch.float32
    assert_close(out.detach(), forward.judged()[0], torch.bfloat16)
    out.sum().backward()
    assert q.grad.dtype == k.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("lengths", [None, [1, 1], [1, 0]], ids=str)
def test_decode(clauses, lengths, backend):
    """One column: a row sees itself; a row of length 0 sees nothing."""
    Forward(clauses, 2, 1, lengths).compare(
        make_cache(clauses, 2, backend=backend, row_lengths=lengths), "append_decode"
    )


def test_long_passes(clauses, backend):
    """More columns than a tile."""
    for lengths in (None, [300, 171]):
        Forward(clauses, 2, 300, lengths).compare(
            make_cache(clauses, 2, backend=backend, row_lengths=lengths)
        )


def test_more_keys_than_a_step_of_the_softmax(backend):
    for clauses in ("stateless", "stateless window 2100 sinks 3 softcap 2 sink_logits"):
        Forward(clauses, 1, 2200).compare(make_cache(clauses, 1, backend=backend))


def test_only_what_needs_gradients_gets_them(clauses, backend):
    forward = Forward(clauses, 2, 9)
    gradients = forward.judged()[2]
    for chosen in range(len(gradients)):
        inputs = [x.detach().requires_grad_(i == chosen) for i, x in enumerate(forward.inputs())]
        q, k, v, *sinks = inputs
        options = {"sink_logits": sinks[0]} if sinks else {}
        out = make_cache(clauses, 2, backend=backend).append_window(k, v).attend(q, **options)
        (out * forward.weights).sum().backward()
        assert_close(inputs[chosen].grad, gradients[chosen], torch.float32)
    with torch.no_grad():
        out, _, _ = forward.run(make_cache(clauses, 2, backend=backend))
    assert not out.requires_grad


def test_gradient_flows_through_the_log_sum_exp(clauses, backend):
    forward = Forward(clauses, 2, 9, [9, 5])
    leaves = [x.double().requires_grad_() for x in forward.leaves]
    _, lse = attention(
        forward.policy,
        *leaves[:3],
        forward.seen(),
        sink_logits=leaves[3] if len(leaves) > 3 else None,
    )
    keep = forward.real[:, None, :].expand_as(lse)
    lse[keep].sum().backward()
    _, lse, inputs = forward.run(make_cache(clauses, 2, backend=backend, row_lengths=[9, 5]))
    lse[keep].sum().backward()
    for leaf, expected in zip(inputs, leaves, strict=True):
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        assert_close(
            gradient,
            torch.zeros_like(leaf).double() if expected.grad is None else expected.grad,
            torch.float32,
        )


def test_reads_are_views_of_what_was_handed_in(clauses, backend):
    """Any number of attends, appends repeated, nothing remembered between them."""
    cache = make_cache(clauses, 2, backend=backend)
    forward, other = Forward(clauses, 2, 7), Forward(clauses, 2, 7, seed=1)
    first = forward.run(cache)
    other.run(cache)
    again = forward.run(cache)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert cache.offsets == (0, 0) and cache.nbytes == 0
    assert cache.positions(3).tolist() == [[0, 1, 2]] * 2


def test_positions_with_row_lengths(backend):
    cache = make_cache("stateless padding right", 3, backend=backend, row_lengths=[3, 0, 2])
    assert cache.positions(4).tolist() == [[0, 1, 2, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert tuple(cache.row_lengths) == (3, 0, 2)


def test_row_lengths_longer_than_the_columns(backend):
    cache = make_cache("stateless padding right", 2, backend=backend, row_lengths=[3, 9])
    k = torch.zeros(2, 1, 4, 8, device=DEVICE)
    refused(lambda: cache.append_window(k, k), ValueError)
    refused(lambda: cache.append_decode(k[:, :, :1], k[:, :, :1]), ValueError)


@pytest.mark.parametrize("width", [1, 3, 9, 21])
def test_checkpointing_gives_bitwise_equal_gradients(clauses, width, backend):
    """The layer runs again during backward, also one that shares another's keys and values."""
    forward = Forward(clauses, 2, width, [width, width // 2])
    cache = make_cache(clauses, 2, backend=backend, row_lengths=[width, width // 2])

    def layer(q, k, v, *sinks):
        options = {"sink_logits": sinks[0]} if sinks else {}
        return cache.append_window(k, v).attend(q, **options)

    def loss(use):
        inputs = forward.inputs()
        out = use(layer, *inputs) + 0.5 * use(layer, inputs[0] * 2, *inputs[1:])
        (out * forward.weights).sum().backward()
        return [x.grad for x in inputs]

    plain = loss(lambda f, *x: f(*x))
    for reentrant in (False, True):
        again = loss(lambda f, *x, r=reentrant: checkpoint(f, *x, use_reentrant=r))
        assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_a_padded_batch_equals_its_rows_alone(clauses, backend):
    """Loss and gradients."""
    lengths = [11, 6, 1]
    forward = Forward(clauses, 3, 11, lengths)
    out, _, inputs = forward.run(make_cache(clauses, 3, backend=backend, row_lengths=lengths))
    (out * forward.weights).sum().backward()
    sink_gradient = 0
    for row, length in enumerate(lengths):
        q, k, v = (
            x[row : row + 1, :, :length].clone().requires_grad_() for x in forward.leaves[:3]
        )
        sinks = [x.clone().requires_grad_() for x in forward.leaves[3:]]
        options = {"sink_logits": sinks[0]} if sinks else {}
        alone = make_cache(clauses, 1, backend=backend).append_window(k, v).attend(q, **options)
        (alone * forward.weights[row : row + 1, :, :length]).sum().backward()
        assert_close(
            out[row : row + 1, :, :length].detach(), alone.detach().double(), torch.float32
        )
        for batched, single in zip(inputs[:3], (q, k, v), strict=True):
            assert_close(
                batched.grad[row : row + 1, :, :length], single.grad.double(), torch.float32
            )
            assert not batched.grad[row, :, length:].any()
        sink_gradient += sinks[0].grad if sinks else 0
    if forward.policy.scores.sink_logits:
        assert_close(inputs[3].grad, sink_gradient.double(), torch.float32)


@pytest.mark.parametrize("storage", ["", "storage contiguous", "storage fixed 64"])
def test_train_and_serve_agree(clauses, storage, backend):
    """A stateless pass, a decode loop and a prefill of the same policy: the same outputs at every position."""
    stored = clauses.replace("stateless", storage)
    forward = Forward(clauses, 2, 20)
    q, k, v, *sinks = (x.detach() for x in forward.inputs())
    options = {"sink_logits": sinks[0]} if sinks else {}
    trained = make_cache(clauses, 2, backend=backend).append_window(k, v).attend(q, **options)
    served, prefilled = (make_cache(stored, 2, backend=backend) for _ in range(2))
    steps = [
        served.append_decode(k[:, :, i : i + 1], v[:, :, i : i + 1]).attend(
            q[:, :, i : i + 1], **options
        )
        for i in range(20)
    ]
    assert_close(torch.cat(steps, 2), trained.double(), torch.float32)
    assert_close(
        prefilled.append_window(k, v).attend(q, **options), trained.double(), torch.float32
    )


# -- shared masks


TWINS = {"Near": "stateless window 4 padding right", "Far": "stateless padding right"}


@pytest.mark.parametrize(("width", "lengths"), [(9, None), (9, [9, 4]), (3, [3, 1])], ids=str)
def test_one_build_a_distinct_mask(width, lengths, backend):
    """Six layers of two policies, forward twice: two masks, however many ask."""
    made = package(program_text(TWINS))
    masks = None
    caches = []
    for layer in range(6):
        cls = made.FarCache if layer % 3 == 2 else made.NearCache
        caches.append(cls(2, backend=backend, device=DEVICE, masks=masks, row_lengths=lengths))
        masks = caches[0].masks
    k, q = torch.zeros(2, 1, width, 8, device=DEVICE), torch.zeros(2, 2, width, 8, device=DEVICE)
    distinct = 2 if width > 4 else 1
    for _ in range(2):
        for cache in caches:
            cache.append_window(k, k).attend(q)
    assert all(cache.masks is masks for cache in caches)
    assert masks.builds == distinct if backend == "torch" else masks.builds <= distinct


def test_masks_belong_to_one_shape(backend):
    """Other widths, dtypes or lengths are other masks, and the answers stay right."""
    clauses = POLICIES["window"]
    masks = make_cache(clauses, 2, backend=backend).masks
    for width, lengths in ((9, None), (7, None), (9, [9, 2]), (9, [3, 9]), (9, None), (40, None)):
        cache = make_cache(clauses, 2, backend=backend, row_lengths=lengths, masks=masks)
        Forward(clauses, 2, width, lengths).compare(cache)


def test_decode_has_no_mask(backend):
    """A decode has no mask."""
    cache = make_cache(POLICIES["window"], 2, backend=backend)
    k, q = torch.zeros(2, 1, 1, 8, device=DEVICE), torch.zeros(2, 2, 1, 8, device=DEVICE)
    cache.append_decode(k, k).attend(q)
    assert cache.masks.builds == 0


def test_masks_of_all_policies_can_be_shared(backend):
    made = package(program_text({f"P{i}": clauses for i, clauses in enumerate(POLICIES.values())}))
    masks = made.P0Cache(2, backend=backend, device=DEVICE).masks
    for width, lengths in ((9, [3, 9]), (9, None), (3, None), (9, [9, 2])):
        for i, clauses in enumerate(POLICIES.values()):
            options = {"backend": backend, "device": DEVICE, "masks": masks, "row_lengths": lengths}
            cache = getattr(made, f"P{i}Cache")(2, **options)
            Forward(clauses, 2, width, lengths).compare(cache)


# -- what it does not do


def test_row_methods_are_refused(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend)
    for call in (
        lambda: cache.extract_row(0),
        lambda: cache.filter_rows([0]),
        lambda: type(cache).merge_rows([cache, cache]),
        lambda: cache.state_dict(),
        lambda: cache.load_state_dict({}),
        lambda: cache.prepare_prefill([1, 1]),
    ):
        assert "stateless" in str(refused(call, RuntimeError))


def test_what_does_nothing(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend)
    forward = Forward(clauses, 2, 6)
    cache.reset()
    cache.finalize_prefill()
    for n in (0, 1, 99, [3, 0]):
        assert cache.is_trimmable(n) is True
        cache.trim(n)
    for bad in (-1, 1.5, [1], "1"):
        refused(lambda bad=bad: cache.trim(bad), ValueError)
        refused(lambda bad=bad: cache.is_trimmable(bad), ValueError)
    forward.compare(cache)


def test_copies_are_refused_like_clone(clauses, backend):
    cache = make_cache(clauses, 2, backend=backend, row_lengths=[6, 2])
    for copied in (cache.clone, lambda: copy.deepcopy(cache), lambda: pickle.dumps(cache)):
        assert "stateless" in str(refused(copied, RuntimeError))
    assert cache.to(DEVICE) in (cache, None)
    assert repr(cache)
    Forward(clauses, 2, 6, [6, 2]).compare(cache)


def test_the_dtype_of_a_twin(backend):
    """`from` a stateful policy: the same numbers, nothing stored."""
    text = (
        "kvgen 1\npolicy Served { heads query 2 kv 1 dim 8 dtype f32 window 4 trim guarded bypass 2 padding right }\n"
        "policy Trained from Served { stateless }\n"
    )
    made = package(text)
    cache = made.TrainedCache(2, backend=backend, device=DEVICE)
    assert cache.window == 4 and cache.capacity is None and cache.nbytes == 0
    Forward("stateless window 4", 2, 11).compare(cache)
