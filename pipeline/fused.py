"""The fast path: the standard MLP on native environments, network and all in kernels (kernels/mlp.py).

Its bits are the same on every machine. On the CPU an iteration is three programs: launches that are recorded once and
then run by one call each.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envs.vector import NativeVectorEnv
from kernels.launcher import Program
from kernels.mlp import MLP, partitions, tiles
from kernels.ppo_loss import METRICS, SUM
from pipeline.config import PPOConfig
from pipeline.mlp import FUSED
from pipeline.optimizer import Adam
from pipeline.policy import FlatParameters
from pipeline.profile import Clock
from pipeline.rollout import Rollout


class Learner:
    """What an MLP learns with: values, gradient and metrics, whoever steps the environments."""

    def __init__(self, mlp: MLP, flat: FlatParameters, config: PPOConfig) -> None:
        self._mlp, self._flat, self._config = mlp, flat, config
        packed, gradient, _ = mlp.sizes
        count = partitions(config.minibatch_size)
        new = flat.parameters.new_zeros
        self._packed, self._partials, self._sums = new(packed), new(count, gradient), new(gradient)
        self._metric_partials = new(count, len(METRICS))

    def prepared(self, work: Callable[[], None]) -> Callable[[], None]:
        """The launches of `work`, recorded now."""
        return Program(work)

    def evaluate(self, rollout: Rollout) -> None:
        self._mlp.values(self._packed, rollout.observations.flatten(0, 1), rollout.values.view(-1))
        ends = (rollout.terminated.view(-1), rollout.truncated.view(-1))
        self._mlp.final_values(
            self._packed, rollout.final_observations.flatten(0, 1), *ends, rollout.final_values.view(-1)
        )

    def step(
        self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor, optimizer: Adam, number: int
    ) -> None:
        config = self._config
        samples = (rollout.seen, index, *rollout.recorded, shift)
        self._mlp.gradient(self._packed, samples, self._partials, config.clip_coef, config.ent_coef, config.vf_coef)
        parameters, gradients = self._flat.parameters, self._flat.gradients
        self._mlp.reduce(self._partials, parameters, self._sums, gradients, optimizer.squares, metrics, len(index))
        optimizer.step_clipped(number)
        self._mlp.pack(parameters, self._packed)

    def look_back(self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor) -> None:
        samples = (rollout.seen, index, *rollout.recorded, shift)
        config = self._config
        self._mlp.policy_metrics(self._packed, samples, self._metric_partials, config.clip_coef, config.ent_coef)
        SUM(self._metric_partials, metrics, len(index))


class Fused(Learner):
    """Runs an MLP on native environments; what each method has to do is said in pipeline/ppo.py."""

    name = FUSED

    def __init__(self, mlp: MLP, flat: FlatParameters, env: NativeVectorEnv, config: PPOConfig, run_seed: int) -> None:
        super().__init__(mlp, flat, config)
        self._env, self._run_seed = env, run_seed
        self._ticks = torch.zeros(tiles(env.num_envs, env.spec.agents), 2, dtype=torch.int64, device=env.device)

    def playing(self, work: Callable[[], None]) -> Callable[[], None]:
        return self.prepared(work)

    def whole(self, work: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
        return work

    def collect(self, rollout: Rollout, iteration: Tensor, clock: Clock) -> None:
        self._mlp.pack(self._flat.parameters, self._packed)
        written = (
            rollout.actions, rollout.observations, rollout.log_probs, rollout.entropies, rollout.rewards,
            rollout.terminated, rollout.truncated, rollout.final_observations, rollout.episode_returns,
            rollout.episode_lengths, rollout.policy_versions, self._ticks,
        )  # fmt: skip
        env, spec = self._env, self._env.spec
        parts = (self._packed, iteration, env.state(), env.bounds, written)
        limits = (spec.max_episode_steps, self._run_seed)
        self._mlp.rollout(spec.header, spec.state_size, spec.agents, *parts, *limits)

    def attribute(self, clock: Clock) -> None:
        clock.attribute("env_step", self._ticks)
