"""Every check of an environment, shown a fault that it has to name."""

import random
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

import envs
from envs import validation
from envs.spec import EnvSpec
from envs.validation import Check, Plan
from envs.vector import StepOutput, VectorEnv
from kernels.errors import UserError

CPU = torch.device("cpu")


def native(spec: EnvSpec, num_envs: int, run_seed: int) -> VectorEnv:
    return envs.make(spec, num_envs, run_seed, CPU)


def plan(name: str) -> Plan:
    return Plan(envs.spec(name, 25), num_envs=5, steps=60, run_seed=1)


class Wrapper:
    """A native environment, the base of those that are broken in one place."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        self.env = envs.make(spec, num_envs, run_seed, CPU)
        self.spec, self.num_envs, self.device = spec, num_envs, CPU
        self.steps = 0

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        self.env.reset(observation, episode_seeds)
        self.steps = 0

    def step(self, action: Tensor, out: StepOutput) -> None:
        self.env.step(action, out)
        self.steps += 1

    def state(self) -> dict[str, Tensor]:
        return self.env.state()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self.env.load_state(tensors)


def ended(out: StepOutput) -> Tensor:
    return (out.terminated == 1) | (out.truncated == 1)


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
        rows = torch.as_strided(out.observation, (self.num_envs + 1, self.spec.observation_size), (4, 1))
        rows[-1] = 0.0


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


class CountsActionsFromOne(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step((action - 1).clamp(min=0), out)


class HalvesActions(Wrapper):
    """Scales actions before it clips them: a bound acts as half of it."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action * 0.5, out)


class ChangesActions(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        action[0] = 0


class Diverges(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        if self.steps == 5:
            out.final_observation[1 % self.num_envs, 1] = float("inf")
            out.observation[1 % self.num_envs, 1] = float("inf")


class RemembersSteps(Wrapper):
    """Rewards by a counter that no reset sets back."""

    lifetime = 0

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.lifetime += 1
        out.reward[0] *= 1.0 - 1e-3 * self.lifetime


class IgnoresRunSeed(Wrapper):
    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, 0)


class ResetsUnseeded(Wrapper):
    """Starts wherever chance has it, whatever the run seed."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(spec, num_envs, random.SystemRandom().getrandbits(62))


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


class OverwritesFinal(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.final_observation.copy_(out.observation)


class FinalBeforeStep(Wrapper):
    """The final observation is the one before the last step."""

    last: Tensor

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        super().reset(observation, episode_seeds)
        self.last = observation.clone()

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.final_observation[ended(out)] = self.last[ended(out)]
        self.last = out.observation.clone()


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


class DeathIsLimit(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.truncated.copy_(ended(out))
        out.terminated.zero_()


class LimitOneLate(Wrapper):
    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        super().__init__(envs.spec(spec.name, spec.max_episode_steps + 1), num_envs, run_seed)
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


class CountsAfterReset(Wrapper):
    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        out.episode_length[ended(out)] = 0


class ListensToNeighbour(Wrapper):
    """Environment 0's actions reach the last environment."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        mixed = action.clone()
        mixed[-1] = action[0]
        super().step(mixed, out)


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


# (fault, environment, the first check to fail, the element that it names)
FAULTS: list[tuple[type[Wrapper], str, str, str]] = [
    (LeavesRewardStale, "cartpole", "buffers", "reward"),
    (LeavesFlagStale, "pendulum", "buffers", "truncated"),
    (LeavesResetShort, "pendulum", "buffers", "observation[2]"),
    (WritesBeside, "cartpole", "buffers", "observation"),
    (ExceedsBounds, "pendulum", "metadata", "observation[0]"),
    (RewardsOtherwise, "cartpole", "metadata", "reward"),
    (FlagsOfAllBits, "cartpole", "metadata", "terminated"),
    (CountsActionsFromOne, "cartpole", "metadata", "action"),
    (HalvesActions, "pendulum", "metadata", "action"),
    (ChangesActions, "cartpole", "metadata", "action"),
    (Diverges, "pendulum", "finite", "observation[1]"),
    (RemembersSteps, "pendulum", "determinism", "reward"),
    (IgnoresRunSeed, "cartpole", "seeds", "episode_seed"),
    (ResetsUnseeded, "cartpole", "determinism", "observation[0]"),
    (SeedsAlike, "pendulum", "seeds", "observation"),
    (RepeatsEpisodes, "cartpole", "resets", "observation[0]"),
    (KeepsSeedAcrossEpisodes, "cartpole", "seeds", "episode_seed"),
    (OverwritesFinal, "cartpole", "resets", "final_observation[0]"),
    (FinalBeforeStep, "cartpole", "resets", "final_observation[0]"),
    (FinalBeforeStep, "pendulum", "resets", "final_observation[0]"),
    (ObservesOldEpisode, "pendulum", "resets", "observation[0]"),
    (LimitIsDeath, "pendulum", "time_limit", "terminated"),
    (LimitOnlyDeath, "cartpole", "time_limit", "truncated"),
    (DeathIsLimit, "cartpole", "time_limit", "truncated"),
    (LimitOneLate, "pendulum", "time_limit", "truncated"),
    (DeathHidesLimit, "cartpole", "time_limit", "truncated"),
    (ForgetsLastReward, "cartpole", "accounting", "episode_return"),
    (CountsAfterReset, "pendulum", "accounting", "episode_length"),
    (ListensToNeighbour, "cartpole", "alone", "observation[1]"),
    (CutsSeeds, "pendulum", "splits", "observation"),
    (TrainsOnHeldOut, "cartpole", "splits", "episode_seed"),
]


@pytest.mark.parametrize("name", envs.names())
def test_native_environments_pass(name: str) -> None:
    checks = validation.validate(native, plan(name))
    assert [check.verdict for check in checks] == ["pass"] * len(validation.CHECKS), checks
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize(("fault", "name", "check", "element"), FAULTS)
def test_a_fault_is_named(fault: type[Wrapper], name: str, check: str, element: str) -> None:
    failed = [each for each in validation.validate(fault, plan(name)) if each.verdict == "fail"]
    assert [each.name for each in failed][:1] == [check], failed
    assert (failed[0].evidence or {})["element"] == element, failed[0]


def test_every_check_has_its_fault() -> None:
    assert {check for _, _, check, _ in FAULTS} == {
        check.__name__.removeprefix("check_") for check in validation.CHECKS
    }


def test_the_place_of_a_fault_is_named() -> None:
    check = validation.check_buffers(LeavesRewardStale, plan("cartpole"))
    wanted, found = "to be written", "still what the buffer held before"
    place = {"element": "reward", "environment": 3, "step": 17, "wanted": wanted, "found": found}
    assert check == Check("buffers", "fail", place)


def test_a_plan_too_short_to_see_an_end_is_refused() -> None:
    with pytest.raises(UserError, match="steps must be at least 10, to reach an end; got 9"):
        Plan(envs.spec("cartpole"), num_envs=1, steps=9, run_seed=1)
    assert all(check.verdict == "pass" for check in validation.validate(native, Plan(envs.spec("cartpole"), 1, 10, 1)))
