"""The general path: torch's autograd for the network, whatever it is, and kernels for everything else."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envs.vector import VectorEnv
from kernels.ppo_loss import ppo_loss
from pipeline.config import PPOConfig
from pipeline.optimizer import Adam
from pipeline.policy import FlatParameters, Policy, sample, several
from pipeline.profile import Clock
from pipeline.rollout import Rollout


class StepByStep:
    """Plays a rollout one step after the other, in whatever environment."""

    def __init__(self, env: VectorEnv, run_seed: int) -> None:
        self._env, self._run_seed = env, run_seed
        self._first = torch.zeros(1, dtype=torch.int32, device=env.device)

    def distribution(self, observation: Tensor) -> Tensor:
        """(N, D) to (N, P), the parameters of the action distribution, read before the next call."""
        raise NotImplementedError

    def playing(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def whole(self, work: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
        return work

    @torch.no_grad()
    def collect(self, rollout: Rollout, iteration: Tensor, clock: Clock) -> None:
        rollout.observations[0].copy_(rollout.observations[-1])
        rollout.policy_versions.copy_(iteration.expand_as(rollout.policy_versions))
        torch.mul(iteration, rollout.steps, out=self._first)
        for t in range(rollout.steps):
            parameters = self.distribution(rollout.observations[t])
            drawn = (rollout.actions[t], rollout.log_probs[t], rollout.entropies[t])
            sample(parameters, *drawn, t, self._run_seed, several(self._env.spec), self._first)
            with clock.phase("env_step"):
                self._env.step(rollout.actions[t], rollout.step_output(t))

    def attribute(self, clock: Clock) -> None:
        pass  # the clock saw each step


class General(StepByStep):
    """Runs any torch policy on any environment; what each method has to do is said in pipeline/ppo.py."""

    name = "general"

    def __init__(self, policy: Policy, flat: FlatParameters, env: VectorEnv, config: PPOConfig, run_seed: int) -> None:
        super().__init__(env, run_seed)
        self.network, self._flat, self._config = policy, flat, config
        self._grad_value = torch.empty(config.minibatch_size, device=env.device)

    def prepared(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def distribution(self, observation: Tensor) -> Tensor:
        return self.network.distribution(observation)

    @torch.no_grad()
    def evaluate(self, rollout: Rollout) -> None:
        values = self.network.value(rollout.observations.flatten(0, 1))  # ((T + 1) * N,)
        rollout.values.copy_(values.view_as(rollout.values))
        self.final_values(rollout)

    def final_values(self, rollout: Rollout) -> None:
        """Of the observations that a time limit alone cut an episode at."""
        cut = (rollout.truncated > rollout.terminated).flatten().nonzero().squeeze(-1)
        if len(cut):
            final = self.network.value(rollout.final_observations.flatten(0, 1).index_select(0, cut))
            rollout.final_values.view(-1).index_copy_(0, cut, final)

    def step(
        self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor, optimizer: Adam, number: int
    ) -> None:
        observation = rollout.seen.index_select(0, index)  # (B, D)
        parameters = self.network.distribution(observation)  # (B, P)
        value = self.network.value(observation)  # (B,)
        gradient = self._loss(rollout, index, shift, parameters.detach(), value.detach(), metrics)
        self._flat.gradients.zero_()
        # A scalar of the same gradient: handed to autograd, gradients make torch import sympy, which takes 2 s.
        ((parameters * gradient).sum() + (value * self._grad_value[: len(index)]).sum()).backward()
        optimizer.step(number)

    @torch.no_grad()
    def look_back(self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor) -> None:
        observation = rollout.seen.index_select(0, index)
        self._loss(rollout, index, shift, self.network.distribution(observation), self._grad_value, metrics)

    def _loss(
        self, rollout: Rollout, index: Tensor, shift: Tensor, parameters: Tensor, value: Tensor, metrics: Tensor
    ) -> Tensor:
        """The loss of the samples at `index`; returns its gradient by `parameters`, that by `value` is kept."""
        gradient = torch.empty_like(parameters)
        config, recorded = self._config, rollout.recorded
        samples = (parameters, value, index, *recorded, shift)
        ppo_loss(
            *samples,
            gradient,
            self._grad_value[: len(index)],
            metrics,
            clip_coef=config.clip_coef,
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
            sizes=several(self._env.spec),
        )
        return gradient
