"""Where the time goes: seconds by phase, adding up to the wall.

The host takes its own time. A device that is given its work ahead tells itself when it begins a phase.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# What is timed, and last what is left of the wall.
PHASES = ("env_step", "transfer", "rollout_forward", "advantage", "minibatch_update", "logging", "other")


class Clock:
    """Adds up the seconds of each phase, by the host's clock.

    Args:
        device: whose work is timed; its work is done when the host goes on.
        elapsed: seconds by phase of the training that this one goes on from.
    """

    def __init__(self, device: "torch.device", elapsed: dict[str, float] | None = None) -> None:
        self.device = device
        self._seconds = {name: (elapsed or {}).get(name, 0.0) for name in PHASES[:-1]}
        self._elapsed = (elapsed or {}).get("wall", 0.0)
        self._within = 0.0  # seconds of the phases within the present one
        self.begin()

    def begin(self) -> None:
        """The wall runs from here: what was prepared before (compiling, recording) is not part of it."""
        self._begun = time.perf_counter() - self._elapsed

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a block as part of phase `name`; what a phase within it takes is not counted twice."""
        begun, outer, self._within = time.perf_counter(), self._within, 0.0
        self._present = begun
        try:
            yield
        finally:
            seconds = time.perf_counter() - begun
            self._seconds[name] += seconds - self._within
            self._within = outer + seconds

    def attribute(self, name: str, shares: "Tensor") -> None:
        """Counts a share of the present phase as phase `name`'s: the sums of shares, (S, 2), are the two's."""
        present = time.perf_counter() - self._present
        own, other = map(sum, zip(*shares.tolist(), strict=True))
        seconds = present * other / (own + other or 1)  # a processor without a counter: 0
        self._seconds[name] += seconds
        self._within += seconds

    @property
    def wall(self) -> float:
        """Seconds since the training began, interruptions not counted."""
        return time.perf_counter() - self._begun

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, what is in none of them as `other`, and their sum as `wall`."""
        wall = self.wall
        return self._seconds | {"other": wall - sum(self._seconds.values()), "wall": wall}


class DeviceClock(Clock):
    """As `Clock`, by the clock of a device that the host only gives its work to.

    A launch between two phases counts the time since the last such launch, in a captured iteration too, and the host
    reads the sums when they are asked for. What the device waits for the host is `logging`.
    """

    def __init__(self, device: "torch.device", elapsed: dict[str, float] | None = None) -> None:
        import torch  # the report reads the phases' names, and needs none of torch

        from kernels.stopwatch import stopwatch

        self._stopwatch = stopwatch
        self._spent = torch.zeros(len(PHASES) - 1, dtype=torch.int64, device=device)
        self._last = torch.zeros(1, dtype=torch.int64, device=device)
        self._undivided = torch.tensor([[1, 0]], device=device)
        self._open = ["logging"]
        super().__init__(device, elapsed)

    def begin(self) -> None:
        super().begin()
        self._count("logging", "logging", self._undivided)
        self._spent.zero_()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._count(self._open[-1], self._open[-1], self._undivided)
        self._open.append(name)
        try:
            yield
        finally:
            self._count(name, name, self._undivided)
            self._open.pop()

    def attribute(self, name: str, shares: "Tensor") -> None:
        self._count(self._open[-1], name, shares)

    def _count(self, phase: str, other: str, shares: "Tensor") -> None:
        self._stopwatch(shares, self._spent, self._last, PHASES.index(phase), PHASES.index(other))

    def seconds(self) -> dict[str, float]:
        spent = {name: 1e-9 * count for name, count in zip(PHASES, self._spent.tolist(), strict=False)}
        wall = self.wall
        seconds = {name: before + spent[name] for name, before in self._seconds.items()}
        return seconds | {"other": wall - sum(seconds.values()), "wall": wall}


def clock_of(device: "torch.device", elapsed: dict[str, float] | None = None) -> Clock:
    """The clock of a training on a device, which goes on from `elapsed`."""
    return Clock(device, elapsed) if device.type == "cpu" else DeviceClock(device, elapsed)
