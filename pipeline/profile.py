"""Where the time goes: seconds by phase, adding up to the wall."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

PHASES = ("env_step", "transfer", "rollout_forward", "advantage", "minibatch_update", "logging")


class Clock:
    """Adds up the seconds of each phase. On a GPU a phase ends when the device has done its work.

    Args:
        device: the device whose work is timed.
        elapsed: seconds by phase of the training that this one goes on from.
    """

    def __init__(self, device: torch.device, elapsed: dict[str, float] | None = None) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0) | {name: (elapsed or {}).get(name, 0.0) for name in PHASES}
        self._begun = time.perf_counter() - (elapsed or {}).get("wall", 0.0)
        self._finish: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None

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
