"""Numbers of the device on the host, without a stop of the device."""

import torch
from torch import Tensor


class Readback:
    """Copies some tensors to the host after each iteration; the copies of the last two iterations can be read.

    On a GPU they go to pinned memory behind the iteration's launches, and reading waits for the copies alone.
    """

    def __init__(self, *sources: Tensor) -> None:
        self._sources = sources
        device = sources[0].device
        pinned = device.type == "cuda"
        self._copies = [[torch.empty_like(each, device="cpu", pin_memory=pinned) for each in sources] for _ in range(2)]
        self._arrived = [torch.cuda.Event() for _ in range(2)] if pinned else []

    def send(self, iteration: int) -> None:
        """Behind what the device was given so far."""
        for copy, source in zip(self._copies[iteration % 2], self._sources, strict=True):
            copy.copy_(source, non_blocking=True)
        if self._arrived:
            self._arrived[iteration % 2].record()

    def receive(self, iteration: int) -> list[list[float]]:
        """What was sent after an iteration: the last one sent, or the one before it."""
        if self._arrived:
            self._arrived[iteration % 2].synchronize()
        return [copy.tolist() for copy in self._copies[iteration % 2]]
