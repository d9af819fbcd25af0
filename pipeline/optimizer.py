"""Adam over the flat buffer, behind clipping by the global norm."""

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.adam import BETA1, BETA2, adam
from kernels.global_norm import CLIP_SCALE, SQUARES
from kernels.launcher import partitions
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
        self._schedules = flat.parameters.new_empty(steps, 3)
        self.norms, self._scale = flat.parameters.new_empty(steps), flat.parameters.new_empty(1)
        self.squares = flat.parameters.new_empty(partitions(len(flat.parameters)))

    def begin(self, learning_rate: float) -> None:
        """Prepares the steps of an iteration."""
        power1, power2 = self._powers.tolist()
        schedules = []
        for _ in range(len(self._schedules)):
            power1, power2 = power1 * BETA1, power2 * BETA2
            schedules.append((learning_rate, 1.0 - power1, 1.0 - power2))
        self._powers[0], self._powers[1] = power1, power2
        self._schedules.copy_(torch.tensor(schedules))

    def step(self, number: int = 0) -> None:
        """Step `number` of the iteration, on the gradient that lies in the flat buffer."""
        SQUARES(self._flat.gradients, self.squares)
        self.step_clipped(number)

    def step_clipped(self, number: int) -> None:
        """Likewise, where `squares` holds the sums of the gradient's squares already."""
        CLIP_SCALE(self.squares, self.norms[number : number + 1], self._scale, self._max_grad_norm)
        moments = (self._first, self._second)
        adam(self._flat.parameters, self._flat.gradients, self._scale, *moments, self._schedules[number])

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on, by reference: the moments (n,) float32, the powers (2,) float64."""
        return {"first_moment": self._first, "second_moment": self._second, "powers": self._powers}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""
        for name, own in self.state().items():
            own.copy_(tensors[name])
