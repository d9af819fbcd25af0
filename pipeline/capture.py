"""An iteration as one CUDA graph: captured once, then replayed by a single launch.

What is captured is what the device is asked to do, never what the host computes meanwhile. So in the captured work no
tensor is read on the host, no shape follows from data, nothing is copied from memory that the host pages, and whatever
changes from iteration to iteration lies in an array: tests/device/test_graph.py traces it all. The fast path allocates
nothing there; what autograd allocates on the general path comes from the graph's own pool, which keeps its addresses
from replay to replay.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from pipeline.fused import Fused
from pipeline.general import General
from pipeline.hosted import Hosted
from pipeline.rollout import Rollout

Work = Callable[[], None]
WARM_UP = 2  # runs before the capture, in which libraries load and kernels are compiled: neither can be captured


class Graphs(Protocol):
    """What a capture asks of a device."""

    def warm_up(self, work: Work) -> None:
        """Runs `work` where it will be captured."""

    def capture(self, work: Work) -> Work:
        """Records the launches of `work`, none of which runs; returns what runs them all."""


class CudaGraphs:
    """torch's CUDA graphs, on a stream of their own."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def warm_up(self, work: Work) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream().wait_stream(self._stream)

    def capture(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            work()
        replay: Work = graph.replay
        return replay


def captured(work: Work, state: Sequence[Tensor], graphs: Graphs) -> Work:
    """`work` as a graph; what the warm-up changed in `state` is as it was before."""
    kept = [tensor.clone() for tensor in state]
    for _ in range(WARM_UP):
        graphs.warm_up(work)
    replay = graphs.capture(work)
    for tensor, before in zip(state, kept, strict=True):
        tensor.copy_(before)
    return replay


class _Launched:
    """Has a path's launches go to the device as they come: what records them there is a graph of all."""

    def prepared(self, work: Work) -> Work:
        return work

    def playing(self, work: Work) -> Work:
        return work


class CapturedFused(_Launched, Fused):
    """The fast path, an iteration a graph."""

    def whole(self, work: Work, state: Sequence[Tensor]) -> Work:
        return captured(work, [*state, self._flat.parameters], CudaGraphs())


class CapturedGeneral(_Launched, General):
    """The general path, an iteration a graph.

    The module's buffers are put back after the warm-up too. It must not draw random numbers of torch's.
    """

    def whole(self, work: Work, state: Sequence[Tensor]) -> Work:
        return captured(work, [*state, self._flat.parameters, *self._flat.buffers], CudaGraphs())

    def final_values(self, rollout: Rollout) -> None:
        """Of every row, since which ones a time limit cut is known to the device alone; GAE reads no others."""
        values = self.network.value(rollout.final_observations.flatten(0, 1))
        rollout.final_values.copy_(values.view_as(rollout.final_values))


class LaunchedHosted(_Launched, Hosted):
    """The fast path where the host steps the environments: nothing is captured, since the host has its part in it."""
