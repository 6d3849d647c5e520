# Written by kvgen from llama4.kv and yours to keep: kvgen claims no right to it. Edit llama4.kv.
# kvgen: llama4.kv source fd738860da89 body 8b00dd1e2426 codegen 1
"""Triton kernels of FullCache: append, decode, verify and windows over slots in the order of positions."""

import triton
import triton.language as tl

from ._launch import DecodePlan, TilePlan
from ._triton import StoredKernels
from .full_policy import runs

QUERY_HEADS = tl.constexpr(40)  # llama4.kv:19 heads query 40 kv 8
KV_HEADS = tl.constexpr(8)  # llama4.kv:19 heads query 40 kv 8
GROUP = tl.constexpr(5)  # query heads that read a kv head
KEY_DIM = tl.constexpr(128)  # llama4.kv:20 dim 128
VALUE_DIM = tl.constexpr(128)  # llama4.kv:20 dim 128
KEY_BLOCK = tl.constexpr(128)  # the power of two that holds it
VALUE_BLOCK = tl.constexpr(128)  # the power of two that holds it
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
FAR = tl.constexpr(1 << 30)  # a position that nothing sees, a distance that nothing reaches

# Tile sizes by target and bytes an element. None for two bytes spills a register.
PLANS = {
    ("sm_80", 2): (
        DecodePlan(rows=64, keys=64, warps=4, stages=3, splits=27, split=192),
        TilePlan(rows=128, keys=32, warps=8, stages=3, edge_stages=1),
    ),
    ("sm_80", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=27, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("sm_90", 2): (
        DecodePlan(rows=64, keys=64, warps=4, stages=3, splits=33, split=192),
        TilePlan(rows=128, keys=64, warps=8, stages=3, edge_stages=2),
    ),
    ("sm_90", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=33, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("sm_100", 2): (
        DecodePlan(rows=64, keys=64, warps=4, stages=3, splits=37, split=192),
        TilePlan(rows=128, keys=64, warps=8, stages=3, edge_stages=1),
    ),
    ("sm_100", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=37, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("sm_120", 2): (
        DecodePlan(rows=64, keys=64, warps=4, stages=2, splits=43, split=192),
        TilePlan(rows=128, keys=32, warps=8, stages=2, edge_stages=1),
    ),
    ("sm_120", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=43, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("gfx942", 2): (
        DecodePlan(rows=64, keys=32, warps=4, stages=2, splits=64, split=160),
        TilePlan(rows=128, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("gfx942", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=64, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("gfx950", 2): (
        DecodePlan(rows=64, keys=64, warps=4, stages=2, splits=64, split=192),
        TilePlan(rows=128, keys=32, warps=8, stages=1, edge_stages=1),
    ),
    ("gfx950", 4): (
        DecodePlan(rows=32, keys=32, warps=8, stages=2, splits=64, split=160),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("interpreter", 2): (
        DecodePlan(rows=64, keys=32, warps=4, stages=1, splits=1, split=64),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
    ("interpreter", 4): (
        DecodePlan(rows=64, keys=32, warps=4, stages=1, splits=1, split=64),
        TilePlan(rows=32, keys=32, warps=4, stages=1, edge_stages=1),
    ),
}


@triton.jit
def slot_of(position):
    """Where a position is stored."""
    return position


@triton.jit
def sees(p, position):
    """Whether each query at p sees each key at position. As unsigned numbers, keys after p are far away too."""
    return position[None, :] <= p[:, None]


@triton.jit(do_not_specialize=["slots"])
def append_step(
    new_keys,
    new_values,
    keys,
    values,
    places,
    slots,
    COLUMNS: tl.constexpr,
    KEY_COLUMNS_FIRST: tl.constexpr,
    VALUE_COLUMNS_FIRST: tl.constexpr,
    LINES: tl.constexpr,
):
    """Store a few columns of every row, keys and values, and move the row's place on the device.

    `places`, int32 [rows, 4]: start, first and end of the columns stored last, and whether a row was full.
    One program a row does it all. Nobody else reads the place it moves: a replayed graph has no race.
    """
    row = tl.program_id(0).to(tl.int64)
    first = tl.load(places + row * 4 + 2)
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    for i in tl.range(0, KV_HEADS * COLUMNS, LINES):
        line = i + tl.arange(0, LINES)
        head = line // COLUMNS
        column = line % COLUMNS
        real = (line < KV_HEADS * COLUMNS)[:, None]
        if KEY_COLUMNS_FIRST:
            source = ((row * COLUMNS + column) * KV_HEADS + head)[:, None]
        else:
            source = (row * (KV_HEADS * COLUMNS) + line)[:, None]
        k = tl.load(new_keys + source * KEY_DIM + d, mask=real, other=0.0)
        if VALUE_COLUMNS_FIRST:
            source = ((row * COLUMNS + column) * KV_HEADS + head)[:, None]
        else:
            source = (row * (KV_HEADS * COLUMNS) + line)[:, None]
        v = tl.load(new_values + source * VALUE_DIM + e, mask=real, other=0.0)
        slot = ((row * KV_HEADS + head) * slots + slot_of(first + column))[:, None]
        tl.store(keys + slot * KEY_DIM + d, k, mask=real)
        tl.store(values + slot * VALUE_DIM + e, v, mask=real)
    tl.debug_barrier()  # all warps have read the place before one of them moves it
    tl.store(places + row * 4, first)
    tl.store(places + row * 4 + 1, first)
    tl.store(places + row * 4 + 2, first + COLUMNS)


@triton.jit(do_not_specialize=["slots", "columns"])
def append_columns(
    new_keys,
    new_values,
    keys,
    values,
    places,
    slots,
    columns,
    KEY_COLUMNS_FIRST: tl.constexpr,
    VALUE_COLUMNS_FIRST: tl.constexpr,
    LINES: tl.constexpr,
):
    """Store any number of columns, at places that the host put on the device. Padding writes nothing."""
    row = tl.program_id(1).to(tl.int64)
    start = tl.load(places + row * 4)
    first = tl.load(places + row * 4 + 1)
    end = tl.load(places + row * 4 + 2)
    line = tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
    head = line // columns
    column = line % columns
    p = start + column.to(tl.int32)
    real = (head < KV_HEADS) & (p >= first) & (p < end)
    real = real[:, None]
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    if KEY_COLUMNS_FIRST:
        source = ((row * columns + column) * KV_HEADS + head)[:, None]
    else:
        source = (row * columns * KV_HEADS + line)[:, None]
    k = tl.load(new_keys + source * KEY_DIM + d, mask=real, other=0.0)
    if VALUE_COLUMNS_FIRST:
        source = ((row * columns + column) * KV_HEADS + head)[:, None]
    else:
        source = (row * columns * KV_HEADS + line)[:, None]
    v = tl.load(new_values + source * VALUE_DIM + e, mask=real, other=0.0)
    slot = ((row * KV_HEADS + head) * slots + slot_of(p))[:, None]
    tl.store(keys + slot * KEY_DIM + d, k, mask=real)
    tl.store(values + slot * VALUE_DIM + e, v, mask=real)


@triton.jit
def decode_tile(q, k, v, m, total, acc, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    """One step of the online softmax over a tile that every query sees whole: no mask, no guard.

    m is the running maximum of the base-2 exponents, total the denominator lane by lane, acc the weighted values.
    """
    x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
    FACTOR: tl.constexpr = SCALE * LOG2E
    top = tl.maximum(m, tl.max(x, 1) * FACTOR)
    p = tl.exp2(x * FACTOR - top[:, None])
    shrink = tl.exp2(m - top)
    total = total * shrink[:, None] + p
    acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision=PRECISION)
    return top, total, acc


@triton.jit
def decode_edge(q, k, v, seen, m, total, acc, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    """The same over a tile of which each query sees only `seen`, perhaps nothing."""
    x = tl.dot(q, k.to(q.dtype).T, input_precision=PRECISION)
    FACTOR: tl.constexpr = SCALE * LOG2E
    x = tl.where(seen, x, float("-inf"))
    top = tl.maximum(m, tl.max(x, 1) * FACTOR)
    finite = tl.where(top == float("-inf"), 0.0, top)  # (-inf) - (-inf) is NaN
    p = tl.exp2(x * FACTOR - finite[:, None])
    shrink = tl.exp2(m - finite)
    total = total * shrink[:, None] + p
    acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision=PRECISION)
    return top, total, acc


@triton.jit(do_not_specialize=["slots"])
def decode(
    queries,
    keys,
    values,
    places,
    out,
    lse,
    slots,
    COLUMNS: tl.constexpr,
    COLUMNS_FIRST: tl.constexpr,
    RAGGED: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """The columns that were stored last attend what is stored: decode and verify.

    A program packs the GROUP query heads of a kv head, times the columns, as rows of one matrix
    operand, so that keys and values are read once for all of them. It reads one of SPLITS parts of
    what they see; `merge` joins the parts. Softmax does not mind the order: slots are read as they lie.
    """
    row = tl.program_id(0)
    head = tl.program_id(1) // BLOCKS
    block = tl.program_id(1) % BLOCKS
    split = tl.program_id(2)
    end = tl.load(places + row * 4 + 2)
    if RAGGED:
        start = tl.load(places + row * 4)
        first = tl.load(places + row * 4 + 1)
    else:
        start = end - COLUMNS
        first = start

    r = block * ROWS + tl.arange(0, ROWS)
    column = r // GROUP
    query_head = head * GROUP + r % GROUP
    d = tl.arange(0, KEY_BLOCK)[None, :]
    e = tl.arange(0, VALUE_BLOCK)[None, :]
    lane = tl.arange(0, KEYS)
    if COLUMNS_FIRST:
        source = (row * COLUMNS + column) * QUERY_HEADS + query_head
    else:
        source = (row * QUERY_HEADS + query_head) * COLUMNS + column
    real = column < COLUMNS
    source = source.to(tl.int64)[:, None] * KEY_DIM + d
    q = tl.load(queries + source, mask=real[:, None], other=0.0)
    p = start + column
    if RAGGED:
        real = real & (p >= first) & (p < end)
        q = tl.where(real[:, None], q, 0.0)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS, KEYS], tl.float32)
    acc = tl.zeros([ROWS, VALUE_BLOCK], tl.float32)
    plane = (row * KV_HEADS + head).to(tl.int64) * slots
    keys += plane * KEY_DIM
    values += plane * VALUE_DIM

    # together the columns see [low, high), each of them sees [clean_low, clean_high)
    if BLOCKS > 1:
        oldest = tl.maximum(first, start + block * ROWS // GROUP)
        after = tl.minimum(end, start + (block * ROWS + ROWS - 1) // GROUP + 1)
    else:
        oldest = first
        after = end
    if RAGGED or BLOCKS > 1:
        after = tl.where(oldest < after, after, 0)  # nothing but padding: nothing is seen
    low = 0
    high = tl.maximum(after, low)
    if COLUMNS > 1:
        clean_low = tl.minimum(tl.maximum(0, low), high)
        clean_high = tl.maximum(tl.minimum(oldest + 1, high), clean_low)
    else:
        clean_low = low
        clean_high = high

    # the splits share what is seen evenly: how many keys each reads depends on this row alone
    span = tl.cdiv(tl.cdiv(clean_high - clean_low, SPLITS), KEYS) * KEYS
    span = tl.maximum(span, SPLIT)
    a = tl.minimum(clean_low + split * span, clean_high)
    a_end = tl.minimum(a + span, clean_high)
    a_tiles = (a_end - a) // KEYS
    run_keys = keys + a * KEY_DIM
    run_values = values + a * VALUE_DIM
    for i in tl.range(0, a_tiles):
        slot = i * KEYS + lane
        k = tl.load(run_keys + slot[:, None] * KEY_DIM + d)
        v = tl.load(run_values + slot[:, None] * VALUE_DIM + e)
        m, total, acc = decode_tile(q, k, v, m, total, acc, SCALE, PRECISION)

    # the rest is gathered: edges of the columns, what is left of the run
    a += a_tiles * KEYS
    if COLUMNS > 1:
        left = tl.where(split == 0, clean_low - low, 0)
        right = left + tl.where(split == 0, high - clean_high, 0)
    else:
        right = 0
    a_tail = right + a_end - a
    for i in tl.range(0, a_tail, KEYS, num_stages=1):
        y = i + lane
        live = y < a_tail
        slot = a + y - right
        seen = live[None, :]
        if COLUMNS > 1:
            position = tl.where(y < left, low + y, clean_high + y - left)
            slot = tl.where(y < right, slot_of(position), slot)
            seen = seen & ((y >= right)[None, :] | sees(p, position))
        live = live[:, None]
        slot = slot[:, None]
        k = tl.load(keys + slot * KEY_DIM + d, mask=live, other=0.0)
        v = tl.load(values + slot * VALUE_DIM + e, mask=live, other=0.0)
        m, total, acc = decode_edge(q, k, v, seen, m, total, acc, SCALE, PRECISION)

    total = tl.sum(total, 1)
    if RAGGED:
        total = tl.where(real, total, 0.0)
    stored = column < COLUMNS
    if SPLITS > 1:  # a part: its own mean of the values, and the base-2 log of its denominator
        target = ((row * KV_HEADS + head) * SPLITS + split) * (GROUP * COLUMNS) + r
        unit = 1.0
    else:
        target = (row * QUERY_HEADS + query_head) * COLUMNS + column
        unit = LN2
    sighted = total > 0.0
    total = tl.where(sighted, total, 1.0)
    result = (acc * tl.where(sighted, 1.0 / total, 0.0)[:, None]).to(out.dtype.element_ty)
    place = target.to(tl.int64)[:, None] * VALUE_DIM + e
    tl.store(out + place, result, mask=stored[:, None])
    log = tl.where(sighted, (m + tl.log2(total)) * unit, float("-inf"))
    tl.store(lse + target, log, mask=stored)


@triton.jit
def merge(
    parts,
    logs,
    out,
    lse,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    SPLITS_BLOCK: tl.constexpr,
):
    """Join what the splits of decode found, always in the same order."""
    row = tl.program_id(0).to(tl.int64)
    query_head = tl.program_id(1)
    column = tl.program_id(2)
    split = tl.arange(0, SPLITS_BLOCK)
    real = split < SPLITS
    e = tl.arange(0, VALUE_BLOCK)
    part = (row * KV_HEADS + query_head // GROUP) * SPLITS + split
    part = part * (GROUP * COLUMNS) + column * GROUP + query_head % GROUP
    log = tl.load(logs + part, mask=real, other=float("-inf"))
    m = tl.max(log, 0)
    weight = tl.exp2(log - tl.where(m == float("-inf"), 0.0, m))
    total = tl.sum(weight, 0)
    part = part[:, None] * VALUE_DIM + e[None, :]
    v = tl.load(parts + part, mask=real[:, None], other=0.0)
    acc = tl.sum(v * weight[:, None], 0)
    sighted = total > 0.0
    total = tl.where(sighted, total, 1.0)
    result = (acc * tl.where(sighted, 1.0 / total, 0.0)).to(out.dtype.element_ty)
    target = (row * QUERY_HEADS + query_head) * COLUMNS + column
    tl.store(out + target * VALUE_DIM + e, result)
    tl.store(lse + target, tl.where(sighted, (m + tl.log2(total)) * LN2, float("-inf")))


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


@triton.jit(do_not_specialize=["slots", "columns"])
def window(
    queries,
    keys,
    values,
    places,
    out,
    lse,
    slots,
    columns,
    COLUMNS_FIRST: tl.constexpr,
    SCALE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    EDGE_STAGES: tl.constexpr,
):
    """New columns attend the planes that already hold them.

    A program is a tile of columns of one query head. It walks a source in a masked loop (sinks and
    edges) and a clean one: work grows as L * min(L, reach). Softmax does not mind the order.
    """
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # the last columns see most: they start first
    query_head = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    head = query_head // GROUP
    start = tl.load(places + row * 4)
    first = tl.load(places + row * 4 + 1)
    end = tl.load(places + row * 4 + 2)
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
        low = 0
        clean_low = 0
        flat_keys = keys + (row * KV_HEADS + head) * slots * KEY_DIM
        flat_values = values + (row * KV_HEADS + head) * slots * VALUE_DIM
        base = 0
        flat_low = tl.maximum(low, base)
        flat_clean = tl.minimum(tl.maximum(clean_low, flat_low), newest + 1)
        tiles = tl.maximum(oldest + 1 - flat_clean, 0) // KEYS
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
    sighted = total > 0.0
    total = tl.where(sighted, total, 1.0)
    target = (row * QUERY_HEADS + query_head) * columns + column
    stored = column < columns
    result = (acc * tl.where(sighted, 1.0 / total, 0.0)[:, None]).to(out.dtype.element_ty)
    place = target[:, None] * VALUE_DIM + e
    tl.store(out + place, result, mask=stored[:, None])
    log = tl.where(sighted, (m + tl.log2(total)) * LN2, float("-inf"))
    tl.store(lse + target, log, mask=stored)


class FullTriton(StoredKernels):
    """Stores and attends the planes of a FullCache with the kernels above."""

    name = "triton decode+window"
    query_heads, kv_heads = 40, 8
    key_dim, value_dim = 128, 128
    ring, grows = False, True
    plans = PLANS
    runs = staticmethod(runs)
    append_step, append_columns = append_step, append_columns
    decode, merge, window = decode, merge, window
