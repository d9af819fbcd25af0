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
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from envs.vector import VectorEnv
from kernels.advantage_shift import advantage_shift
from kernels.errors import UserError
from kernels.gae import gae
from kernels.ppo_loss import METRICS
from kernels.shuffle import shuffle
from kernels.summary import NUMBERS, SUMS, partitions, summary
from pipeline.config import PPOConfig
from pipeline.optimizer import Adam
from pipeline.profile import Clock
from pipeline.readback import Readback
from pipeline.rollout import Rollout
from pipeline.samples import all_rows, living_rows


class Path(Protocol):
    """How the network is run: pipeline/fused.py where it fits, pipeline/general.py elsewhere."""

    @property
    def name(self) -> str: ...

    def prepared(self, work: Callable[[], None]) -> Callable[[], None]:
        """`work`, or the launches that it consists of, recorded."""

    def playing(self, work: Callable[[], None]) -> Callable[[], None]:
        """As `prepared`, for the `work` that steps the environments."""

    def whole(self, work: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
        """`work`, all that the device does of an iteration, or one launch of it, captured; `state` is as it was."""

    def collect(self, rollout: Rollout, iteration: Tensor, clock: Clock) -> None:
        """Plays T steps from the last row of the observations, which becomes the first.

        Actions and log-probabilities are recorded as sampled; the environment clips for itself.
        """

    def attribute(self, clock: Clock) -> None:
        """Tells the clock what `collect` just spent in the environments, where it has not done so itself."""

    def evaluate(self, rollout: Rollout) -> None:
        """Values of all observations, and of those that a time limit alone cut an episode at."""

    def step(
        self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor, optimizer: Adam, number: int
    ) -> None:
        """The loss's gradient over the samples at `index`, (B,) int32, and step `number` of the optimizer."""

    def look_back(self, rollout: Rollout, index: Tensor, shift: Tensor, metrics: Tensor) -> None:
        """The policy's metrics on a minibatch without a gradient."""


class PPO:
    """A training in progress.

    Args:
        config: hyperparameters.
        env: the N environments that are trained on.
        path: runs the network; `optimizer` steps its parameters.
        run_seed: moves actions and shuffles; the environments and the first weights have it already.
        clock: takes the time of each phase.
    """

    def __init__(
        self, config: PPOConfig, env: VectorEnv, path: Path, optimizer: Adam, run_seed: int, clock: Clock
    ) -> None:
        self.config, self.env, self.path, self.optimizer, self.clock = config, env, path, optimizer, clock
        self.run_seed = run_seed
        self.iteration = 0  # iterations done, their numbers read
        self._begun = 0  # iterations that the device was given; also the version of the policy that collects next
        self.iterations = config.total_steps // config.batch_size
        self.learning_rate = _linear if config.anneal_lr else _constant
        self.shift = advantage_shift if config.norm_adv else _as_it_is

        self.rows = all_rows if env.alive is None else living_rows

        device = env.device
        minibatches = config.update_epochs * config.num_minibatches
        self.rollout = Rollout(env.spec, config.num_steps, config.num_envs, device)
        self._iteration = torch.zeros(1, dtype=torch.int32, device=device)
        self._order = torch.empty(config.num_minibatches, config.minibatch_size, dtype=torch.int32, device=device)
        self._shifts = torch.empty(config.num_minibatches, 2, device=device)
        self._metrics = torch.empty(minibatches, len(METRICS), device=device)
        self._metrics_after = torch.empty(len(METRICS), device=device)
        self._sums = torch.empty(partitions(config.batch_size), SUMS, dtype=torch.float64, device=device)
        self._numbers = torch.empty(len(NUMBERS) + len(METRICS), dtype=torch.float64, device=device)
        self._read = Readback(self._numbers, self._metrics_after)
        env.reset(self.rollout.observations[-1])
        self._collect = path.playing(self.collect)
        self._advantages = path.prepared(self.advantages)
        # Where rows are left out, the number of minibatches differs from one iteration to the next.
        self._update = path.prepared(self.update) if env.alive is None else self.update
        self._work = path.whole(self.work, list(self.state().values()))
        clock.begin()

    @property
    def steps(self) -> int:
        """Environment steps taken, all environments together."""
        return self.iteration * self.config.batch_size

    @property
    def finished(self) -> bool:
        return self.iteration >= self.iterations

    def iterate(self, ahead: bool = False) -> dict[str, float]:
        """One iteration; returns its metrics.

        `ahead`: the device gets the next iteration too before this one's numbers are read, so that it waits for no one.
        The state is then the next iteration's, until an iteration is not ahead.
        """
        if self._begun == self.iteration:
            self._begin()
        if ahead and self._begun < self.iterations:
            self._begin()
        self.iteration += 1
        with self.clock.phase("logging"):
            return self.metrics()

    def _begin(self) -> None:
        with self.clock.phase("minibatch_update"):
            self.optimizer.begin(self._rate(self._begun))
        self._iteration.fill_(self._begun)
        self._work()
        self._read.send(self._begun)
        self._begun += 1

    def _rate(self, iteration: int) -> float:
        return self.learning_rate(self.config.learning_rate, iteration, self.iterations)

    def work(self) -> None:
        """What the device does of an iteration."""
        with self.clock.phase("rollout_forward"):
            self._collect()
            self.path.attribute(self.clock)
        with self.clock.phase("advantage"):
            self._advantages()
        with self.clock.phase("minibatch_update"):
            self._update()

    def collect(self) -> None:
        """T steps of N environments, as the policy samples."""
        self.path.collect(self.rollout, self._iteration, self.clock)

    def advantages(self) -> None:
        """Values by the policy that collected, then GAE.

        Where only a time limit ended an episode, its last observation's value stands in for what would have followed.
        """
        rollout = self.rollout
        self.path.evaluate(rollout)
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

    def update(self) -> None:
        """Passes over the rollout in shuffled minibatches, one optimizer step each."""
        rollout, number = self.rollout, 0
        for epoch in range(self.config.update_epochs):
            shuffle(self._order.view(-1), self._iteration, epoch, self.run_seed)
            order = self.rows(rollout, self._order)
            shifts = self._shifts[: len(order)]
            self.shift(rollout.advantages.view(-1), order, shifts)
            for index, shift in zip(order, shifts, strict=True):
                self.path.step(rollout, index, shift, self._metrics[number], self.optimizer, number)
                number += 1
        # The last minibatch, a random sample of the batch, seen by the finished policy.
        self.path.look_back(rollout, index, shift, self._metrics_after)
        self.optimizer.end(number)
        self.summarize(number)

    def summarize(self, minibatches: int) -> None:
        """The iteration's numbers: of the rollout, of the episodes that ended in it, means over its minibatches."""
        rollout = self.rollout
        summary(
            rollout.observations.view(-1),
            rollout.rewards.view(-1),
            rollout.log_probs.view(-1),
            rollout.values.view(-1),
            rollout.advantages.view(-1),
            rollout.returns.view(-1),
            rollout.terminated.view(-1),
            rollout.truncated.view(-1),
            rollout.episode_returns.view(-1),
            rollout.episode_lengths.view(-1),
            self._metrics[:minibatches],
            self.optimizer.norms[:minibatches],
            self._sums,
            self._numbers,
        )

    def metrics(self) -> dict[str, float]:
        """The last iteration's numbers; those of episodes are NaN where none ended.

        Raises:
            UserError: a number is not finite.
        """
        iteration = self.iteration - 1
        found, after = self._read.receive(iteration)
        numbers = dict(zip((*NUMBERS, *METRICS), found, strict=True))
        if numbers.pop("not_finite"):
            # Where the device is ahead, the rollout is the next iteration's.
            place = self.rollout.first_not_finite() if self._begun == self.iteration else None
            raise UserError(
                f"iteration {iteration}: every value must be finite; found NaN or infinity in "
                f"{place or 'its rollout'}. Check the environment's numbers, or train with "
                "a smaller ppo.learning_rate"
            )
        if not math.isfinite(numbers["policy_loss"]) or not math.isfinite(numbers["grad_norm"]):
            raise UserError(
                f"iteration {iteration}: loss and gradient must be finite; got policy loss "
                f"{numbers['policy_loss']}, gradient norm {numbers['grad_norm']}. Train with a smaller "
                "ppo.learning_rate"
            )
        clipped = after[METRICS.index("clip_fraction")]
        return {**numbers, "clip_fraction_after": clipped, "learning_rate": self._rate(iteration)}

    def state(self) -> dict[str, Tensor]:
        """All that a later iteration depends on beside the parameters, by reference; `iteration` is the caller's."""
        env = {f"env.{name}": tensor for name, tensor in self.env.state().items()}
        optimizer = {f"optimizer.{name}": tensor for name, tensor in self.optimizer.state().items()}
        return {**env, **optimizer, "observation": self.rollout.observations[-1]}

    def load_state(self, tensors: Mapping[str, Tensor], iteration: int) -> None:
        """Goes on from a state that `state` gave."""
        self.iteration = self._begun = iteration
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


def _as_it_is(advantage: Tensor, indices: Tensor, shifts: Tensor) -> None:
    """In the place of `advantage_shift`: advantages enter as they are."""
    shifts[:, 0].zero_()
    shifts[:, 1].fill_(1.0)
