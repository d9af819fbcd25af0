"""Proximal policy optimization: one training iteration, straight down.

    collect      the policy plays T steps of N environments; what it saw and did is recorded
    advantages   how much better each action did than expected
    update       a few passes over the recorded samples, in shuffled minibatches
    metrics      what happened, in numbers

Sources: Schulman et al., "Proximal policy optimization algorithms", arXiv:1707.06347, and "High-dimensional continuous
control using generalized advantage estimation", arXiv:1506.02438; customary details: Huang et al., "The 37
implementation details of proximal policy optimization", 2022. Dimensions: T steps, N environments, D floats observed,
B samples of a minibatch, P parameters of the action distribution.

Clipping bounds what a sampled action's probability ratio can earn. It does not keep the policy inside
[1 - clip_coef, 1 + clip_coef]: `clip_fraction_after` says how many ratios lie outside once the update is done.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from envs.vector import VectorEnv
from kernels.advantage_shift import advantage_shift
from kernels.errors import UserError
from kernels.gae import gae
from kernels.ppo_loss import METRICS, ppo_loss
from kernels.shuffle import shuffle
from pipeline.config import PPOConfig
from pipeline.optimizer import Adam
from pipeline.policy import Policy, sample
from pipeline.profile import Clock
from pipeline.rollout import Rollout


class PPO:
    """A training in progress.

    Args:
        config: hyperparameters.
        env: the N environments that are trained on.
        policy: the network; `optimizer` steps its parameters.
        run_seed: moves actions and shuffles; the environments and the first weights have it already.
        clock: takes the time of each phase.
    """

    def __init__(
        self, config: PPOConfig, env: VectorEnv, policy: Policy, optimizer: Adam, run_seed: int, clock: Clock
    ) -> None:
        self.config, self.env, self.policy, self.optimizer, self.clock = config, env, policy, optimizer, clock
        self.run_seed = run_seed
        self.iteration = 0  # iterations done; also the version of the policy that collects next
        self.iterations = config.total_steps // config.batch_size
        self.learning_rate = _linear if config.anneal_lr else _constant
        self.shift = advantage_shift if config.norm_adv else _as_it_is

        device = env.device
        minibatch = config.batch_size // config.num_minibatches
        self.rollout = Rollout(env.spec, config.num_steps, config.num_envs, device)
        self._order = torch.empty(config.batch_size, dtype=torch.int32, device=device)
        self._advantage_shift = torch.empty(2, device=device)
        self._grad_value = torch.empty(minibatch, device=device)
        self._metrics = torch.empty(config.update_epochs * config.num_minibatches, len(METRICS), device=device)
        self._metrics_after = torch.empty(len(METRICS), device=device)
        self._norms = torch.empty(len(self._metrics), device=device)
        env.reset(self.rollout.observations[-1])

    @property
    def steps(self) -> int:
        """Environment steps taken, all environments together."""
        return self.iteration * self.config.batch_size

    @property
    def finished(self) -> bool:
        return self.iteration >= self.iterations

    def iterate(self) -> dict[str, float]:
        """One iteration; returns its metrics."""
        learning_rate = self.learning_rate(self.config.learning_rate, self.iteration, self.iterations)
        self.collect()
        with self.clock.phase("advantage"):
            self.advantages()
        with self.clock.phase("minibatch_update"):
            self.update(learning_rate)
        self.iteration += 1
        with self.clock.phase("logging"):
            return self.metrics(learning_rate)

    @torch.no_grad()
    def collect(self) -> None:
        """Plays T steps. Actions and log-probabilities are recorded as sampled; the environment clips for itself."""
        rollout = self.rollout
        rollout.observations[0].copy_(rollout.observations[-1])
        rollout.policy_versions.fill_(self.iteration)
        for t in range(rollout.steps):
            step = self.iteration * rollout.steps + t
            with self.clock.phase("rollout_forward"):
                parameters = self.policy.distribution(rollout.observations[t])  # (N, P)
                drawn = (rollout.actions[t], rollout.log_probs[t], rollout.entropies[t])
                sample(parameters, *drawn, step, self.run_seed)
            with self.clock.phase("env_step"):
                self.env.step(rollout.actions[t], rollout.step_output(t))

    @torch.no_grad()
    def advantages(self) -> None:
        """Values by the policy that collected, then GAE.

        Where only a time limit ended an episode, its last observation's value stands in for what would have followed.
        """
        rollout = self.rollout
        values = self.policy.value(rollout.observations.flatten(0, 1))  # ((T + 1) * N,)
        rollout.values.copy_(values.view_as(rollout.values))
        cut = (rollout.truncated > rollout.terminated).flatten().nonzero().squeeze(-1)
        if len(cut):
            final = self.policy.value(rollout.final_observations.flatten(0, 1).index_select(0, cut))
            rollout.final_values.view(-1).index_copy_(0, cut, final)
        gae(
            rollout.rewards,
            rollout.values,
            rollout.final_values,
            rollout.terminated,
            rollout.truncated,
            rollout.advantages,
            rollout.returns,
            self.config.gamma,
            self.config.gae_lambda,
        )
        if wrong := rollout.first_not_finite():
            raise UserError(
                f"iteration {self.iteration}: every value must be finite; found NaN or infinity in {wrong}. "
                "Check the environment's numbers, or train with a smaller ppo.learning_rate"
            )

    def update(self, learning_rate: float) -> None:
        """Passes over the rollout in shuffled minibatches, one optimizer step each."""
        config, rollout = self.config, self.rollout
        observations = rollout.observations[:-1].flatten(0, 1)  # (T * N, D), a view
        minibatches = self._order.split(len(self._grad_value))
        number = 0
        for epoch in range(config.update_epochs):
            shuffle(self._order, self.iteration, epoch, self.run_seed)
            for index in minibatches:
                self.shift(rollout.advantages.view(-1), index, self._advantage_shift)
                observation = observations.index_select(0, index)  # (B, D)
                parameters = self.policy.distribution(observation)  # (B, P)
                value = self.policy.value(observation)  # (B,)
                gradient = self._loss(index, parameters.detach(), value.detach(), self._metrics[number])
                # A scalar of the same gradient: handed to autograd, gradients make torch import sympy, which takes 2 s.
                ((parameters * gradient).sum() + (value * self._grad_value).sum()).backward()
                self.optimizer.step(learning_rate)
                self._norms[number] = self.optimizer.norm[0]
                number += 1
        with torch.no_grad():  # the last minibatch, a random sample of the batch, seen by the finished policy
            parameters = self.policy.distribution(observation)
            self._loss(index, parameters, value.detach(), self._metrics_after)

    def _loss(self, index: Tensor, parameters: Tensor, value: Tensor, metrics: Tensor) -> Tensor:
        """The loss of the samples at `index`; returns its gradient by `parameters`, that by `value` is kept."""
        config, rollout = self.config, self.rollout
        gradient = torch.empty_like(parameters)
        ppo_loss(
            parameters,
            value,
            index,
            rollout.actions.flatten(0, 1),
            rollout.log_probs.view(-1),
            rollout.advantages.view(-1),
            rollout.returns.view(-1),
            self._advantage_shift,
            gradient,
            self._grad_value,
            metrics,
            clip_coef=config.clip_coef,
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
        )
        return gradient

    def metrics(self, learning_rate: float) -> dict[str, float]:
        """The iteration's numbers: means over its minibatches, and over the episodes that ended in it (NaN if none)."""
        rollout = self.rollout
        ended = (rollout.terminated | rollout.truncated).bool()
        returns = rollout.episode_returns[ended].double()
        means = self._metrics.double().mean(0).tolist()
        metrics = {
            "episode_return_mean": float(returns.mean()),
            "episode_length_mean": float(rollout.episode_lengths[ended].double().mean()),
            "episodes": float(len(returns)),
            **dict(zip(METRICS, means, strict=True)),
            "clip_fraction_after": float(self._metrics_after[METRICS.index("clip_fraction")]),
            "explained_variance": _explained_variance(rollout.values[:-1], rollout.returns),
            "grad_norm": float(self._norms.double().mean()),
            "learning_rate": learning_rate,
        }
        if not math.isfinite(means[0]) or not math.isfinite(metrics["grad_norm"]):
            raise UserError(
                f"iteration {self.iteration - 1}: loss and gradient must be finite; got policy loss {means[0]}, "
                f"gradient norm {metrics['grad_norm']}. Train with a smaller ppo.learning_rate"
            )
        return metrics

    def state(self) -> dict[str, Tensor]:
        """All that a later iteration depends on beside the parameters, by reference; `iteration` is the caller's."""
        env = {f"env.{name}": tensor for name, tensor in self.env.state().items()}
        optimizer = {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state().items()}
        return {**env, **optimizer, "observation": self.rollout.observations[-1]}

    def load_state(self, tensors: Mapping[str, Tensor], iteration: int) -> None:
        """Goes on from a state that `state` gave."""
        self.iteration = iteration
        self.env.load_state(_section(tensors, "env."))
        self.optimizer.load_state(_section(tensors, "optimizer."))
        self.rollout.observations[-1].copy_(tensors["observation"])


def _section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _linear(initial: float, iteration: int, iterations: int) -> float:
    """Falls from the initial value towards zero, which it would reach after the last iteration."""
    return initial * (1.0 - iteration / iterations)


def _constant(initial: float, iteration: int, iterations: int) -> float:
    return initial


def _as_it_is(advantage: Tensor, index: Tensor, shift: Tensor) -> None:
    """In the place of `advantage_shift`: advantages enter as they are."""
    shift[0], shift[1] = 0.0, 1.0


def _explained_variance(values: Tensor, returns: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns): 1 is a perfect critic, 0 one that knows the mean. NaN if 0 / 0."""
    target = returns.double()
    variance = target.var(correction=0)
    return float(1.0 - (target - values.double()).var(correction=0) / variance) if variance > 0 else math.nan
