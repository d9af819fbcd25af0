"""The standard MLP policy as the fast path's kernels have it (kernels/mlp.py): its shapes, and its answers."""

import torch
from torch import Tensor

from envs.spec import EnvSpec
from kernels.mlp import MAX_DEPTH, MAX_WIDTH, MIN_WIDTH, MLP
from pipeline.config import PolicyConfig
from pipeline.policy import LOG_STD_RANGE, ActorCritic, FlatParameters

# The paths' names in the log and the manifest: on native environments, and on those that the host steps.
FUSED, HOSTED = "fused", "hosted"


def misfit(config: PolicyConfig, device: torch.device) -> str | None:
    """Why the fast path cannot run a policy; None where it can."""
    if device.type not in ("cpu", "cuda"):
        return f"device {device.type}"
    if len(config.hidden) > MAX_DEPTH:
        return f"{len(config.hidden)} hidden layers (at most {MAX_DEPTH})"
    if not all(MIN_WIDTH <= width <= MAX_WIDTH for width in config.hidden):
        return f"hidden layers of {list(config.hidden)} ({MIN_WIDTH} to {MAX_WIDTH} wide)"
    return None


def shapes(policy: ActorCritic, flat: FlatParameters, spec: EnvSpec, config: PolicyConfig) -> MLP:
    """What the kernels are compiled for."""
    extra = () if policy.log_std is None else (policy.log_std,)
    pieces = (*(layer.weight for layer in policy.layers()), *extra)
    return MLP(
        observation=spec.observation_size,
        hidden=config.hidden,
        relu=config.activation == "relu",
        shared=config.shared,
        offsets=tuple(flat.places[piece] for piece in pieces),
        actions=spec.actions,
        discrete=spec.discrete,
        log_std_range=LOG_STD_RANGE,
    )


class FusedPolicy:
    """The policy in the flat buffer, its answers by the fast path's kernels: same bits on every machine."""

    def __init__(self, mlp: MLP, flat: FlatParameters) -> None:
        self._mlp, self._flat = mlp, flat
        packed, _, self._width = mlp.sizes
        self._packed = flat.parameters.new_zeros(packed)

    def distribution(self, observation: Tensor) -> Tensor:
        """(B, D) to (B, A) logits, or (B, 2A) means and log standard deviations."""
        parameters = observation.new_empty(len(observation), self._width)
        self._mlp.pack(self._flat.parameters, self._packed)
        self._mlp.distribution(self._packed, observation, parameters)
        return parameters

    def value(self, observation: Tensor) -> Tensor:
        """(B, D) to (B,)."""
        value = observation.new_empty(len(observation))
        self._mlp.pack(self._flat.parameters, self._packed)
        self._mlp.values(self._packed, observation, value)
        return value
