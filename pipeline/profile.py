"""Where the time goes: seconds by phase, adding up to the wall."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# What is timed, and last what is left of the wall.
PHASES = ("env_step", "transfer", "rollout_forward", "advantage", "minibatch_update", "logging", "other")


class Clock:
    """Adds up the seconds of each phase. On a GPU a phase ends when the device has done its work.

    Args:
        device: the device whose work is timed.
        elapsed: seconds by phase of the training that this one goes on from.
    """

    def __init__(self, device: "torch.device", elapsed: dict[str, float] | None = None) -> None:
        self._seconds = {name: (elapsed or {}).get(name, 0.0) for name in PHASES[:-1]}
        self._elapsed = (elapsed or {}).get("wall", 0.0)
        self._within = 0.0  # seconds of the phases within the present one
        self._finish: Callable[[], None] = lambda: None
        if device.type == "cuda":
            import torch  # the report reads the phases' names, and needs none of torch

            self._finish = torch.cuda.synchronize
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
            self._finish()
            seconds = time.perf_counter() - begun
            self._seconds[name] += seconds - self._within
            self._within = outer + seconds

    def present(self) -> float:
        """Seconds since the present phase began."""
        return time.perf_counter() - self._present

    def attribute(self, name: str, seconds: float) -> None:
        """Counts seconds of the present phase as those of phase `name`."""
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
