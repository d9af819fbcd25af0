"""The optimizers over the flat buffer, behind clipping by the global norm: Adam, and Muon with Adam beside it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from kernels.adam import BETA1, BETA2, adam
from kernels.global_norm import CLIP_SCALE, SQUARES
from kernels.launcher import partitions
from kernels.muon import muon, scratch_size
from pipeline.policy import FlatParameters


class Adam:
    """Steps the flat parameters by their flat gradient.

    What changes from step to step lies in arrays, so that the steps of an iteration can be recorded.

    Args:
        steps: K, of one iteration.

    Attributes:
        norms: (K,) float32, the global norms of the iteration's gradients before clipping.
    """

    def __init__(self, flat: FlatParameters, max_grad_norm: float, steps: int = 1) -> None:
        self._flat = flat
        self._max_grad_norm = max_grad_norm
        self._first, self._second = torch.zeros_like(flat.parameters), torch.zeros_like(flat.parameters)
        # beta1^t and beta2^t as running products, which round alike on every machine.
        self._powers = torch.ones(2, dtype=torch.float64)
        self._products = self._powers.numpy()  # the same memory, the host's
        self._running, self._prepared = np.ones((steps, 2)), np.empty((steps, 3))
        self._schedules = flat.parameters.new_tensor([[0.0, 1.0, 1.0]] * steps)  # until `begin`: steps of no length
        # Where a device copies from while the host goes on; two, since the last iteration's may not have been read yet.
        pinned = flat.parameters.device.type == "cuda"
        self._sent = [torch.empty(steps, 3, pin_memory=pinned) for _ in range(2)]
        self.norms, self._scale = flat.parameters.new_empty(steps), flat.parameters.new_empty(1)
        self.squares = flat.parameters.new_empty(partitions(len(flat.parameters)))

    def begin(self, learning_rate: float) -> None:
        """Prepares the steps of an iteration; all of them are counted, if `end` does not tell otherwise."""
        self._running[0] = self._products * (BETA1, BETA2)
        self._running[1:] = (BETA1, BETA2)
        np.multiply.accumulate(self._running, out=self._running)
        self._products[:] = self._running[-1]
        self._prepared[:, 0], self._prepared[:, 1:] = learning_rate, 1.0 - self._running
        self._sent.reverse()
        self._sent[0].copy_(torch.from_numpy(self._prepared))
        self._schedules.copy_(self._sent[0], non_blocking=True)

    def end(self, steps: int) -> None:
        """Tells how many of the iteration's steps were taken, from its first on, where they were not all."""
        if steps < len(self._running):
            self._products[:] = self._running[steps - 1]

    def step(self, number: int = 0) -> None:
        """Step `number` of the iteration, on the gradient that lies in the flat buffer."""
        SQUARES(self._flat.gradients, self.squares)
        self.step_clipped(number)

    def step_clipped(self, number: int) -> None:
        """Likewise, where `squares` holds the sums of the gradient's squares already."""
        CLIP_SCALE(self.squares, self.norms[number : number + 1], self._scale, self._max_grad_norm)
        self._move(self._schedules[number])

    def _move(self, schedule: Tensor) -> None:
        self._adam(slice(None), schedule)

    def _adam(self, piece: slice, schedule: Tensor) -> None:
        parameters, gradients = self._flat.parameters[piece], self._flat.gradients[piece]
        adam(parameters, gradients, self._scale, self._first[piece], self._second[piece], schedule)

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on, by reference: the moments (n,) float32, the powers (2,) float64."""
        return {"first_moment": self._first, "second_moment": self._second, "powers": self._powers}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""
        for name, own in self.state().items():
            own.copy_(tensors[name])


class Muon(Adam):
    """Steps some matrices by Muon and everything else by Adam, both with the same learning rate.

    A matrix's momentum lies in the first moment; its second moment stays zero.

    Args:
        matrices: weights of linear layers, in the flat buffer.
    """

    def __init__(self, flat: FlatParameters, matrices: Sequence[Tensor], max_grad_norm: float, steps: int = 1) -> None:
        super().__init__(flat, max_grad_norm, steps)
        offsets: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._others: list[slice] = []  # what lies between the matrices
        end = 0
        for matrix in sorted(matrices, key=lambda matrix: flat.places[matrix]):
            outputs, inputs = matrix.shape
            begin = flat.places[matrix]
            offsets[inputs, outputs].append(begin)
            self._others.append(slice(end, begin))
            end = begin + matrix.numel()
        self._others.append(slice(end, None))
        new = flat.parameters.new_empty
        self._offsets = {shape: new(len(o), dtype=torch.int32).copy_(torch.tensor(o)) for shape, o in offsets.items()}
        self._scratch = {shape: new(len(o), scratch_size(*shape)) for shape, o in offsets.items()}

    def _move(self, schedule: Tensor) -> None:
        for piece in self._others:
            self._adam(piece, schedule)
        arrays = (self._flat.parameters, self._flat.gradients, self._scale, self._first)
        for (inputs, outputs), offsets in self._offsets.items():
            muon(*arrays, offsets, self._scratch[inputs, outputs], schedule, inputs=inputs, outputs=outputs)
