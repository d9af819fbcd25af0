"""Native environments that are sound and odd. Those of the folder above have a header, the others are wrappers."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from broken.native import CPU, Wrapper, ended
from torch import Tensor

import envs
from envs.spec import Box, Discrete, EnvSpec
from envs.validation import Plan
from envs.vector import StepOutput
from sound import Sound

INFINITE = float("inf")


class SeesNothing(Wrapper):
    """Observations of size 0."""

    changes: ClassVar[Mapping[str, Any]] = {"observation_low": (), "observation_high": ()}

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(torch.empty(self.num_envs, self.env.spec.observation_size), episode_seeds)

    def step(self, action: Tensor, out: StepOutput) -> None:
        seen, final = (torch.empty(self.num_envs, self.env.spec.observation_size) for _ in range(2))
        super().step(action, out._replace(observation=seen, final_observation=final))


class SeesOnes(Wrapper):
    """Always observes the same."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        observation.fill_(1.0)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        for observation in (out.observation, out.final_observation):
            observation.fill_(1.0)


class Unbounded(Wrapper):
    """No bounds at all: neither of what is seen nor of rewards nor of actions (what they do has bounds)."""

    changes: ClassVar[Mapping[str, Any]] = {
        "observation_low": (-INFINITE,) * 3,
        "observation_high": (INFINITE,) * 3,
        "reward_range": (-INFINITE, INFINITE),
        "action": Box((-INFINITE,), (INFINITE,)),
    }


class BoundedBelow(Unbounded):
    """Actions have one bound."""

    changes: ClassVar[Mapping[str, Any]] = {"action": Box((-2.0,), (INFINITE,))}


class StartsAlike(Wrapper):
    """Each episode begins in the same state; nothing in it is random."""

    def begin(self, which: Tensor, observation: Tensor) -> None:
        twin, start = envs.make(self.env.spec, 1, 0, CPU), torch.empty(1, self.spec.observation_size)
        twin.reset(start)
        observation[which] = start
        self.env.state()["state"][:, which] = twin.state()["state"]

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.begin(torch.ones(self.num_envs, dtype=torch.bool), observation)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.begin(ended(out), out.observation)


class TwoStarts(StartsAlike):
    """Each episode begins in one of two states, by its seed."""

    def begin(self, which: Tensor, observation: Tensor) -> None:
        seeds = self.env.state()["episode_seed"]
        twin, start = envs.make(self.env.spec, self.num_envs, 0, CPU), torch.empty_like(observation)
        twin.reset(start, (seeds ^ (seeds >> 17)) & 1)
        observation[which] = start[which]
        self.env.state()["state"][:, which] = twin.state()["state"][:, which]


class PaysLater(Wrapper):
    """Each reward is paid three steps after it was earned, if the episode lasts."""

    queue: list[Tensor]

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.queue = [torch.zeros(self.num_envs) for _ in range(3)]

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.queue.append(out.reward.clone())
        self.pay(out, torch.where(out.reward.isnan(), out.reward, self.queue.pop(0)))
        for owed in self.queue:
            owed[ended(out) | owed.isnan()] = 0.0


class PaysAtTheEnd(Wrapper):
    """All of an episode's reward comes with its end."""

    changes: ClassVar[Mapping[str, Any]] = {"reward_range": (0.0, 500.0)}

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        whole = torch.where(ended(out), out.episode_length.float(), 0.0)
        self.pay(out, torch.where(out.reward.isnan(), out.reward, whole))


class HasAnIdleAction(Wrapper):
    """A third action does what the first does."""

    changes: ClassVar[Mapping[str, Any]] = {"action": Discrete(3)}

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(torch.where(action == 2, 0, torch.where(action == 3, 2, action)), out)


class PlaysByItself(Wrapper):
    """There is one action, so nothing to decide."""

    changes: ClassVar[Mapping[str, Any]] = {"action": Discrete(1)}

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(torch.where(action == 0, action, 2), out)


def task(name: str, observations: int, actions: int, rewards: tuple[float, float], limit: int) -> EnvSpec:
    low, high = (0.0,) * observations, (1.0,) * observations
    header = Path(__file__).parents[1] / f"{name}.h"
    return EnvSpec(name, 0, low, high, Discrete(actions), limit, 1, rewards, header)


def native(spec: EnvSpec, *warnings: str) -> Sound:
    def plan(num_envs: int, steps: int) -> Plan:
        return Plan(spec, num_envs, steps, 1)

    return Sound(spec.name, lambda spec, num_envs, seed: envs.make(spec, num_envs, seed, CPU), plan, warnings)


def wrapped(wrapper: type[Wrapper], base: str, *warnings: str) -> Sound:
    return Sound(wrapper.__name__, wrapper, functools.partial(wrapper.plan, base), warnings)


SOUND: tuple[Sound, ...] = (
    native(task("bandit", 1, 4, (0.0, 1.0), 1), "bounds", "seeds"),
    native(task("password", 5, 3, (0.0, 1.0), 5), "seeds", "resets", "timing"),
    native(task("stochastic", 1, 2, (0.0, 4.0), 2), "seeds", "bounds"),
    wrapped(SeesNothing, "pendulum", "bounds", "seeds"),
    wrapped(SeesOnes, "pendulum", "bounds", "seeds"),
    wrapped(Unbounded, "pendulum"),
    wrapped(BoundedBelow, "pendulum"),
    wrapped(StartsAlike, "cartpole", "seeds"),
    wrapped(TwoStarts, "cartpole"),
    wrapped(PaysLater, "pendulum", "timing"),
    wrapped(PaysAtTheEnd, "cartpole"),
    wrapped(HasAnIdleAction, "cartpole", "timing"),
    wrapped(PlaysByItself, "cartpole", "timing"),
)
