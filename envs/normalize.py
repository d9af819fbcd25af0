"""Normalization by what was seen so far: of observations, and of rewards by the discounted return's deviation.

Source: Engstrom et al., "Implementation matters in deep policy gradients", arXiv:2005.12729, section 3.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from envs.spec import EnvSpec
from envs.vector import StepOutput, VectorEnv

LIMIT = 10.0  # what is normalized is clipped to -10 to 10
_FLOOR = 1e-8  # added to a variance, which may be 0
_OBSERVATION, _REWARD, _RETURN = "observation_", "reward_", "discounted_return"


class Statistics:
    """Mean and variance of D numbers over all rows that were added, in float64.

    Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self._count = torch.zeros((), dtype=torch.float64, device=device)
        self._mean, self._squares = torch.zeros(2, size, dtype=torch.float64, device=device)

    def add(self, rows: Tensor) -> None:
        """Adds (N, D), or none of them where one is not finite: it would make all NaN, and hide whose it is."""
        rows, count = rows.double(), len(rows)
        mean = rows.mean(0)
        if not mean.isfinite().all():
            return
        shift, total = mean - self._mean, self._count + count
        self._squares += (rows - mean).square_().sum(0) + shift.square() * (self._count * count / total)
        self._mean += shift * (count / total)
        self._count.copy_(total)

    def normalize(self, values: Tensor, centered: bool = True) -> Tensor:
        """(..., D) float32 over the deviation, less the mean if `centered`, clipped to LIMIT."""
        deviation = (self._squares / self._count + _FLOOR).sqrt()
        shifted = values.double() - self._mean if centered else values.double()
        return (shifted / deviation).clamp_(-LIMIT, LIMIT).float()

    def state(self) -> dict[str, Tensor]:
        """By reference: count () and mean, squares (D,) float64; squares are the sum of squared deviations."""
        return {"count": self._count, "mean": self._mean, "squares": self._squares}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""
        for name, own in self.state().items():
            own.copy_(tensors[name])


def observation_statistics(tensors: Mapping[str, Tensor], device: torch.device) -> Statistics | None:
    """Those of observations that a state of `Normalized` holds, on the device; None where it holds none."""
    own = _section(tensors, _OBSERVATION)
    if "mean" not in own:
        return None
    statistics = Statistics(len(own["mean"]), device)
    statistics.load_state(own)
    return statistics


class Clipped:
    """A vector environment whose rewards are seen within -limit to limit.

    What is reported of episodes, `episode_return`, is of the environment's own rewards.
    """

    alive: Tensor | None

    def __init__(self, env: VectorEnv, limit: float) -> None:
        self._env, self._limit = env, limit
        self.spec, self.num_envs, self.device, self.alive = env.spec, env.num_envs, env.device, env.alive
        self.reset, self.state, self.load_state = env.reset, env.state, env.load_state

    def step(self, action: Tensor, out: StepOutput) -> None:
        self._env.step(action, out)
        out.reward.clamp_(-self._limit, self._limit)


class Normalized:
    """A vector environment that is seen normalized, by one estimator for all N environments.

    Each step's observations, and the first ones, enter the statistics once before they are normalized by them; final
    observations are normalized alike. The discounted return begins at 0 in each episode. Filler rows enter nothing.
    What is reported of episodes, `episode_return`, is of the environment's own rewards.

    Args:
        env: the environments.
        what: observation, reward, or both.
        gamma: the discount that the training has.
    """

    def __init__(self, env: VectorEnv, what: Collection[str], gamma: float) -> None:
        self._env, self._gamma, self.alive = env, gamma, env.alive
        self._observation = Statistics(env.spec.observation_size, env.device) if "observation" in what else None
        self._reward = Statistics(1, env.device) if "reward" in what else None
        self._return = torch.zeros(env.num_envs, dtype=torch.float64, device=env.device)

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    @property
    def num_envs(self) -> int:
        return self._env.num_envs

    @property
    def device(self) -> torch.device:
        return self._env.device

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        self._env.reset(observation, episode_seeds)
        self._return.zero_()
        if self._observation:
            self._observation.add(self._seen(observation))
            observation.copy_(self._observation.normalize(observation))

    def step(self, action: Tensor, out: StepOutput) -> None:
        self._env.step(action, out)
        if self._observation:
            self._observation.add(self._seen(out.observation))
            for observation in (out.observation, out.final_observation):
                observation.copy_(self._observation.normalize(observation))
        if self._reward:
            self._return.mul_(self._gamma).add_(out.reward)
            paid = self._return if self.alive is None else self._return[out.episode_length > 0]
            self._reward.add(paid[:, None])
            self._return.masked_fill_((out.terminated | out.truncated).bool(), 0.0)
            out.reward.copy_(self._reward.normalize(out.reward, centered=False))

    def _seen(self, observation: Tensor) -> Tensor:
        """The rows that somebody sees."""
        return observation if self.alive is None else observation[self.alive.bool()]

    def state(self) -> dict[str, Tensor]:
        """The environments' state and the statistics."""
        state = self._env.state()
        if self._observation:
            state |= {f"{_OBSERVATION}{name}": tensor for name, tensor in self._observation.state().items()}
        if self._reward:
            state |= {f"{_REWARD}{name}": tensor for name, tensor in self._reward.state().items()}
            state[_RETURN] = self._return
        return state

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Copies a state that `state` gave."""
        self._env.load_state(tensors)
        if self._observation:
            self._observation.load_state(_section(tensors, _OBSERVATION))
        if self._reward:
            self._reward.load_state(_section(tensors, _REWARD))
            self._return.copy_(tensors[_RETURN])


def _section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
