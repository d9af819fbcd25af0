"""Many environments stepped together: the interface, and the native ones whose steps are kernels."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from envs.spec import Box, EnvSpec
from kernels import env as kernels
from kernels.episode_seeds import episode_seeds as training_seeds
from kernels.errors import UserError
from kernels.launcher import Constant


class StepOutput(NamedTuple):
    """What a step writes, every element of every field, into the caller's buffers; N environments, D floats seen."""

    observation: Tensor  # (N, D) float32: the next one; after an end the first of the new episode
    reward: Tensor  # (N,) float32
    terminated: Tensor  # (N,) uint8, 0 or 1
    truncated: Tensor  # (N,) uint8, 0 or 1; both may be 1 on one step
    final_observation: Tensor  # (N, D) float32: what this step led to, before any reset
    episode_return: Tensor  # (N,) float32: of the episode of this step, this step included
    episode_length: Tensor  # (N,) int32: likewise; 0 in a filler row (see VectorEnv)


class VectorEnv(Protocol):
    """N environments with same-step autoreset. All tensors are contiguous and on `device`.

    `state()` holds at least `episode_seed` and `episode_index`, both (N,) int64, of the episodes that are being played.
    Training episodes are numbered 0, 1, 2, ... in each environment; `kernels.episode_seeds` gives their seeds.

    Where agents leave their world before its end (`spec.fillers`), the row of one that is gone is a filler until its
    world begins anew: of a step without an agent the output is all 0, and so is `episode_length`, which is 1 or more on
    every other step.

    Attributes:
        alive: (N,) uint8, on the CPU, by reference: 1 where somebody sees the row's observation; None: in all rows.
    """

    alive: Tensor | None

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def num_envs(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        """Begins the episodes of the seeds, (N,) int64, or each environment's training episode 0; writes (N, D)."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        """Plays (N,) or (N, K) int32 discrete actions or (N, A) float32 raw ones, which are clipped to the bounds."""

    def state(self) -> dict[str, Tensor]:
        """All that a later step depends on, by reference."""

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""


def empty_output(spec: EnvSpec, num_envs: int, device: torch.device) -> StepOutput:
    """Buffers for one step, their contents undefined."""
    observation = (num_envs, spec.observation_size)
    shapes = (
        (observation, torch.float32),
        ((num_envs,), torch.float32),
        ((num_envs,), torch.uint8),
        ((num_envs,), torch.uint8),
        (observation, torch.float32),
        ((num_envs,), torch.float32),
        ((num_envs,), torch.int32),
    )
    return StepOutput(*(torch.empty(shape, dtype=dtype, device=device) for shape, dtype in shapes))


def worlds(spec: EnvSpec, num_envs: int) -> Tensor:
    """(N,) int32: the world that each row is of; where a world has one agent, the environment itself."""
    return torch.arange(num_envs, dtype=torch.int32) // spec.agents


class NativeVectorEnv:
    """N environments whose dynamics are a header compiled into the step kernel.

    Args:
        spec: the environment; its shapes are compiled in, its time limit is not.
        num_envs: N, at least 1, in whole worlds.
        run_seed: 64 bits; world i's episode k has the seed `episode_seeds(run_seed, i, k)`.
        device: where everything lies.

    Attributes:
        bounds: of continuous actions, lowest and highest, (A,) float32 each; None for discrete ones.
    """

    alive: Tensor | None = None

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int, device: torch.device) -> None:
        if num_envs < 1:
            raise UserError(f"env: num_envs must be at least 1; got {num_envs}")
        if num_envs % spec.agents:
            nearest = num_envs - num_envs % spec.agents or spec.agents
            raise UserError(
                f"env: num_envs counts agents, and {spec.name} has {spec.agents} in a world; got {num_envs}, which is "
                f"no multiple of {spec.agents}: take {nearest}"
            )
        self.spec, self.num_envs, self.device = spec, num_envs, device
        self._run_seed = run_seed
        action = spec.action
        self._constants: dict[str, Constant] = {
            "STATE": spec.state_size,
            "OBSERVATION": spec.observation_size,
            "ACTIONS": spec.actions,
            "DISCRETE": int(spec.discrete),
            "AGENTS": spec.agents,
        }
        self.bounds = (
            (torch.tensor(action.low, device=device), torch.tensor(action.high, device=device))
            if isinstance(action, Box)
            else None
        )
        self._state = {
            "state": torch.zeros(spec.state_size, num_envs, device=device),
            "episode_seed": torch.zeros(num_envs, dtype=torch.int64, device=device),
            "episode_index": torch.zeros(num_envs, dtype=torch.int64, device=device),
            "episode_length": torch.zeros(num_envs, dtype=torch.int32, device=device),
            "episode_return": torch.zeros(num_envs, device=device),
        }
        self._step = kernels.EnvStep(
            spec.header, self._constants, self.bounds, self._state, spec.max_episode_steps, run_seed
        )

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        """Begins the episodes of the given seeds, or each environment's training episode 0.

        After an end either kind goes on with the environment's training episode 1, 2, ...

        Args:
            observation: (N, D) float32, written.
            episode_seeds: (N,) int64 bit patterns, the same in all rows of a world.

        Raises:
            ValueError: an array is not as stated.
        """
        if episode_seeds is None:
            environment = worlds(self.spec, self.num_envs).to(self.device)
            zeros = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
            episode_seeds = training_seeds(self._run_seed, environment, zeros)
        state = self._state
        if episode_seeds.shape != state["episode_seed"].shape or episode_seeds.dtype != torch.int64:
            wanted, found = f"int64 ({self.num_envs},)", f"{episode_seeds.dtype} {tuple(episode_seeds.shape)}"
            raise ValueError(f"reset: episode_seeds must be {wanted}; got {found.removeprefix('torch.')}")
        of_a_world = episode_seeds.view(-1, self.spec.agents)
        if self.spec.agents > 1 and bool((of_a_world != of_a_world[:, :1]).any()):
            raise ValueError(f"reset: the {self.spec.agents} rows of a world must have the same episode seed")
        state["episode_seed"].copy_(episode_seeds)
        kernels.env_reset(self.spec.header, self._constants, observation=observation, **state)

    def step(self, action: Tensor, out: StepOutput) -> None:
        """Plays one step and begins the next training episode where one ended.

        Args:
            action: (N,) int32 for discrete actions, (N, A) float32 for continuous ones, clipped to the bounds. What is
                no action (outside of 0 to n - 1, or NaN) makes the environment's state, observation and reward NaN.
            out: written, every element.

        Raises:
            ValueError: an array is not as stated.
        """
        self._step(action, out)

    def state(self) -> dict[str, Tensor]:
        """By reference: state (S, N) float32, episode_seed and episode_index (N,) int64, episode_length (N,) int32,
        episode_return (N,) float32.
        """
        return dict(self._state)

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave.

        Raises:
            ValueError: a tensor is missing or has another shape or dtype.
        """
        for name, own in self._state.items():
            given = tensors.get(name)
            if given is None or given.shape != own.shape or given.dtype != own.dtype:
                found = "nothing" if given is None else f"{given.dtype} {tuple(given.shape)}"
                raise ValueError(f"load_state: {name} must be {own.dtype} {tuple(own.shape)}; got {found}")
        for name, own in self._state.items():
            own.copy_(tensors[name])
