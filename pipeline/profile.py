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
        self._begun = time.perf_counter() - (elapsed or {}).get("wall", 0.0)
        self._finish: Callable[[], None] = lambda: None
        if device.type == "cuda":
            import torch  # the report reads the phases' names, and needs none of torch

            self._finish = torch.cuda.synchronize

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Times a block as part of phase `name`; phases do not nest."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._finish()
            self._seconds[name] += time.perf_counter() - begun

    @property
    def wall(self) -> float:
        """Seconds since the training began, interruptions not counted."""
        return time.perf_counter() - self._begun

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, what is in none of them as `other`, and their sum as `wall`."""
        wall = self.wall
        return self._seconds | {"other": wall - sum(self._seconds.values()), "wall": wall}
