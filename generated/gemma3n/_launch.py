# Written by kvgen from gemma3n.kv and yours to keep: kvgen claims no right to it. Edit gemma3n.kv.
# kvgen: gemma3n.kv source 2ba866454d30 body 11c551ef4d2e codegen 1
"""How the Triton kernels of this package are launched: targets, places on the device, kernels resolved once."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from triton.runtime import driver

from . import _ahead

if not hasattr(triton, "knobs"):
    raise ImportError(f"triton {triton.__version__} is too old: the kernels need 3.4 or newer")

HOOKS = triton.knobs.runtime
INTERPRETED = HOOKS.interpret
AMD = torch.version.hip is not None
STEP_COLUMNS = 16  # appends of up to so many columns take one program a row, which moves the row's place itself
FARTHEST = (1 << 30) - (1 << 16)  # kernels count positions in 32 bits; masks use the numbers beyond


class DecodePlan(NamedTuple):
    """Query rows and keys a step, warps, loads in flight.

    `splits` programs share the keys, `split` of them each, or at least as many where storage has no limit.
    """

    rows: int
    keys: int
    warps: int
    stages: int
    splits: int
    split: int


class TilePlan(NamedTuple):
    """Query rows and keys a step, warps, loads in flight in the clean loop and in the masked one."""

    rows: int
    keys: int
    warps: int
    stages: int
    edge_stages: int


def target_of(device: torch.device) -> str:
    """The name of the plans for a device: its own, or the next older one with as much shared memory."""
    if INTERPRETED:
        return "interpreter"
    if device.type != "cuda":
        raise ImportError(
            f"the triton backend needs an NVIDIA or AMD GPU, not {device}; use backend='cpu' or 'torch', or set"
            " TRITON_INTERPRET=1 before triton is imported to try it on a CPU"
        )
    target = driver.active.get_current_target()
    if target.backend == "hip":
        return "gfx950" if target.arch == "gfx950" else "gfx942"
    if target.arch in (86, 87, 89):
        return "sm_120"
    newest = max((sm for sm in (80, 90, 100, 120) if sm <= target.arch), default=None)
    if newest is None:
        raise ImportError(
            f"the triton backend needs compute capability 8.0 or newer, {device} has"
            f" {target.arch / 10}; use backend='torch'"
        )
    return f"sm_{newest}"


class Kernel:
    """A kernel with its constants: found or compiled at the first launch; later ones hand over pointers, in 1 us instead of 9."""

    __slots__ = (
        "_function",
        "_launch",
        "_metadata",
        "_resolved",
        "_rest",
        "_run",
        "beside",
        "constants",
        "function",
        "place",
        "ready",
    )

    def __init__(self, function: Any, **constants: Any) -> None:
        self.function, self.constants = function, constants
        # launchers take the constants too, and step over them
        self._rest = tuple(constants[name] for name in function.arg_names if name in constants)
        self._run: Any = None
        self.ready = False  # compiled, so that addresses will do in place of tensors
        self.beside: tuple[Any, ...] = ()  # those of what it was given at the last launch
        self.place: Any = None  # and where the planes among them are

    def __call__(self, grid: tuple[int, int, int], stream: int, *arguments: Any) -> None:
        self.launch(*grid, stream, arguments)

    def launch(self, x: int, y: int, z: int, stream: int, arguments: tuple[Any, ...]) -> None:
        """On a grid of x, y, z programs. Spelled out: to unpack a grid takes a tenth of a launch."""
        beyond = AMD and any(map(beyond_buffers, arguments))
        if beyond or (self._run is None and not self._found(arguments)):
            self._compile((x, y, z), arguments, beyond)
            return
        enter, leave = HOOKS.launch_enter_hook, HOOKS.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):  # a profiler listens
            self._told(x, y, z, stream, arguments + self._rest, enter, leave)
            return
        self._launch(x, y, z, stream, arguments + self._rest)

    def _told(self, x, y, z, stream, arguments, enter, leave) -> None:
        told = self._resolved.launch_metadata((x, y, z), stream, *arguments)
        launched = self._function, self._metadata, told, enter, leave
        self._run(x, y, z, stream, *launched, *arguments)

    def _found(self, arguments: Any) -> bool:
        """Whether it was compiled ahead of time."""
        compiled = None if INTERPRETED else _ahead.find(self.function, self.constants, arguments)
        if compiled is not None:
            self._keep(compiled, len(arguments))
        return compiled is not None

    def _compile(self, grid: tuple[int, int, int], arguments: Any, beyond: bool) -> None:
        """By the JIT, which launches it too."""
        compiled = self.function[grid](*arguments, **self.constants)
        if not (INTERPRETED or beyond):
            self._keep(compiled, len(arguments))

    def _keep(self, compiled: Any, count: int) -> None:
        self._resolved, self._metadata = compiled, compiled.packed_metadata
        self._run, self._function = compiled.run, compiled.function
        self._launch = launch_of(compiled, count + len(self._rest))
        self.ready = not AMD  # where it depends on a tensor's size


def launch_of(compiled: Any, count: int) -> Callable[..., None]:
    """A function of grid x, y, z, stream and a tuple of `count` arguments that launches what was compiled.

    Triton's launcher, in Python, asks at each launch about scratch memory, which these kernels do not have, and then calls
    one C function. It is asked once what it would call, by marks in place of numbers; where it calls nothing like that,
    or calls it in another order, it is called itself.
    """
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    marks, arguments = [object() for _ in range(4)], tuple([object() for _ in range(count)])
    calls: list[Any] = []
    sizes = [getattr(run, f"{kind}_scratch_size", 0) for kind in ("global", "profile")]
    if hasattr(run, "launch") and not any(sizes):
        launcher = copy.copy(run)
        launch, launcher.launch = run.launch, lambda *call: calls.append(call)
        launcher(*marks, function, metadata, None, None, None, *arguments)
    if len(calls) == 1 and list(calls[0][:4]) == marks:
        if calls[0][-1] == arguments:
            middle = calls[0][4:-1]
            return lambda x, y, z, stream, given: launch(x, y, z, stream, *middle, given)
        if calls[0][-count:] == arguments:
            middle = calls[0][4:-count]
            return lambda x, y, z, stream, given: launch(x, y, z, stream, *middle, *given)
    middle = function, metadata, None, None, None
    return lambda x, y, z, stream, given: run(x, y, z, stream, *middle, *given)


def beyond_buffers(x: Any) -> bool:
    """AMD's buffer loads reach 2 GB; the JIT chooses them by the tensors it is handed, so larger ones go back to it."""
    return isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() >= 1 << 31


