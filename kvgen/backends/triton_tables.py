"""Which tiles the Triton kernels take, by target and largest head dim.

The figures behind the tables come from `kvgen audit`, which compiles every kernel for every target without a device and
holds it against kvgen/audit_budget.json.
"""

# By target and largest head dim: (rows, keys, warps, stages) of a decode step on two-byte elements. Bytes in flight decide,
# as long as three programs fit a multiprocessor; AMD has no asynchronous copies worth a third buffer. More than `rows` heads
# times columns are shared by several programs: more would spill.
DECODE_TILES = {
    "sm_80": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (32, 32, 4, 3)},
    "sm_90": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)},
    "sm_100": {64: (64, 64, 4, 3), 128: (64, 64, 4, 3), 256: (64, 32, 4, 3)},
    "sm_120": {64: (64, 64, 4, 3), 128: (64, 64, 4, 2), 256: (32, 32, 4, 2)},
    "gfx942": {64: (64, 64, 4, 2), 128: (64, 32, 4, 2), 256: (64, 32, 4, 2)},
    "gfx950": {64: (64, 64, 4, 2), 128: (64, 64, 4, 2), 256: (64, 32, 4, 2)},
    "interpreter": {64: (64, 32, 4, 1), 128: (64, 32, 4, 1), 256: (64, 32, 4, 1)},
}

# The same of a window step: (rows, keys, warps, stages, edge stages), the largest tile that keeps its accumulator, scores
# and probabilities in registers.
WINDOW_TILES = {
    "sm_80": {64: (128, 64, 8, 3, 2), 128: (128, 32, 8, 3, 1), 256: (64, 32, 8, 2, 1)},
    "sm_90": {64: (128, 128, 8, 3, 2), 128: (128, 64, 8, 3, 2), 256: (128, 32, 8, 3, 1)},
    "sm_100": {64: (128, 128, 8, 3, 2), 128: (128, 64, 8, 3, 2), 256: (64, 64, 8, 2, 1)},
    "sm_120": {64: (128, 64, 8, 3, 2), 128: (128, 32, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "gfx942": {64: (128, 64, 4, 1, 1), 128: (128, 32, 8, 1, 1), 256: (64, 16, 8, 1, 1)},
    "gfx950": {64: (128, 64, 4, 1, 1), 128: (128, 32, 8, 1, 1), 256: (64, 16, 8, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}

# Of four-byte elements, on every target: three passes hold each operand twice. Gradients have two accumulators: at 256 they
# spill with any tile, with these least.
F32_DECODE_TILES = {64: (64, 32, 4, 2), 128: (32, 32, 8, 2), 256: (16, 16, 8, 2)}
F32_WINDOW_TILES = {64: (64, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (16, 16, 8, 1, 1)}
F32_GRADIENT_TILES = {64: (32, 32, 8, 1, 1), 128: (16, 16, 8, 1, 1), 256: (16, 16, 8, 1, 1)}

# Gradients of keys and of queries: (rows, keys, warps, stages, edge stages). Two accumulators leave less room.
KEY_GRADIENT_TILES = {
    "sm_80": {64: (32, 128, 8, 2, 1), 128: (64, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_90": {64: (32, 128, 8, 2, 1), 128: (32, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_100": {64: (64, 64, 4, 2, 1), 128: (32, 64, 8, 2, 1), 256: (32, 32, 8, 2, 1)},
    "sm_120": {64: (32, 128, 8, 2, 1), 128: (32, 64, 8, 1, 1), 256: (32, 32, 8, 1, 1)},
    "gfx942": {64: (32, 64, 4, 1, 1), 128: (16, 64, 4, 1, 1), 256: (16, 32, 4, 1, 1)},
    "gfx950": {64: (32, 64, 4, 1, 1), 128: (16, 64, 4, 1, 1), 256: (16, 32, 4, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}
QUERY_GRADIENT_TILES = {
    "sm_80": {64: (64, 32, 4, 2, 1), 128: (64, 64, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "sm_90": {64: (128, 64, 8, 2, 1), 128: (128, 64, 8, 2, 1), 256: (32, 32, 4, 2, 1)},
    "sm_100": {64: (128, 64, 8, 2, 1), 128: (128, 64, 8, 2, 1), 256: (64, 32, 8, 2, 1)},
    "sm_120": {64: (64, 32, 4, 2, 1), 128: (64, 32, 4, 1, 1), 256: (64, 32, 8, 1, 1)},
    "gfx942": {64: (64, 32, 4, 1, 1), 128: (64, 32, 8, 1, 1), 256: (64, 16, 4, 1, 1)},
    "gfx950": {64: (64, 32, 4, 1, 1), 128: (64, 32, 8, 1, 1), 256: (64, 16, 4, 1, 1)},
    "interpreter": {64: (32, 32, 4, 1, 1), 128: (32, 32, 4, 1, 1), 256: (32, 32, 4, 1, 1)},
}
