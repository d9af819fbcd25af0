"""The policy: an MLP actor and critic whose parameters are views of one flat buffer.

Any torch module with the same two methods trains as well: `distribution(observation)` gives the parameters of the
action distribution, `value(observation)` the critic's estimate.
"""

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from envs.spec import Box, EnvSpec
from kernels.orthogonal import orthogonal
from kernels.sample import sample_categorical, sample_gaussian, sample_several
from pipeline.config import PolicyConfig

CACHE_LINE = 16  # float32 elements: each layer begins on one
LOG_STD_RANGE = (-5, 2)  # an unbounded deviation ends in NaN
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Policy(Protocol):
    """What the trainer asks of a policy."""

    def distribution(self, observation: Tensor) -> Tensor:
        """(B, D) to (B, A) logits, or (B, 2A) means and log standard deviations."""

    def value(self, observation: Tensor) -> Tensor:
        """(B, D) to (B,)."""


class Head(nn.Linear):
    """An output layer: in float32, also where autocast runs the layers before it in less."""

    def forward(self, input: Tensor) -> Tensor:
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float())


class ActorCritic(nn.Module):
    """Actor and critic, two MLPs or two heads of one; continuous actions have one log standard deviation each."""

    def __init__(self, spec: EnvSpec, config: PolicyConfig) -> None:
        super().__init__()
        outputs = sum(spec.actions) if isinstance(spec.actions, tuple) else spec.actions
        inputs = spec.observation_size
        before, after = (_hidden, _nothing) if config.shared else (_nothing, _hidden)
        self.trunk = nn.Sequential(*before(inputs, config))
        self.actor = nn.Sequential(*after(inputs, config), Head(config.hidden[-1], outputs))
        self.critic = nn.Sequential(*after(inputs, config), Head(config.hidden[-1], 1))
        continuous = isinstance(spec.action, Box)
        self.log_std = nn.Parameter(torch.full((outputs,), config.log_std_init)) if continuous else None

    def distribution(self, observation: Tensor) -> Tensor:
        """(B, D) to (B, A) logits, or (B, 2A) means and log standard deviations."""
        output: Tensor = self.actor(self.trunk(observation))
        if self.log_std is None:
            return output
        return torch.cat([output, self.log_std.clamp(*LOG_STD_RANGE).expand_as(output)], dim=-1)

    def value(self, observation: Tensor) -> Tensor:
        """(B, D) to (B,)."""
        output: Tensor = self.critic(self.trunk(observation))
        return output.squeeze(-1)

    def layers(self) -> list[nn.Linear]:
        """The linear layers in the order of the flat buffer: a shared trunk's, the actor's, the critic's."""
        return list(_linear(self))

    def hidden_matrices(self) -> list[Tensor]:
        """The weights from one hidden layer to the next: neither a first layer's nor a head's."""
        towers = (self.trunk, self.actor[:-1], self.critic[:-1])
        return [layer.weight for tower in towers for layer in list(_linear(tower))[1:]]


def _linear(module: nn.Module) -> Iterator[nn.Linear]:
    return (layer for layer in module.modules() if isinstance(layer, nn.Linear))


def _hidden(inputs: int, config: PolicyConfig) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in config.hidden:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[config.activation]()]
        inputs = width
    return layers


def _nothing(inputs: int, config: PolicyConfig) -> list[nn.Module]:
    return []


class FlatParameters:
    """Moves a module's parameters and gradients into two flat buffers, of which they become views.

    A linear layer is stored input-major, `[(inputs + 1)][outputs]` with the bias last; every layer and every other
    parameter begins on a cache line, with zeros between.

    Attributes:
        parameters, gradients: (n,) float32.
        places: where each parameter begins.
        buffers: the module's own, which stay where they are.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        places: list[tuple[nn.Parameter, int, bool]] = []
        size = 0
        for layer in module.modules():
            linear = isinstance(layer, nn.Linear)
            for number, parameter in enumerate(layer.parameters(recurse=False)):
                if not (linear and number):  # a bias follows its weights at once
                    size = _next_line(size)
                places.append((parameter, size, linear and not number))
                size += parameter.numel()
        self.buffers = list(module.buffers())
        self.parameters = torch.zeros(_next_line(size), device=device)
        self.gradients = torch.zeros_like(self.parameters)
        self.places: dict[Tensor, int] = {parameter: begin for parameter, begin, _ in places}
        for parameter, begin, transposed in places:
            own = _view(self.parameters, begin, parameter, transposed)
            own.copy_(parameter.detach())
            parameter.data, parameter.grad = own, _view(self.gradients, begin, parameter, transposed)


def _next_line(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE


def _view(buffer: Tensor, begin: int, parameter: Tensor, transposed: bool) -> Tensor:
    piece = buffer[begin : begin + parameter.numel()]
    return piece.view(parameter.shape[::-1]).t() if transposed else piece.view(parameter.shape)


def initialize(policy: ActorCritic, run_seed: int) -> None:
    """Orthogonal weights from the run seed, gain sqrt(2) in hidden layers, 0.01 in the policy's head, 1 in the value's.

    Biases are zero, so that the first policy is near uniform. Source: Huang et al., "The 37 implementation details of
    PPO", 2022, detail 2. The parameters must lie in a flat buffer.
    """
    heads = {policy.actor[-1]: 0.01, policy.critic[-1]: 1.0}
    for number, layer in enumerate(policy.layers()):
        orthogonal(layer.weight.data.t(), heads.get(layer, math.sqrt(2.0)), number, run_seed)
        layer.bias.data.zero_()


def build(
    spec: EnvSpec, config: PolicyConfig, run_seed: int, device: torch.device
) -> tuple[ActorCritic, FlatParameters]:
    """The initial policy of a run, in its flat buffer: the same bits for the same arguments."""
    policy = ActorCritic(spec, config)
    flat = FlatParameters(policy, device)
    initialize(policy, run_seed)
    return policy, flat


def several(spec: EnvSpec) -> tuple[int, ...]:
    """Where an action is several choices, the number of actions of each; else ()."""
    return spec.actions if isinstance(spec.actions, tuple) else ()


def sample(
    parameters: Tensor,
    action: Tensor,
    log_prob: Tensor,
    entropy: Tensor,
    step: int,
    run_seed: int,
    sizes: tuple[int, ...] = (),
    first: Tensor | None = None,
) -> None:
    """Draws an action a row into `action`; see kernels/sample.py. `sizes`: where there are several choices, of each."""
    if sizes:
        sample_several(parameters, action, log_prob, entropy, step, run_seed, sizes, first)
        return
    draw = sample_gaussian if action.is_floating_point() else sample_categorical
    draw(parameters, action, log_prob, entropy, step, run_seed, first)


def mode(parameters: Tensor, action: Tensor, sizes: tuple[int, ...] = ()) -> None:
    """The most likely action a row into `action`: the largest logit (the first of equals), or the mean."""
    if sizes:
        best = torch.stack([logits.argmax(-1) for logits in parameters.split(sizes, dim=-1)], dim=-1)
    else:
        best = parameters[:, : action.shape[-1]] if action.is_floating_point() else parameters.argmax(-1)
    action.copy_(best)


def empty_action(spec: EnvSpec, leading: tuple[int, ...], device: torch.device) -> Tensor:
    """An uninitialized action buffer: (*leading,) or (*leading, K) int32, or (*leading, A) float32."""
    dtype = torch.int32 if spec.discrete else torch.float32
    return torch.empty((*leading, *spec.action_shape), dtype=dtype, device=device)
