"""Native environments that are spoiled in one place each."""

import dataclasses
import random
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

import envs
from broken import Broken
from envs import validation
from envs.spec import EnvSpec
from envs.vector import StepOutput

CPU = torch.device("cpu")


class Wrapper:
    """A native environment, the base of those that are broken, or odd, in one place.

    Attributes:
        changes: fields of the specification that differ from the native one's.
    """

    changes: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        self.env = envs.make(envs.spec(spec.name, spec.max_episode_steps), num_envs, run_seed, CPU)
        self.spec, self.num_envs, self.device = spec, num_envs, CPU
        self.steps = 0
        self.totals = torch.zeros(num_envs)

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        self.env.reset(observation, episode_seeds)
        self.steps = 0
        self.totals.zero_()

    def step(self, action: Tensor, out: StepOutput) -> None:
        self.env.step(action, out)
        self.steps += 1

    def state(self) -> dict[str, Tensor]:
        return self.env.state()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.env.load_state(tensors)

    def pay(self, out: StepOutput, reward: Tensor) -> None:
        """Another reward, the returns kept right."""
        out.reward.copy_(reward)
        self.totals += out.reward
        out.episode_return.copy_(self.totals)
        self.totals[ended(out)] = 0.0

    @classmethod
    def plan(cls, base: str, num_envs: int, steps: int) -> validation.Plan:
        return validation.Plan(dataclasses.replace(envs.spec(base, 25), **cls.changes), num_envs, steps, run_seed=1)


def ended(out: StepOutput) -> Tensor:
    return (out.terminated == 1) | (out.truncated == 1)


# ---------------------------------------------------------------------------------------------------------------------
# What it says of itself
# ---------------------------------------------------------------------------------------------------------------------


class ForgetsItsLimit(Wrapper):
    """Its specification names another time limit than it was made with."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, run_seed)
        self.spec = dataclasses.replace(spec, max_episode_steps=500)


class RoundsSeeds(Wrapper):
    """Says its seeds as floats."""

    def state(self) -> dict[str, Tensor]:
        return {**self.env.state(), "episode_seed": self.env.state()["episode_seed"].double()}


# ---------------------------------------------------------------------------------------------------------------------
# Actions
# ---------------------------------------------------------------------------------------------------------------------


class TakesOneTooMany(Wrapper):
    """What is no action is played as the nearest one."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action.clamp(0, self.spec.action.n - 1), out)


class RefusesTheLast(Wrapper):
    """Counts actions from 1: the last one is out of its range."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        for values in (out.reward, out.observation, out.final_observation):
            values[action == self.spec.action.n - 1] = float("nan")


class RaisesAtTheLast(Wrapper):
    """Likewise, by an exception."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        if bool((action == self.spec.action.n - 1).any()):
            raise IndexError("list index out of range")
        super().step(action, out)


class RefusesAllForOne(Wrapper):
    """What is no action spoils the neighbours' rewards too."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        if bool(out.reward.isnan().any()):
            out.reward.fill_(float("nan"))


class CountsActionsFromOne(Wrapper):
    """Two actions are one."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        above = (action > 0) & (action < self.spec.action.n)
        super().step(torch.where(above, action - 1, action), out)


class HalvesActions(Wrapper):
    """Scales actions before it clips them: a bound acts as half of it."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action * 0.5, out)


class ChangesActions(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        action[0] = 0


class ActsOneStepLate(Wrapper):
    """Plays the action of the step before; the first one of an episode is 0."""

    last: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.last = torch.zeros(self.num_envs, dtype=torch.int32)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(self.last, out)
        valid = (action >= 0) & (action < self.spec.action.n)
        out.reward[~valid] = float("nan")
        self.last = torch.where(ended(out) | ~valid, 0, action)


class DoesNotListen(Wrapper):
    """Plays action 0 whatever is done; what is none it refuses."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(torch.where((action >= 0) & (action < self.spec.action.n), 0, action), out)


# ---------------------------------------------------------------------------------------------------------------------
# Exceptions and buffers
# ---------------------------------------------------------------------------------------------------------------------


