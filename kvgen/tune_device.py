"""Run a policy's emitted kernels with other numbers and time them: on a GPU, or in triton's interpreter to try `kvgen tune`."""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kvgen import model
from kvgen.backends import triton_choices as choices
from kvgen.backends import triton_tiles as tiles
from kvgen.backends.triton_choices import Choice
from kvgen.errors import FileProblem
from kvgen.ir import CachePolicy, Fixed, Program, Ring, Stateless
from kvgen.jobs import kernels_of, untyped
from kvgen.loading import load_text
from kvgen.naming import names

UNLIMITED_TOKENS = 16_384  # held by a policy that sees everything, when its decode step is timed
WINDOW_COLUMNS = 2_048
INTERPRETED_TOKENS = 64  # in the interpreter instead of both
WARM_UP, REPEATS = 3, 15
L2_BYTES = 256 << 20  # more than any L2: what was read before is not in it
TOLERANCE = 5e-2  # of float16 and bfloat16, against the planned kernel; of the largest answer

Clock = Callable[[Callable[[], Any]], float]


def open_device(name: str, program: Program, rows: int) -> Measured:
    """The device of a name as torch knows it. FileProblem, with what is missing, where kernels cannot run."""
    torch = untyped("torch")
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if interpreted:
        return Measured(program, "cpu", "interpreter", _processor(), interpreted_microseconds, rows)
    if not torch.cuda.is_available():
        raise FileProblem(
            f"kvgen tune measures on an NVIDIA or AMD GPU, and torch {torch.__version__} finds none here: run it"
            " on the machine that will serve, and keep the table it writes beside the policy; without one"
            " everything is planned (TRITON_INTERPRET=1 tries the command without a GPU, to no use)"
        )
    try:
        index = torch.device(name).index or 0
        torch.cuda.set_device(index)
    except (RuntimeError, ValueError) as error:
        raise FileProblem(f"--device {name}: {str(error).splitlines()[0]}") from error
    launch = importlib.import_module(f"{_package(program).__name__}._launch")
    target = launch.target_of(torch.device("cuda", index))
    title = torch.cuda.get_device_name(index)
    return Measured(program, f"cuda:{index}", target, title, gpu_microseconds, rows)


def _package(program: Program) -> ModuleType:
    return load_text(program.formatted, program.stem)


def _processor() -> str:
    return f"triton's interpreter on {platform.machine()}"