class Target:
    """What kernels are compiled for. `precision`: of float32 products, their equal in three passes of TF32 where there is one."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.precision = "ieee" if target.startswith("gfx") else "tf32x3"

    def registers(self, rows: int, itemsize: int) -> dict[str, int]:
        """How many a thread of a decode program may use: so that three programs share a multiprocessor, or two."""
        if not self.target.startswith("sm"):
            return {}
        return {"maxnreg": 168 if rows == 16 and itemsize < 4 else 255}


class Device(Target):
    """A target that is here, with its stream of the moment."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(target_of(device))
        self.device, self.index = device, device.index
        if INTERPRETED:
            return
        self._device_now = driver.active.get_current_device
        self._stream_of = driver.active.get_current_stream
        if self.index is None:
            self.index = self._device_now()

    def stream(self) -> int | None:
        """The device's current stream; None while another device is the current one, on which kernels would be launched."""
        if INTERPRETED:
            return 0
        if self._device_now() != self.index:
            return None
        return self._stream_of(self.index)


def layout(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """x [B, H, L, D] as kernels read it, and whether columns come before heads in memory; other layouts are copied."""
    if x.is_contiguous():
        return x.clone() if x.data_ptr() & 15 else x, False
    if x.transpose(1, 2).is_contiguous():
        return aligned(x), True
    return x.contiguous(), False


def aligned(x: torch.Tensor) -> torch.Tensor:
    """Kernels load 16 bytes at a time: what starts elsewhere is copied."""
    return x.clone() if x.data_ptr() & 15 else x


def power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


class Places:
    """Where the rows stand, on the device: int32 [B, 4], start, first and end of the last columns, and a flag.

    Appends move the rows there, so that a replayed graph goes on where it was. The host knows the same as long as it
    launches the appends itself; after replays it asks.
    """

    __slots__ = ("columns", "device", "ends", "rows")

    def __init__(self, batch_size: int, device: torch.device) -> None:
        self.device = device
        self.rows = torch.zeros(batch_size, 4, dtype=torch.int32, device=device)
        self.ends: tuple[int, ...] = (0,) * batch_size
        self.columns: Any = None  # those that `rows` tells of

    def put(self, columns: Any) -> None:
        """Tell the device of columns that the host knows."""
        self.rows.copy_(self.of(columns))
        self.ends, self.columns = columns.ends, columns

    def place(self, ends: tuple[int, ...]) -> None:
        """Rows stand elsewhere now: after a trim, a row change, a reset or a load."""
        if ends != self.ends:
            self.rows.copy_(on_host([[end, end, end, 0] for end in ends]))
            self.ends = ends
        self.columns = None

    def find(self, columns: Any) -> torch.Tensor:
        """Places of columns, those that were stored last or others."""
        return self.rows if columns is self.columns else self.of(columns).to(self.device)

    def of(self, columns: Any) -> torch.Tensor:
        if max(columns.ends) > FARTHEST:
            raise ValueError(
                f"the triton backend counts {FARTHEST} positions at most, a row is at"
                f" {max(columns.ends)}; use backend='torch'"
            )
        starts, firsts, ends = columns[:3]
        return on_host([[*row, 0] for row in zip(starts, firsts, ends, strict=True)])

    def moved(self) -> tuple[tuple[int, ...], list[int]]:
        """How far replays have brought the rows beyond what the host knows, and which had no room left."""
        table = self.rows.tolist()
        full = [i for i, row in enumerate(table) if row[3]]
        if full:
            self.rows[:, 3] = 0
        ends = tuple(row[2] for row in table)
        moved = tuple(end - known for end, known in zip(ends, self.ends, strict=True))
        self.ends, self.columns = ends, None
        return moved, full


def on_host(table: list[list[int]]) -> torch.Tensor:
    """Numbers on their way to the device, which a graph would copy anew, and wrongly, at each replay."""
    if capturing():
        raise RuntimeError(
            "the rows' places would be copied inside a graph: run this step once outside before it"
            " is captured, with rows that are not padded"
        )
    return torch.tensor(table, dtype=torch.int32)


def capturing() -> bool:
    return not INTERPRETED and torch.cuda.is_current_stream_capturing()
