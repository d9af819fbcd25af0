"""Measuring a training while it goes on: steps and arithmetic a second beside the processor's peak, phases, memory."""

import contextlib
import io
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

import envs
from kernels import compiler
from kernels.fma_peak import BLOCK, fma_peak
from pipeline import tracking
from pipeline.assembly import Training, assemble
from pipeline.config import Config, PPOConfig
from pipeline.log import Log
from pipeline.policy import ActorCritic
from pipeline.profile import PHASES, Clock, clock_of
from pipeline.progress import TrainingProgress

TIMED = PHASES[:-1]  # all but what is left of the wall
_ROUNDS = 1024  # of the yardstick's chains: a block takes a tenth of a millisecond or less
_BLOCKS = 16  # for each thread
_LAUNCHES = 10  # at least: another process may take a core during some of them

# ---------------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Multiply-adds of one iteration: of its update, and in all."""

    update: int
    whole: int


def multiply_adds(policy: ActorCritic, config: PPOConfig) -> Work:
    """What PPO needs of the network's matrix products in one iteration of N environments and T steps.

    A layer's product of one sample is `inputs * outputs` multiply-adds; F(actor), F(critic) and F(network) are sums of
    that over the layers that the actor's outputs need, that the value needs, and over all. Then

        rollout    N * T * F(actor)
        values     N * (T + 1) * F(critic)
        update     epochs * N * T * (3 * F(network) - F(first layers))

    where the update is forward, gradient by the weights, and gradient by the inputs, which the layers that read the
    observation do not need. Biases, activations, loss, optimizer, padding, the values of cut episodes' ends and the
    metrics' pass over the last minibatch are not counted, so that shares of the peak are low rather than high.
    """
    actor, critic = _products(policy.trunk, policy.actor), _products(policy.trunk, policy.critic)
    first = [policy.trunk[0]] if len(policy.trunk) else [policy.actor[0], policy.critic[0]]
    update = config.update_epochs * config.batch_size * (3 * _products(policy) - _products(*first))
    return Work(update, update + config.batch_size * actor + (config.batch_size + config.num_envs) * critic)


def _products(*modules: nn.Module) -> int:
    layers = (layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear))
    return sum(layer.weight.numel() for layer in layers)


def fma_gflops(device: torch.device, threads: int, seconds: float) -> float:
    """The peak of fused multiply-adds on all threads, two operations each: the best launch of some seconds."""
    blocks = _BLOCKS * threads if device.type == "cpu" else 1 << 14
    x = torch.ones(blocks * BLOCK, device=device)
    operations, best, launches = 2.0 * _ROUNDS * len(x), 0.0, 0
    begun = time.perf_counter()
    while launches < _LAUNCHES or time.perf_counter() - begun < seconds:
        launches += 1
        launched = time.perf_counter()
        fma_peak(x, _ROUNDS, 0.75, 0.5)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, operations / (time.perf_counter() - launched) / 1e9)
    return best


# ---------------------------------------------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------------------------------------------


def forget_peak() -> None:
    """The peak of the resident memory counts from here, where the system can do that: on Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The largest resident memory of the process since `forget_peak`; elsewhere than on Linux since its start."""
    return _status("VmHWM") or _usage()


def resident_bytes() -> int:
    """The resident memory of the process; elsewhere than on Linux its peak."""
    return _status("VmRSS") or _usage()


def _status(name: str) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return None


def _usage() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# ---------------------------------------------------------------------------------------------------------------------
# Trainings in rounds
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Round:
    """What one round found: iterations, their seconds by phase with `wall`, the peak in GFLOP/s just before."""

    iterations: int
    seconds: Mapping[str, float]
    peak: float


