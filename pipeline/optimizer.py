"""Adam over the flat buffer, behind clipping by the global norm."""

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.adam import BETA1, BETA2, adam
from kernels.global_norm import global_norm
from pipeline.policy import FlatParameters


class Adam:
    """Steps the flat parameters by their flat gradient.

    Attributes:
        norm: (1,) float32, the last gradient's global norm before clipping.
    """

    def __init__(self, flat: FlatParameters, max_grad_norm: float) -> None:
        self._flat = flat
        self._max_grad_norm = max_grad_norm
        self._first, self._second = torch.zeros_like(flat.parameters), torch.zeros_like(flat.parameters)
        # beta1^t and beta2^t as running products, which round alike on every machine.
        self._powers = torch.ones(2, dtype=torch.float64)
        self._schedule = flat.parameters.new_empty(3)
        self.norm, self._scale = flat.parameters.new_empty(1), flat.parameters.new_empty(1)

    def step(self, learning_rate: float) -> None:
        """One step on the gradient that lies in the flat buffer, which is zeroed for the next one."""
        self._powers *= torch.tensor([BETA1, BETA2], dtype=torch.float64)
        power1, power2 = self._powers.tolist()
        self._schedule.copy_(torch.tensor([learning_rate, 1.0 - power1, 1.0 - power2]))
        global_norm(self._flat.gradients, self.norm, self._scale, self._max_grad_norm)
        moments = (self._first, self._second)
        adam(self._flat.parameters, self._flat.gradients, self._scale, *moments, self._schedule)
        self._flat.gradients.zero_()

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on, by reference: the moments (n,) float32, the powers (2,) float64."""
        return {"first_moment": self._first, "second_moment": self._second, "powers": self._powers}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""
        for name, own in self.state().items():
            own.copy_(tensors[name])
