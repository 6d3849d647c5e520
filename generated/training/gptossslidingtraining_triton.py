# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body 2ac067c83195 codegen 1
"""Triton kernels of GptOssSlidingTrainingCache: attention and its gradients, for training and scoring."""

import triton
import triton.language as tl

from ._launch import TilePlan
from ._trained import TrainedKernels

QUERY_HEADS = tl.constexpr(64)  # training.kv:29 heads query 64 kv 8
KV_HEADS = tl.constexpr(8)  # training.kv:29 heads query 64 kv 8
GROUP = tl.constexpr(8)  # query heads that read a kv head
KEY_DIM = tl.constexpr(64)  # training.kv:30 dim 64
VALUE_DIM = tl.constexpr(64)  # training.kv:30 dim 64
KEY_BLOCK = tl.constexpr(64)  # the power of two that holds it
VALUE_BLOCK = tl.constexpr(64)  # the power of two that holds it
WINDOW = tl.constexpr(128)  # training.kv:33 window 128
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(1 << 30)  # a position that nothing sees, a distance that nothing reaches

# Tile sizes of the forward pass, of the gradients of keys and values and of those of queries, by target and bytes an
# element; none of two bytes spills a register.
PLANS = {
    ("sm_80", 2): (
        TilePlan(rows=128, keys=64, warps=8, stages=3, edge_stages=2),
        TilePlan(rows=32, keys=128, warps=8, stages=2, edge_stages=1),
        TilePlan(rows=64, keys=32, warps=4, stages=2, edge_stages=1),
    ),
    ("sm_80", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("sm_90", 2): (
        TilePlan(rows=128, keys=128, warps=8, stages=3, edge_stages=2),
        TilePlan(rows=32, keys=128, warps=8, stages=2, edge_stages=1),
        TilePlan(rows=128, keys=64, warps=8, stages=2, edge_stages=1),
    ),
    ("sm_90", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("sm_100", 2): (
        TilePlan(rows=128, keys=128, warps=8, stages=3, edge_stages=2),
        TilePlan(rows=64, keys=64, warps=4, stages=2, edge_stages=1),
        TilePlan(rows=128, keys=64, warps=8, stages=2, edge_stages=1),
    ),
    ("sm_100", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("sm_120", 2): (
        TilePlan(rows=128, keys=64, warps=8, stages=3, edge_stages=2),
        TilePlan(rows=32, keys=128, warps=8, stages=2, edge_stages=1),
        TilePlan(rows=64, keys=32, warps=4, stages=2, edge_stages=1),
    ),
    ("sm_120", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("gfx942", 2): (
        TilePlan(rows=128, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=64, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("gfx942", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("gfx950", 2): (
        TilePlan(rows=128, keys=64, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=64, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("gfx950", 4): (
        TilePlan(rows=64, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("interpreter", 2): (
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("interpreter", 4): (
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
}


@triton.jit
def first_seen(p):
    """The first position that the query at p sees."""
    return tl.maximum(p - WINDOW + 1, 0)


@triton.jit
def sees(p, position):
    """Whether each query at p sees each key at position. As unsigned numbers, keys after p are far away too."""
    return (p[:, None] - position[None, :]).to(tl.uint32, bitcast=True) < WINDOW


@triton.jit
def unseen_from(key):
    """The first position that comes too late to see the key."""
    return key + WINDOW


@triton.jit
def count_sink_logit(logit, m, total):
    """Let a learned logit join the denominator of rows that see something: maximum, denominator, factor of the rest."""
    logit = logit.to(tl.float32) * LOG2E
    m = tl.where(total > 0.0, m, 0.0)
    top = tl.maximum(m, logit)
    shrink = tl.exp2(m - top)
    return top, tl.where(total > 0.0, total * shrink + tl.exp2(logit - top), 0.0), shrink


@triton.jit
def window_tile(q, k, v, m, total, acc, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    """One step of the online softmax over a tile that every query sees whole: no mask, no guard.

    m is the running maximum of the base-2 exponents, total the denominator, acc the weighted values.
    """
    x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
    FACTOR: tl.constexpr = SCALE * LOG2E
    top = tl.maximum(m, tl.max(x, 1) * FACTOR)
    p = tl.exp2(x * FACTOR - top[:, None])
    shrink = tl.exp2(m - top)
    total = total * shrink + tl.sum(p, 1)
    acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision=PRECISION)
    return top, total, acc


@triton.jit
def window_edge(q, k, v, seen, m, total, acc, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    """The same over a tile of which each query sees only `seen`, perhaps nothing."""
    x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
    FACTOR: tl.constexpr = SCALE * LOG2E
    x = tl.where(seen, x, float("-inf"))
    top = tl.maximum(m, tl.max(x, 1) * FACTOR)
    finite = tl.where(top == float("-inf"), 0.0, top)  # (-inf) - (-inf) is NaN
    p = tl.exp2(x * FACTOR - finite[:, None])
    shrink = tl.exp2(m - finite)
    total = total * shrink + tl.sum(p, 1)
    acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision=PRECISION)
    return top, total, acc


@triton.jit(do_not_specialize=["columns"])
def window(
    queries,
    keys,
    values,
    lengths,
    sink_logits,
    out,
    lse,
    columns,
    COLUMNS_FIRST: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    EDGE_STAGES: tl.constexpr,
):
    """New columns attend their own sequence.

    A program is a tile of columns of one query head. It walks a source in a masked loop (sinks and
    edges) and a clean one: work grows as L * min(L, reach). Softmax does not mind the order.
    """
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the last columns see most: they start first
    query_head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    head = query_head // GROUP
    end = tl.load(lengths + row)
    start = 0
    first = 0
    column = tile * ROWS + tl.arange(0, ROWS)
    p = start + column
    real = (p >= first) & (p < end)
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    lane = tl.arange(0, KEYS)
    if COLUMNS_FIRST:
        source = (row * columns + column) * QUERY_HEADS + query_head
    else:
        source = (row * QUERY_HEADS + query_head) * columns + column
    source = source[:, None] * KEY_DIM + d
    q = tl.load(queries + source, mask=real[:, None], other=0.0)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)

    # the tile's tokens are positions oldest to newest
    oldest = tl.maximum(first, start + tile * ROWS)
    newest = tl.minimum(end, start + tile * ROWS + ROWS) - 1
    if oldest <= newest:
        # together they see [low, newest], each of them sees [clean_low, oldest]
        low = first_seen(oldest)
        clean_low = first_seen(newest)
        # fewer than 3 tiles of keys are seen by all of a full tile of columns: they are masked like the rest
        ALL_EDGE: tl.constexpr = WINDOW < ROWS + 3 * KEYS - 1
        if ALL_EDGE:
            clean_low = newest + 1
        flat_keys = keys + (row * KV_HEADS + head) * columns * KEY_DIM
        flat_values = values + (row * KV_HEADS + head) * columns * VALUE_DIM
        base = 0
        flat_low = tl.maximum(low, base)
        flat_clean = tl.minimum(tl.maximum(clean_low, flat_low), newest + 1)
        tiles = tl.maximum(oldest + 1 - flat_clean, 0) // KEYS
        if ALL_EDGE:
            tiles = 0
        rest = flat_clean + tiles * KEYS
        left_tiles = tl.cdiv(tl.maximum(flat_clean - flat_low, 0), KEYS)
        edge_tiles = left_tiles + tl.cdiv(newest + 1 - rest, KEYS)
        for i in tl.range(0, edge_tiles, num_stages=EDGE_STAGES):
            left = flat_low + i * KEYS
            position = tl.where(i < left_tiles, left, rest + (i - left_tiles) * KEYS)
            limit = tl.where(i < left_tiles, flat_clean, newest + 1)
            position += lane
            live = (position < limit)[:, None]
            at = position[:, None]
            k = tl.load(flat_keys + at * KEY_DIM + d, mask=live, other=0.0)
            v = tl.load(flat_values + at * VALUE_DIM + e, mask=live, other=0.0)
            seen = sees(p, tl.where(position < limit, position, FAR))
            m, total, acc = window_edge(q, k, v, seen, m, total, acc, SCALE, PRECISION)
        for i in tl.range(0, tiles, num_stages=STAGES):
            at = (flat_clean + i * KEYS + lane)[:, None]
            k = tl.load(flat_keys + at * KEY_DIM + d)
            v = tl.load(flat_values + at * VALUE_DIM + e)
            m, total, acc = window_tile(q, k, v, m, total, acc, SCALE, PRECISION)

    total = tl.where(real, total, 0.0)  # padding columns saw keys beside the tile's tokens
    m, total, shrink = count_sink_logit(tl.load(sink_logits + query_head), m, total)
    acc = acc * shrink[:, None]
    sighted = total > 0.0
    total = tl.where(sighted, total, 1.0)
    target = (row * QUERY_HEADS + query_head) * columns + column
    stored = column < columns
    result = (acc * tl.where(sighted, 1.0 / total, 0.0)[:, None]).to(out.dtype.element_ty)
    place = target[:, None] * VALUE_DIM + e
    tl.store(out + place, result, mask=stored[:, None])
    log = tl.where(sighted, (m + tl.log2(total)) * LN2, float("-inf"))
    tl.store(lse + target, log, mask=stored)


@triton.jit(do_not_specialize=["columns"])
def delta(
    out,
    d_out,
    d_lse,
    lse,
    lengths,
    sink_logits,
    d_logits,
    deltas,
    columns,
    HAS_D_LSE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """What every score's gradient of a query has in common: out . d_out, less the gradient of its log-sum-exp."""
    tile = tl.program_id(0)
    query_head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    p = tile * ROWS + tl.arange(0, ROWS)
    real = p < tl.load(lengths + row)
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    line = (row * QUERY_HEADS + query_head) * columns + p
    source = line[:, None] * VALUE_DIM + e
    o = tl.load(out + source, mask=real[:, None], other=0.0).to(tl.float32)
    do = tl.load(d_out + source, mask=real[:, None], other=0.0).to(tl.float32)
    shared = tl.sum(o * do, 1)
    if HAS_D_LSE:
        shared -= tl.load(d_lse + line, mask=real, other=0.0)
    tl.store(deltas + line, shared, mask=p < columns)
    log = tl.load(lse + line, mask=real, other=float("inf"))
    logit = tl.load(sink_logits + query_head).to(tl.float32)
    share = tl.exp2((logit - log) * LOG2E)  # of the softmax's denominator
    part = (row * QUERY_HEADS + query_head) * tl.num_programs(0) + tile
    tl.store(d_logits + part, -tl.sum(tl.where(real, share * shared, 0.0), 0))


@triton.jit
def score_gradients(x, d_p, log, shared, SCALE: tl.constexpr):
    """Probabilities and gradients of the scores, from raw scores and the gradients of the probabilities."""
    p = tl.exp2(x * (SCALE * LOG2E) - log)
    return p, p * (d_p - shared)


@triton.jit
def score_gradients_edge(x, d_p, log, shared, seen, SCALE: tl.constexpr):
    """The same where only some are seen. The mask comes after the cap: tanh(-inf) is -1."""
    p = tl.where(seen, tl.exp2(x * (SCALE * LOG2E) - log), 0.0)
    return p, p * (d_p - shared)


@triton.jit(do_not_specialize=["columns"])
def key_gradients(
    queries,
    keys,
    values,
    d_out,
    lse,
    deltas,
    lengths,
    d_keys,
    d_values,
    columns,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    EDGE_STAGES: tl.constexpr,
):
    """dK and dV of a tile of keys, over all query heads that read it and queries that see it. No atomics."""
    low = tl.program_id(0) * KEYS
    head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + row)
    key = low + tl.arange(0, KEYS)
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    lane = tl.arange(0, ROWS)
    mine = (key < length)[:, None]
    line = ((row * KV_HEADS + head) * columns + key)[:, None]
    k = tl.load(keys + line * KEY_DIM + d, mask=mine, other=0.0)
    v = tl.load(values + line * VALUE_DIM + e, mask=mine, other=0.0)
    k = k.to(queries.dtype.element_ty)
    v = v.to(queries.dtype.element_ty)
    dk = tl.zeros([KEYS, KEY_BLOCK], tl.float32)
    dv = tl.zeros([KEYS, VALUE_BLOCK], tl.float32)

    # queries [low, high) see some of the tile, [clean, rest) all of it
    high = tl.maximum(tl.minimum(unseen_from(low + KEYS - 1), length), low)
    clean = tl.minimum(low + (KEYS + ROWS - 2) // ROWS * ROWS, high)
    tiles = tl.maximum(tl.minimum(unseen_from(low), length) - clean, 0) // ROWS
    rest = clean + tiles * ROWS
    left = tl.cdiv(clean - low, ROWS)
    for group in tl.range(0, GROUP):
        head_line = (row * QUERY_HEADS + head * GROUP + group) * columns
        edge_tiles = left + tl.cdiv(high - rest, ROWS)
        for i in tl.range(0, edge_tiles, num_stages=EDGE_STAGES):
            p = tl.where(i < left, low + i * ROWS, rest + (i - left) * ROWS) + lane
            real = p < tl.where(i < left, clean, high)
            at = (head_line + p)[:, None]
            live = real[:, None]
            q = tl.load(queries + at * KEY_DIM + d, mask=live, other=0.0)
            do = tl.load(d_out + at * VALUE_DIM + e, mask=live, other=0.0)
            log = tl.load(lse + head_line + p, mask=real, other=float("inf"))[None, :] * LOG2E
            shared = tl.load(deltas + head_line + p, mask=real, other=0.0)[None, :]
            x = tl.dot(k, q.T, input_precision=PRECISION)
            d_p = tl.dot(v, do.T, input_precision=PRECISION)
            seen = (p[None, :] - key[:, None]).to(tl.uint32, bitcast=True) < WINDOW
            probability, d_score = score_gradients_edge(x, d_p, log, shared, seen, SCALE)
            dv = tl.dot(probability.to(do.dtype), do, dv, input_precision=PRECISION)
            dk = tl.dot(d_score.to(q.dtype), q, dk, input_precision=PRECISION)
        for i in tl.range(0, tiles, num_stages=STAGES):
            p = clean + i * ROWS + lane
            at = (head_line + p)[:, None]
            q = tl.load(queries + at * KEY_DIM + d)
            do = tl.load(d_out + at * VALUE_DIM + e)
            log = tl.load(lse + head_line + p)[None, :] * LOG2E
            shared = tl.load(deltas + head_line + p)[None, :]
            x = tl.dot(k, q.T, input_precision=PRECISION)
            d_p = tl.dot(v, do.T, input_precision=PRECISION)
            probability, d_score = score_gradients(x, d_p, log, shared, SCALE)
            dv = tl.dot(probability.to(do.dtype), do, dv, input_precision=PRECISION)
            dk = tl.dot(d_score.to(q.dtype), q, dk, input_precision=PRECISION)
    stored = (key < columns)[:, None]
    dk = (dk * SCALE).to(d_keys.dtype.element_ty)
    dv = dv.to(d_values.dtype.element_ty)
    tl.store(d_keys + line * KEY_DIM + d, dk, mask=stored)
    tl.store(d_values + line * VALUE_DIM + e, dv, mask=stored)


@triton.jit(do_not_specialize=["columns"])
def query_gradients(
    queries,
    keys,
    values,
    d_out,
    lse,
    deltas,
    lengths,
    d_queries,
    columns,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    EDGE_STAGES: tl.constexpr,
):
    """dQ of a tile of queries, over the keys that they see."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    query_head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + row)
    p = tile * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    lane = tl.arange(0, KEYS)
    line = (row * QUERY_HEADS + query_head) * columns + p
    real = p < length
    mine = real[:, None]
    own = line[:, None]
    q = tl.load(queries + own * KEY_DIM + d, mask=mine, other=0.0)
    do = tl.load(d_out + own * VALUE_DIM + e, mask=mine, other=0.0)
    log = tl.load(lse + line, mask=real, other=float("inf"))[:, None] * LOG2E
    shared = tl.load(deltas + line, mask=real, other=0.0)[:, None]
    acc = tl.zeros([ROWS, KEY_BLOCK], tl.float32)
    plane = (row * KV_HEADS + query_head // GROUP) * columns
    keys += plane * KEY_DIM
    values += plane * VALUE_DIM

    oldest = tile * ROWS
    newest = tl.minimum(oldest + ROWS, length) - 1
    if oldest <= newest:
        low = first_seen(oldest)
        clean = tl.minimum(tl.maximum(first_seen(newest), low), newest + 1)
        tiles = tl.maximum(oldest + 1 - clean, 0) // KEYS
        rest = clean + tiles * KEYS
        left_tiles = tl.cdiv(tl.maximum(clean - low, 0), KEYS)
        edge_tiles = left_tiles + tl.cdiv(newest + 1 - rest, KEYS)
        for i in tl.range(0, edge_tiles, num_stages=EDGE_STAGES):
            left = low + i * KEYS
            position = tl.where(i < left_tiles, left, rest + (i - left_tiles) * KEYS)
            limit = tl.where(i < left_tiles, clean, newest + 1)
            position += lane
            live = (position < limit)[:, None]
            at = position[:, None]
            k = tl.load(keys + at * KEY_DIM + d, mask=live, other=0.0)
            v = tl.load(values + at * VALUE_DIM + e, mask=live, other=0.0)
            x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
            d_p = tl.dot(do, v.to(q.dtype).T, input_precision=PRECISION)
            seen = sees(p, tl.where(position < limit, position, FAR))
            _, d_score = score_gradients_edge(x, d_p, log, shared, seen, SCALE)
            acc = tl.dot(d_score.to(q.dtype), k.to(q.dtype), acc, input_precision=PRECISION)
        for i in tl.range(0, tiles, num_stages=STAGES):
            at = (clean + i * KEYS + lane)[:, None]
            k = tl.load(keys + at * KEY_DIM + d)
            v = tl.load(values + at * VALUE_DIM + e)
            x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
            d_p = tl.dot(do, v.to(q.dtype).T, input_precision=PRECISION)
            _, d_score = score_gradients(x, d_p, log, shared, SCALE)
            acc = tl.dot(d_score.to(q.dtype), k.to(q.dtype), acc, input_precision=PRECISION)
    result = (acc * SCALE).to(d_queries.dtype.element_ty)
    stored = (p < columns)[:, None]
    tl.store(d_queries + own * KEY_DIM + d, result, mask=stored)


class GptOssSlidingTrainingTriton(TrainedKernels):
    """Attends what is handed to a GptOssSlidingTrainingCache with the kernels above."""

    name = "triton window+gradients"
    query_heads, kv_heads = 64, 8
    key_dim, value_dim = 64, 64
    sinks = 0
    plans = PLANS
    window, delta = window, delta
    key_gradients, query_gradients = key_gradients, query_gradients