class RaisesLater(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        if self.steps == 30:
            raise ZeroDivisionError("division by zero")


class LeavesRewardStale(Wrapper):
    """Environment 3 does not write its reward on step 17."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        before = out.reward.clone()
        super().step(action, out)
        if self.steps == 17 and self.num_envs > 3:
            out.reward[3] = before[3]


class LeavesFlagStale(Wrapper):
    """`truncated` of the last environment is written only where something ended."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        before = out.truncated.clone()
        super().step(action, out)
        if not ended(out)[-1]:
            out.truncated[-1] = before[-1]


class LeavesResetShort(Wrapper):
    """The reset writes all but the last component."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        before = observation[0, -1].clone()
        super().reset(observation, episode_seeds)
        observation[0, -1] = before


class WritesBeside(Wrapper):
    """The observation of one environment too many is written."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        size = self.spec.observation_size
        torch.as_strided(out.observation, (self.num_envs + 1, size), (size, 1))[-1] = 0.0


class OverwritesTheLastStep(Wrapper):
    """Keeps the buffer that it was given and writes there again on the next step."""

    kept: Tensor | None = None

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.kept = None

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        if self.kept is not None:
            self.kept.copy_(out.observation)
        self.kept = out.observation


class OverwritesTheStart(Wrapper):
    """Writes each observation into the reset's buffer too."""

    start: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.start = observation

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.start.copy_(out.observation)


# ---------------------------------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------------------------------


class Diverges(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        if self.steps == 5:
            out.final_observation[1 % self.num_envs, 1] = float("inf")
            out.observation[1 % self.num_envs, 1] = float("inf")


class DividesByZero(Wrapper):
    """The reward is NaN where an episode ends."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.reward[ended(out)] = float("nan")


class ExceedsBounds(Wrapper):
    """Observes a hundred times what its specification allows."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        for observation in (out.observation, out.final_observation):
            observation[:, 0] *= 100.0


class RewardsOtherwise(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.reward[2:3] = 2.0


class FlagsOfAllBits(Wrapper):
    """True is 254, all bits but the lowest."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.terminated.mul_(254)


class ScalesTwice(Wrapper):
    """Divides by 255 what lies within its bounds already."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        observation /= 255.0

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        for observation in (out.observation, out.final_observation):
            observation /= 255.0


class ShowsTheStart(Wrapper):
    """The observation stays an episode's first one."""

    start: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.start = observation.clone()

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.final_observation.copy_(self.start)
        self.start[ended(out)] = out.observation[ended(out)]
        out.observation.copy_(self.start)


class PaysMillions(Wrapper):
    changes: ClassVar[Mapping[str, Any]] = {"reward_range": (-float("inf"), float("inf"))}

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.pay(out, out.reward * 1e6)


class PaysDust(Wrapper):
    changes: ClassVar[Mapping[str, Any]] = {"reward_range": (-float("inf"), float("inf"))}

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.pay(out, out.reward * 1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Repetition and seeds
# ---------------------------------------------------------------------------------------------------------------------


class ResetsUnseeded(Wrapper):
    """Starts wherever chance has it, whatever the run seed."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, random.SystemRandom().getrandbits(62))


class Noisy(Wrapper):
    """Adds noise to the last component of what is observed."""

    def noise(self) -> float:
        raise NotImplementedError

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        noise = self.noise()
        for observation in (out.observation, out.final_observation):
            observation[~ended(out), -1] *= 1.0 - 1e-3 * noise


class DrawsFromPython(Noisy):
    def noise(self) -> float:
        return random.random()


class DrawsFromNumpy(Noisy):
    def noise(self) -> float:
        return float(np.random.rand())


class DrawsFromTorch(Noisy):
    def noise(self) -> float:
        return float(torch.rand(()))


class LooksAtTheClock(Noisy):
    def noise(self) -> float:
        return time.time() % 1.0


class SeedsEveryone(Noisy):
    """Seeds NumPy's global state at its reset and draws from it."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        np.random.seed(0)

    def noise(self) -> float:
        return float(np.random.rand())


class DisturbsOthers(Noisy):
    """Draws from the global state without a use for it."""

    def noise(self) -> float:
        return 0.0 * random.random()


class SeedsOnce(Noisy):
    """A generator of its own, which is seeded when it is made and at no reset."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, run_seed)
        self.generator = np.random.default_rng(0)

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        observation[:, -1] *= 1.0 - 1e-3 * self.noise()

    def noise(self) -> float:
        return float(self.generator.random())


class IgnoresRunSeed(Wrapper):
    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, 0)


class IgnoresGivenSeeds(Wrapper):
    """Plays its training episodes and says it plays the seeds that it was given."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation)
        if episode_seeds is not None:
            self.env.state()["episode_seed"].copy_(episode_seeds)


class SeedsAlike(Wrapper):
    """All environments play the episode of environment 0, whatever they say."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        own = self.env.state()["episode_seed"].clone()
        self.env.reset(observation, own[:1].expand_as(own).contiguous())
        self.env.state()["episode_seed"].copy_(own)


class RepeatsEpisodes(Wrapper):
    """After an end the same episode begins again."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        seeds = self.env.state()["episode_seed"].clone()
        super().step(action, out)
        again = torch.empty_like(out.observation)
        twin = envs.make(self.spec, self.num_envs, 0, CPU)
        twin.reset(again, seeds)
        out.observation[ended(out)] = again[ended(out)]
        self.env.state()["state"][:, ended(out)] = twin.state()["state"][:, ended(out)]


class KeepsSeedAcrossEpisodes(RepeatsEpisodes):
    """Likewise, and it says so."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        seeds = self.env.state()["episode_seed"].clone()
        super().step(action, out)
        self.env.state()["episode_seed"].copy_(seeds)


class CutsSeeds(Wrapper):
    """Only the low 31 bits of a seed are used: the splits meet."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        if episode_seeds is None:
            return super().reset(observation)
        super().reset(observation, episode_seeds & 0x7FFFFFFF)
        self.env.state()["episode_seed"].copy_(episode_seeds)
        return None


class TrainsOnHeldOut(Wrapper):
    """An episode of the split `held_out` is put among the training episodes."""

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        if episode_seeds is None:
            seeds = self.env.state()["episode_seed"].clone()
            seeds[0] = validation.evaluation_seeds(2, 1)[0]
            super().reset(observation, seeds)


# ---------------------------------------------------------------------------------------------------------------------
# Ends
# ---------------------------------------------------------------------------------------------------------------------


class NeverEnds(Wrapper):
    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(dataclasses.replace(spec, max_episode_steps=10**6), num_envs, run_seed)
        self.spec = spec


class LeavesTerminalStale(Wrapper):
    """`terminated` stays 1 on the first step of the next episode."""

    last: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.last = torch.zeros(self.num_envs, dtype=torch.uint8)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        dead = out.terminated.clone()
        out.terminated.bitwise_or_(self.last)
        self.last = dead


class OverwritesFinal(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.final_observation.copy_(out.observation)


class OverwritesFinalOfTheDead(Wrapper):
    """Likewise, but only where an episode terminates."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        dead = out.terminated == 1
        out.final_observation[dead] = out.observation[dead]


class FinalBeforeStep(Wrapper):
    """The final observation is the one before the last step."""

    last: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.last = observation.clone()

    def spoilt(self, out: StepOutput) -> Tensor:
        return ended(out)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.final_observation[self.spoilt(out)] = self.last[self.spoilt(out)]
        self.last = out.observation.clone()


class FinalOfTheDeadBeforeStep(FinalBeforeStep):
    """Likewise, but only where an episode terminates."""

    def spoilt(self, out: StepOutput) -> Tensor:
        return (out.terminated == 1) & (out.truncated == 0)


class ObservesOldEpisode(Wrapper):
    """After an end `observation` is still the old episode's."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.observation.copy_(out.final_observation)


class LimitIsDeath(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.terminated.copy_(ended(out))


class LimitOnlyDeath(LimitIsDeath):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.truncated.zero_()


class OwnLimitIsDeath(Wrapper):
    """Has a time limit of its own, 12 steps, and calls it a death."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        self.limit = spec.max_episode_steps
        super().__init__(dataclasses.replace(spec, max_episode_steps=min(12, self.limit)), num_envs, run_seed)
        self.spec = spec

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.terminated.copy_(out.episode_length == 12)
        out.truncated.copy_(out.episode_length == self.limit)


class DeathIsLimit(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.truncated.copy_(ended(out))
        out.terminated.zero_()


class LimitOneLate(Wrapper):
    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(dataclasses.replace(spec, max_episode_steps=spec.max_episode_steps + 1), num_envs, run_seed)
        self.spec = spec


class DeathHidesLimit(Wrapper):
    """On a step with both ends only the termination is reported."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.truncated.mul_(1 - out.terminated)


class ForgetsLastReward(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.episode_return[ended(out)] -= out.reward[ended(out)]


class AddsUpEpisodes(Wrapper):
    """The return goes on over an end."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.totals += out.reward
        out.episode_return.copy_(self.totals)


class CountsAfterReset(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.episode_length[ended(out)] = 0


# ---------------------------------------------------------------------------------------------------------------------
# Neighbours, and what survives
# ---------------------------------------------------------------------------------------------------------------------


class ListensToNeighbour(Wrapper):
    """Environment 0's actions reach the last environment."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        mixed = action.clone()
        mixed[-1] = action[0]
        super().step(mixed, out)


class DependsOnIndex(Wrapper):
    """The same episode pays less to a later environment."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.pay(out, out.reward * (1.0 - 1e-3 * torch.arange(self.num_envs)))


class SharesItsMemory(Wrapper):
    """What it remembers of the last action belongs to the class, so to all of its objects."""

    memory: ClassVar[Tensor] = torch.zeros(0)

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        type(self).memory = torch.zeros(self.num_envs)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.pay(out, out.reward * (1.0 - 1e-3 * self.memory))
        type(self).memory = torch.where(ended(out), 0.0, action[:, 0].abs().clamp(max=2.0))


class RemembersSteps(Wrapper):
    """Rewards by a counter that no reset sets back."""

    lifetime = 0

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.lifetime += 1
        self.pay(out, out.reward * (1.0 - 1e-3 * self.lifetime))


class TiresOverEpisodes(Wrapper):
    """Pays less with each episode until it is reset."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        fresh = 1.0 - 1e-3 * self.env.state()["episode_index"]
        super().step(action, out)
        self.pay(out, out.reward * fresh)


class PaysTheNextEpisode(Wrapper):
    """The first reward of an episode is the last one of the episode before."""

    owed: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.owed = torch.full((self.num_envs,), float("nan"))

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        last = torch.where(ended(out), out.reward, float("nan"))
        self.pay(out, torch.where(self.owed.isnan(), out.reward, self.owed))
        self.owed = last


# ---------------------------------------------------------------------------------------------------------------------
# Timing
# ---------------------------------------------------------------------------------------------------------------------


class PaysOneStepLate(Wrapper):
    """The reward of the step before; 0 on an episode's first."""

    owed: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.owed = torch.zeros(self.num_envs)

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        owed = torch.where(ended(out) | out.reward.isnan(), 0.0, out.reward)
        self.pay(out, torch.where(out.reward.isnan(), out.reward, self.owed))
        self.owed = owed


class ObservesOneStepLate(Wrapper):
    """The observation of the step before; an episode's first one twice."""

    last: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.last = observation.clone()

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        now, over = out.final_observation.clone(), ended(out)
        out.final_observation.copy_(self.last)
        self.last = torch.where(over[:, None], out.observation, now)
        out.observation.copy_(torch.where(over[:, None], out.observation, out.final_observation))


FAULTS: tuple[Broken, ...] = (
    Broken(ForgetsItsLimit, "cartpole", "metadata", "spec"),
    Broken(RoundsSeeds, "cartpole", "metadata", "episode_seed"),
    Broken(TakesOneTooMany, "cartpole", "actions", "action", "warning"),
    Broken(RefusesTheLast, "mountain_car", "actions", "action"),
    Broken(RaisesAtTheLast, "mountain_car", "actions", "action"),
    Broken(RefusesAllForOne, "cartpole", "alone", "reward"),
    Broken(HalvesActions, "pendulum", "clipping", "action"),
    Broken(ChangesActions, "cartpole", "aliasing", "action"),
    Broken(RaisesLater, "cartpole", "exceptions", "step"),
    Broken(LeavesRewardStale, "cartpole", "buffers", "reward"),
    Broken(LeavesFlagStale, "pendulum", "buffers", "truncated"),
    Broken(LeavesResetShort, "pendulum", "buffers", "observation[2]"),
    Broken(WritesBeside, "cartpole", "buffers", "observation"),
    Broken(OverwritesTheLastStep, "cartpole", "aliasing", "observation[0]"),
    Broken(OverwritesTheStart, "pendulum", "aliasing", "observation[0]"),
    Broken(Diverges, "pendulum", "finite", "observation[1]"),
    Broken(DividesByZero, "cartpole", "finite", "reward"),
    Broken(ExceedsBounds, "pendulum", "bounds", "observation[0]"),
    Broken(RewardsOtherwise, "cartpole", "bounds", "reward"),
    Broken(FlagsOfAllBits, "cartpole", "bounds", "terminated"),
    Broken(ScalesTwice, "pendulum", "bounds", "observation[1]", "warning"),
    Broken(ShowsTheStart, "pendulum", "bounds", "observation", "warning"),
    Broken(ResetsUnseeded, "cartpole", "determinism", "observation[0]"),
    Broken(DrawsFromPython, "cartpole", "surroundings", "observation[3]"),
    Broken(DrawsFromNumpy, "cartpole", "surroundings", "observation[3]"),
    Broken(DrawsFromTorch, "cartpole", "surroundings", "observation[3]"),
    Broken(LooksAtTheClock, "cartpole", "surroundings", "observation[3]"),
    Broken(SeedsEveryone, "cartpole", "surroundings", "observation[3]"),
    Broken(DisturbsOthers, "cartpole", "surroundings", "random", "warning"),
    Broken(SeedsOnce, "cartpole", "reseeding", "observation[3]"),
    Broken(IgnoresRunSeed, "cartpole", "seeds", "episode_seed"),
    Broken(IgnoresGivenSeeds, "cartpole", "splits", "observation"),
    Broken(SeedsAlike, "pendulum", "seeds", "observation"),
    Broken(KeepsSeedAcrossEpisodes, "cartpole", "seeds", "episode_seed"),
    Broken(CutsSeeds, "pendulum", "splits", "observation"),
    Broken(TrainsOnHeldOut, "cartpole", "splits", "episode_seed"),
    Broken(NeverEnds, "pendulum", "ends", "truncated"),
    Broken(LeavesTerminalStale, "cartpole", "ends", "episode_index"),
    Broken(RepeatsEpisodes, "cartpole", "resets", "observation[0]"),
    Broken(OverwritesFinal, "cartpole", "resets", "final_observation[0]"),
    Broken(OverwritesFinalOfTheDead, "cartpole", "resets", "final_observation"),
    Broken(FinalBeforeStep, "cartpole", "resets", "final_observation[0]"),
    Broken(FinalBeforeStep, "pendulum", "resets", "final_observation[0]"),
    Broken(FinalOfTheDeadBeforeStep, "cartpole", "resets", "final_observation", "warning"),
    Broken(ObservesOldEpisode, "pendulum", "resets", "observation[0]"),
    Broken(LimitIsDeath, "pendulum", "time_limit", "terminated"),
    Broken(LimitOnlyDeath, "cartpole", "time_limit", "truncated"),
    Broken(OwnLimitIsDeath, "pendulum", "time_limit", "terminated", "warning"),
    Broken(DeathIsLimit, "cartpole", "time_limit", "truncated", "warning"),
    Broken(LimitOneLate, "pendulum", "time_limit", "truncated"),
    Broken(DeathHidesLimit, "cartpole", "time_limit", "truncated"),
    Broken(ForgetsLastReward, "cartpole", "accounting", "episode_return"),
    Broken(AddsUpEpisodes, "pendulum", "accounting", "episode_return"),
    Broken(CountsAfterReset, "pendulum", "accounting", "episode_length"),
    Broken(ListensToNeighbour, "cartpole", "alone", "observation[1]"),
    Broken(DependsOnIndex, "pendulum", "alone", "reward"),
    Broken(SharesItsMemory, "pendulum", "order", "reward"),
    Broken(RemembersSteps, "pendulum", "carryover", "reward"),
    Broken(TiresOverEpisodes, "pendulum", "carryover", "reward"),
    Broken(PaysTheNextEpisode, "pendulum", "carryover", "reward"),
    Broken(CountsActionsFromOne, "mountain_car", "timing", "action", "warning"),
    Broken(DoesNotListen, "cartpole", "timing", "action", "warning"),
    Broken(ActsOneStepLate, "cartpole", "timing", "observation", "warning"),
    Broken(PaysOneStepLate, "pendulum", "timing", "reward", "warning"),
    Broken(ObservesOneStepLate, "pendulum", "timing", "observation", "warning"),
    Broken(PaysMillions, "pendulum", "reward", "reward", "warning"),
    Broken(PaysDust, "cartpole", "reward", "reward", "warning"),
)
