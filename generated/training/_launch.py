# Written by kvgen from training.kv and yours to keep: kvgen claims no right to it. Edit training.kv.
# kvgen: training.kv source 08947af253aa body e9543daa1efe codegen 1
"""How the Triton kernels of this package are launched: targets, places on the device, kernels resolved once."""

import copy
from collections.abc import Callable
from functools import partial
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
Launch = Callable[[tuple[Any, ...]], None]  # of a kernel's arguments, on some grid and stream
STEP_COLUMNS = 16  # appends of up to so many columns take one program a row, which moves the row's place itself


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
    """A kernel with its constants, found or compiled at the first launch."""

    __slots__ = ("_compiled", "_rest", "constants", "function", "on", "ready")

    def __init__(self, function: Any, **constants: Any) -> None:
        self.function, self.constants = function, constants
        # launchers take the constants too, and step over them
        self._rest = tuple(constants[name] for name in function.arg_names if name in constants)
        self._compiled: Any = None
        self.on: Any = None  # once it is compiled: see `launcher_of`
        self.ready = False  # whether addresses will do in place of tensors

    def __call__(self, grid: tuple[int, int, int], stream: int, *arguments: Any) -> None:
        """Launch it on tensors and numbers, without the constants."""
        beyond = AMD and any(map(beyond_buffers, arguments))
        if beyond or (self._compiled is None and not self._found(arguments)):
            self._compile(grid, arguments, beyond)
        elif listened():
            self._told(grid, stream, arguments + self._rest)
        else:
            self.on(*grid, stream)(arguments)

    def _told(self, grid: tuple[int, int, int], stream: int, arguments: tuple[Any, ...]) -> None:
        """Launch it as triton does, so that a profiler hears of it."""
        compiled = self._compiled
        told = compiled.launch_metadata(grid, stream, *arguments)
        hooks = HOOKS.launch_enter_hook, HOOKS.launch_exit_hook
        compiled.run(
            *grid, stream, compiled.function, compiled.packed_metadata, told, *hooks, *arguments
        )

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
        self._compiled, self.on = compiled, launcher_of(compiled, count, self._rest)
        self.ready = not AMD  # where it depends on a tensor's size


class Launches:
    """Kernels that a step launches one after another, each on its grid. Launched again on a stream, each is a call into C."""

    __slots__ = ("_again", "_pairs", "_stream")

    def __init__(self, *pairs: tuple[Kernel, tuple[int, int, int]]) -> None:
        self._pairs = pairs
        self._stream: int | None = None
        self._again: Any = None

    def on(self, stream: int) -> tuple[Callable[[torch.Tensor], Any], tuple[Launch, ...]]:
        """How tensors are handed over, as themselves or by address, and what launches each kernel, given its arguments."""
        if stream == self._stream and not listened():
            return self._again
        if listened() or not all(kernel.ready for kernel, _ in self._pairs):
            return itself, tuple(partial(_launch, *pair, stream) for pair in self._pairs)
        again = tuple(kernel.on(*grid, stream) for kernel, grid in self._pairs)
        self._stream, self._again = stream, (torch.Tensor.data_ptr, again)
        return self._again


def _launch(kernel: Kernel, grid: tuple[int, int, int], stream: int, arguments: Any) -> None:
    kernel(grid, stream, *arguments)


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


# Profilers add themselves to these; before triton 3.5 a hook was one function, or None.
ENTER = getattr(HOOKS.launch_enter_hook, "calls", None)
LEAVE = getattr(HOOKS.launch_exit_hook, "calls", None)


def listened() -> bool:
    """Whether a profiler hears of launches."""
    if ENTER is None:
        return bool(HOOKS.launch_enter_hook or HOOKS.launch_exit_hook)
    return bool(ENTER or LEAVE)


def launcher_of(compiled: Any, count: int, constants: tuple[Any, ...]) -> Callable[..., Launch]:
    """A function of grid x, y, z and stream that returns what launches a compiled kernel there, given `count` arguments.

    Triton's launcher, in Python, asks at each launch about scratch memory, which these kernels do not have, and then calls
    one C function. It is asked once what it would call, by marks in place of numbers; where it calls nothing like that,
    or calls it in another order, it is called itself.
    """
    run, told = compiled.run, (compiled.function, compiled.packed_metadata, None, None, None)
    marks = [object() for _ in range(4)]
    given = (*(object() for _ in range(count)), *constants)
    calls: list[Any] = []
    sizes = [getattr(run, f"{kind}_scratch_size", 0) for kind in ("global", "profile")]
    if hasattr(run, "launch") and not any(sizes):
        launcher = copy.copy(run)
        launcher.launch = lambda *call: calls.append(call)
        launcher(*marks, *told, *given)
    if len(calls) == 1 and list(calls[0][:4]) == marks:
        call = calls[0][4:]
        if call[-1] == given:  # handed over as one tuple
            return _launcher(run.launch, *_without_constants(call[:-1], constants, count))
        if call[-len(given) :] == given:
            return _flat_launcher(run.launch, call[: -len(given)], constants)
    return _flat_launcher(run, told, constants)


def _launcher(launch: Any, middle: Any, constants: tuple[Any, ...]) -> Callable[..., Launch]:
    def on(*grid_and_stream: int) -> Launch:
        bound = partial(launch, *grid_and_stream, *middle)
        return (lambda given: bound(given + constants)) if constants else bound

    return on


def _flat_launcher(launch: Any, middle: Any, constants: tuple[Any, ...]) -> Callable[..., Launch]:
    def on(*grid_and_stream: int) -> Launch:
        bound = partial(launch, *grid_and_stream, *middle)
        return lambda given: bound(*given, *constants)

    return on


def _without_constants(middle: Any, constants: tuple[Any, ...], count: int) -> tuple[Any, Any]:
    """Launchers step over constants by a list of what each argument is. They come last, so where it is cut short nobody has to."""
    *first, kinds, numbers = middle
    if isinstance(kinds, list) and len(kinds) == count + len(constants) and len(numbers) == count:
        return (*first, kinds[:count], numbers), ()
    return middle, constants


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


def capturing() -> bool:
    return not INTERPRETED and torch.cuda.is_current_stream_capturing()