class Measured:
    """A device with the package whose kernels are tried on it. `rows`: of the batch."""

    def __init__(
        self, program: Program, device: str, target: str, name: str, clock: Clock, rows: int
    ) -> None:
        self.device, self.target, self.name = device, target, name
        self.torch = str(untyped("torch").__version__)
        self.triton = str(untyped("triton").__version__)
        self._package, self._clock, self._rows = _package(program), clock, rows
        self._answers: dict[tuple[str, str], Any] = {}

    def microseconds(self, policy: CachePolicy, kernel: str, choice: Choice) -> float | None:
        kernels = kernels_of(self._package, policy)
        before = kernels.plans
        kernels.plans = {**before, **self._plan(kernels, policy, kernel, choice)}
        try:
            call = self._call(policy, kernel)
            if not self._right(policy.name, kernel, call()):
                return None
            return self._clock(call)
        except (RuntimeError, untyped("triton.errors").TritonError) as error:
            if isinstance(
                error, untyped("torch").OutOfMemoryError | untyped("torch").AcceleratorError
            ):
                raise  # a fault of the device, not of the choice
            return None  # it asks for more than the target has, or its compiler gives up
        finally:
            kernels.plans = before

    def _plan(
        self, kernels: Any, policy: CachePolicy, kernel: str, choice: Choice
    ) -> dict[Any, Any]:
        """The row of the emitted table with one of its plans made for the choice."""
        size = policy.dtype.bytes
        key = self.target, size
        at = choices.kernels(policy).index(kernel)
        row = list(kernels.plans[key])
        if kernel == "decode":
            plan = tiles.decode_plan(policy, choices.TARGETS[self.target], size, choice)
            row[at] = type(row[at])(
                plan.rows, plan.keys, plan.warps, plan.stages, plan.splits, plan.split
            )
        else:
            row[at] = type(row[at])(*choice)
        return {key: tuple(row)}

    def _right(self, policy: str, kernel: str, answers: Any) -> bool:
        """Whether a choice answers as the first one did, which is what would be planned."""
        wanted = self._answers.setdefault((policy, kernel), answers)
        return all(
            bool(
                (one.float() - other.float()).abs().max()
                <= TOLERANCE * max(1.0, other.float().abs().max())
            )
            for one, other in zip(answers, wanted, strict=True)
        )

    # -- what is timed

    def _call(self, policy: CachePolicy, kernel: str) -> Callable[[], Any]:
        torch = untyped("torch")
        torch.manual_seed(0)
        held, columns = self._step(policy, kernel)
        make = getattr(self._package, names(policy.name)["cache"])
        room = {"capacity": held + columns} if policy.storage == Fixed(None) else {}
        cache = make(self._rows, device=self.device, backend="triton", **room)
        k, v, q = self._new(policy, columns)
        logits = self._logits(policy)
        if isinstance(policy.storage, Stateless):
            return _trained(cache, k, v, q, logits, backward=kernel != "window")
        cache.append_window(*self._new(policy, held)[:2])
        read = cache.append_decode(k, v) if kernel == "decode" else cache.append_window(k, v)
        return lambda: (read.attend(q, sink_logits=logits),)

    def _step(self, policy: CachePolicy, kernel: str) -> tuple[int, int]:
        """Tokens held before the step that is timed, a full ring where there is one; columns of the step."""
        interpreted = self.target == "interpreter"
        columns = INTERPRETED_TOKENS if interpreted else WINDOW_COLUMNS
        held = INTERPRETED_TOKENS if interpreted else UNLIMITED_TOKENS
        columns = 1 if kernel == "decode" else columns
        slots = model.capacity(policy)
        if slots is None:
            return held, columns
        if isinstance(policy.storage, Ring):
            return slots, columns
        columns = min(columns, slots)
        return min(held, slots - columns), columns

    def _new(self, policy: CachePolicy, columns: int) -> tuple[Any, Any, Any]:
        """k, v and q of so many columns, [B, H, L, D], columns before heads in memory, as models make them."""
        torch, heads = untyped("torch"), policy.heads
        shapes = (
            (heads.kv, heads.key_dim),
            (heads.kv, heads.value_dim),
            (heads.query, heads.key_dim),
        )
        dtype = getattr(torch, policy.dtype.torch_name)
        k, v, q = (
            torch.randn(self._rows, columns, h, dim, device=self.device).to(dtype).transpose(1, 2)
            for h, dim in shapes
        )
        return k, v, q

    def _logits(self, policy: CachePolicy) -> Any:
        if not policy.scores.sink_logits:
            return None
        return untyped("torch").zeros(policy.heads.query, device=self.device)


def _trained(cache: Any, k: Any, v: Any, q: Any, logits: Any, backward: bool) -> Callable[[], Any]:
    if not backward:
        return lambda: (cache.append_window(k, v).attend(q, sink_logits=logits),)
    torch = untyped("torch")
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = cache.append_window(k, v).attend(q, sink_logits=logits)
    towards = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, leaves, towards, retain_graph=True)


# -- clocks


def gpu_microseconds(call: Callable[[], Any]) -> float:
    """The median of some calls, by the GPU's own clock, nothing of what they read in its caches."""
    torch = untyped("torch")
    other = torch.empty(L2_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(WARM_UP):
        call()
    spans = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
    for begin, end in spans:
        other.zero_()
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in spans) * 1e3


def interpreted_microseconds(call: Callable[[], Any]) -> float:
    """The interpreter's own time, which says nothing of a GPU."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6
