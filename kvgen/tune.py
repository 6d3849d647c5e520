"""Measure choices for the Triton kernels of a policy on a device, and keep the best: `kvgen tune`.

A choice is moved one number at a time from what would be planned, as long as a move pays; a move has to win by more than
a clock's noise. What runs and how long it takes is a `Device`'s to say, so that tests bring their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kvgen.backends import triton_choices as choices
from kvgen.backends.triton_choices import Choice
from kvgen.ir import CachePolicy
from kvgen.tuned import Entry, Table

GAIN = 0.02  # a choice has to be faster by this share: clocks are not better
ROUNDS = 3  # through the numbers of a kernel


class Device(Protocol):
    """Where kernels are measured. `name` as people know it, `target` as plans do."""

    name: str
    target: str
    torch: str
    triton: str

    def microseconds(self, policy: CachePolicy, kernel: str, choice: Choice) -> float | None:
        """How long a step takes whose `kernel` is made for a choice; None where that cannot run."""
        ...


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement, for whoever waits. `microseconds` None: it cannot run."""

    policy: str
    kernel: str
    target: str
    choice: Choice
    microseconds: float | None

    def __str__(self) -> str:
        numbers = zip(choices.NUMBERS[self.kernel], self.choice, strict=True)
        text = ", ".join(f"{name} {value}" for name, value in numbers)
        time = "does not run" if self.microseconds is None else f"{self.microseconds:.3g} us"
        return f"{self.policy} {self.kernel} {self.target}: {text}: {time}"


class UnmeasurableError(Exception):
    """What would be planned cannot run on the device."""


Progress = Callable[[Trial], None]


def tune(policy: CachePolicy, device: Device, progress: Progress = lambda trial: None) -> Table:
    """An entry for every kernel of a policy that has something to choose."""
    return tuple(_tune(policy, kernel, device, progress) for kernel in choices.kernels(policy))


def _tune(policy: CachePolicy, kernel: str, device: Device, progress: Progress) -> Entry:
    known: dict[Choice, float | None] = {}

    def measure(choice: Choice) -> float | None:
        if choice not in known:
            known[choice] = device.microseconds(policy, kernel, choice)
            progress(Trial(policy.name, kernel, device.target, choice, known[choice]))
        return known[choice]

    planned = choices.planned(policy, device.target, kernel)
    before = measure(planned)
    if before is None:
        raise UnmeasurableError(
            f"{policy.name}: {kernel} does not run on {device.name} as it is planned for {device.target};"
            " `kvgen audit` says what it needs"
        )
    best, time = planned, before
    for _ in range(ROUNDS):
        found = _moved(policy, device.target, kernel, (best, time), measure)
        if found[0] == best:
            break
        best, time = found
    versions = device.name, device.torch, device.triton
    times = _rounded(time), _rounded(before)
    return Entry(policy.name, device.target, kernel, best, *times, *versions)


def _moved(
    policy: CachePolicy,
    target: str,
    kernel: str,
    start: tuple[Choice, float],
    measure: Callable[[Choice], float | None],
) -> tuple[Choice, float]:
    """The best choice after each number was moved in its turn, from where the ones before it ended."""
    best, time = start
    for name in choices.NUMBERS[kernel]:
        for moved, choice in tuple(choices.neighbours(policy, target, kernel, best)):
            if moved != name:
                continue
            tried = measure(choice)
            if tried is not None and tried < time * (1 - GAIN):
                best, time = choice, tried
    return best, time


def _rounded(microseconds: float) -> float:
    """Three digits: more are noise, and would change the table each time."""
    return float(f"{microseconds:.3g}")