class Measured:
    """A training under way, with the log that the stage would write, measured in rounds.

    Attributes:
        first_seconds: of its first iteration.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._device = torch.device(config.device.resolve())
        before = resident_bytes()
        forget_peak()
        compiler.set_threads(config.device.threads)
        self._clock = clock_of(self._device)
        self._training = start(config, self._device, self._clock)
        self._log, self._row, self._progress = Log(), tracking.NullRun(), unseen_progress(self._training)
        begun = time.perf_counter()
        self._iterate()
        self.first_seconds = time.perf_counter() - begun
        self._iterate()  # from the second one on, nothing is allocated
        self._memory = peak_bytes() - before
        self._rounds: list[Round] = []

    def _iterate(self) -> None:
        ppo = self._training.ppo
        self._log.iteration(ppo, ppo.iterate(), self._row, self._progress)

    def round(self, seconds: float, peak_seconds: float) -> None:
        """The peak for some seconds, then iterations for some seconds."""
        compiler.set_threads(self.config.device.threads)
        peak = fma_gflops(self._device, threads_of(self.config), peak_seconds)
        before, iterations, begun = self._clock.seconds(), 0, time.perf_counter()
        while not iterations or time.perf_counter() - begun < seconds:
            self._iterate()
            iterations += 1
        after = self._clock.seconds()
        self._rounds.append(Round(iterations, {name: after[name] - before[name] for name in after}, peak))

    def row(self, base: int) -> dict[str, Any]:
        """The training in words, and the numbers that its rounds found.

        Args:
            base: resident bytes of the process with its libraries and without a training.
        """
        config = self.config
        work = multiply_adds(self._training.policy, config.ppo)
        return {
            "env": config.env.title,
            "num_envs": config.ppo.num_envs,
            "num_steps": config.ppo.num_steps,
            "hidden": list(config.policy.hidden),
            "threads": threads_of(config),
            "path": self._training.path,
            **numbers(self._rounds, work, config.ppo.batch_size),
            "peak_memory_bytes": base + self._memory,
        }


def numbers(rounds: Sequence[Round], work: Work, batch_size: int) -> dict[str, Any]:
    """Steps and GFLOP/s (of all over the wall, of the update over its phase), each beside its round's peak.

    Of each the median of the rounds, and the smallest and the largest as `<name>_range`; `phases` are shares of the
    wall of all rounds, `phases_sum` is their sum.
    """

    def each(number: Callable[[Round], float]) -> list[float]:
        return [number(found) for found in rounds]

    def whole(found: Round) -> float:
        return 2e-9 * work.whole * found.iterations / found.seconds["wall"]

    def update(found: Round) -> float:
        return 2e-9 * work.update * found.iterations / found.seconds["minibatch_update"]

    wall = sum(each(lambda found: found.seconds["wall"]))
    phases = {name: sum(each(lambda found: found.seconds[name])) / wall for name in TIMED}
    return {
        **spread("steps_per_second", each(lambda found: found.iterations * batch_size / found.seconds["wall"])),
        **spread("gflops", each(whole)),
        **spread("update_gflops", each(update)),
        **spread("fma_peak_gflops", each(lambda found: found.peak)),
        **spread("peak_share", each(lambda found: whole(found) / found.peak)),
        **spread("update_peak_share", each(lambda found: update(found) / found.peak)),
        "phases": phases,
        "phases_sum": sum(phases.values()),
    }


def start(config: Config, device: torch.device, clock: Clock) -> Training:
    """A training of the configuration, as the stage starts it."""
    return assemble(config, envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host), device, clock)


def unseen_progress(training: Training) -> TrainingProgress:
    """The stage's progress, as it writes lines where there is no terminal, to nowhere."""
    ppo = training.ppo
    return TrainingProgress(
        ppo.env.spec.name, ppo.iterations * ppo.config.batch_size, console=Console(file=io.StringIO())
    )


def threads_of(config: Config) -> int:
    """How many threads run the kernels."""
    return config.device.threads or compiler.cores()


def spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    """The median of some values, and the smallest and the largest of them."""
    return {name: statistics.median(values), f"{name}_range": [min(values), max(values)]}
