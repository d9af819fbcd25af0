"""At what precision a policy's matrix products run. Its answers, and all that is made of them, are float32."""

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.errors import UserError
from pipeline.policy import Policy


def at(policy: Policy, matmul: str, device: torch.device) -> Policy:
    """The policy with its matrix products in float32, tf32 (CUDA's: factors of 10 bits, sums in float32) or bf16.

    UserError: tf32 on a CPU.
    """
    if matmul == "tf32" and device.type != "cuda":
        raise UserError(f"device.matmul: wanted float32 or bf16 on {device.type}; got 'tf32', which only CUDA has")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = matmul == "tf32"
    return Bfloat16(policy, device) if matmul == "bf16" else policy


class Bfloat16:
    """A policy run under torch's autocast: products of bfloat16 factors, summed in float32.

    `pipeline.policy.Head`, the last layer of the standard policy, stays in float32.
    """

    def __init__(self, policy: Policy, device: torch.device) -> None:
        self._policy, self._device = policy, device.type

    def distribution(self, observation: Tensor) -> Tensor:
        return self._cast(self._policy.distribution, observation)

    def value(self, observation: Tensor) -> Tensor:
        return self._cast(self._policy.value, observation)

    def _cast(self, answer: Callable[[Tensor], Tensor], observation: Tensor) -> Tensor:
        with torch.autocast(self._device, torch.bfloat16, cache_enabled=False):  # a cache outlives a captured call
            return answer(observation).float()
