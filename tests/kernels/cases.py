"""Every kernel with arguments that exercise it: the table that all gates go through."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from compare import poisoned
from torch import Tensor

import envs
from envs import Discrete, EnvSpec
from kernels import (
    adam,
    advantage_shift,
    compiler,
    env,
    episode_seeds,
    gae,
    global_norm,
    muon,
    orthogonal,
    philox_words,
    ppo_loss,
    sample,
    shuffle,
)
from kernels.launcher import In, Kernel, Out, Scalar, partitions, resolve

Fill = Callable[[torch.Generator, tuple[int, ...]], Tensor]


def normal(mean: float = 0.0, deviation: float = 1.0) -> Fill:
    return lambda generator, shape: torch.randn(shape, generator=generator) * deviation + mean


def positive(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=generator) + 0.01


def integers(high: int, dtype: torch.dtype = torch.int32) -> Fill:
    return lambda generator, shape: torch.randint(high, shape, generator=generator, dtype=torch.int64).to(dtype)


@dataclass(frozen=True)
class Case:
    """A kernel's row. An array not in `fill` is normal where it is read, and poison where it is written."""

    kernel: Kernel
    sizes: Callable[[int], Mapping[str, int]]  # of the declared shapes, from the number of rows
    rows: tuple[int, ...]  # one, odd, and enough for several blocks
    fill: Mapping[str, Fill] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    header: Path | None = None

    def arguments(self, rows: int, seed: int = 0) -> list[Any]:
        """Fresh arguments, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        sizes = {**self.sizes(rows), **self.constants}
        values: list[Any] = []
        for argument in self.kernel.arguments:
            if isinstance(argument, Scalar):
                values.append(self.scalars[argument.name])
            elif isinstance(argument, In):
                shape = tuple(int(resolve(sizes, size)) for size in argument.shape)
                values.append(self._array(argument, generator, shape))
        return values

    def _array(self, argument: In, generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
        if argument.name in self.fill:
            return self.fill[argument.name](generator, shape)
        if isinstance(argument, Out):
            return poisoned(*shape, dtype=getattr(torch, argument.dtype))
        return torch.randn(shape, generator=generator)

    def run(self, arguments: list[Any]) -> list[Tensor]:
        """Runs the product's kernel; what it wrote."""
        self.kernel(*arguments, header=self.header, **self.constants)
        return self.outputs(arguments)

    def outputs(self, arguments: list[Any]) -> list[Tensor]:
        passed = [a for a in self.kernel.arguments if isinstance(a, In | Scalar)]
        return [v for a, v in zip(passed, arguments, strict=True) if isinstance(a, Out)]


def _environment(kernel: Kernel, spec: EnvSpec) -> Case:
    discrete = isinstance(spec.action, Discrete)
    actions = spec.action.n if isinstance(spec.action, Discrete) else len(spec.action.low)
    return Case(
        kernel,
        lambda n: {"N": n},
        (1, 33, 257),
        fill={
            "state": normal(),  # many of CartPole's end at once
            "episode_seed": integers(2**62, torch.int64),
            "episode_index": integers(9, torch.int64),
            "episode_length": integers(4),
            "episode_return": normal(),
            "action": integers(actions) if discrete else normal(deviation=3.0),
            "action_low": lambda _, shape: torch.full(shape, -1.5),
            "action_high": lambda _, shape: torch.full(shape, 1.5),
        },
        scalars={"max_episode_steps": 4, "run_seed": 2**63 + 5},
        constants={
            "STATE": spec.state_size,
            "OBSERVATION": spec.observation_size,
            "ACTIONS": actions,
            "DISCRETE": int(discrete),
        },
        header=spec.header,
    )


def _environments() -> dict[str, Case]:
    cases = {}
    for name in envs.names():
        spec = envs.spec(name)
        step = env.ENV_STEP_DISCRETE if isinstance(spec.action, Discrete) else env.ENV_STEP_CONTINUOUS
        cases[f"env_step-{name}"] = _environment(step, spec)
        cases[f"env_reset-{name}"] = _environment(env.ENV_RESET, spec)
    return cases


def _loss(kernel: Kernel, fill: Mapping[str, Fill], constants: Mapping[str, int]) -> Case:
    return Case(
        kernel,
        lambda n: {"B": n, "M": n + 100, "P": partitions(n)},
        (1, 33, 600),
        fill={
            "index": lambda g, shape: torch.randperm(shape[0] + 100, generator=g)[: shape[0]].int(),
            "shift": lambda _, shape: torch.tensor([0.1, 0.9]),
            **fill,
        },
        scalars={"clip_coef": 0.2, "ent_coef": 0.01, "vf_coef": 0.5},
        constants=constants,
    )


_DRAW = {"step": 7, "run_seed": 2**63 + 5}
_FLAGS = {"terminated": integers(2, torch.uint8), "truncated": integers(2, torch.uint8)}

CASES: dict[str, Case] = {
    "philox_words": Case(
        philox_words.PHILOX_WORDS, lambda n: {"N": n}, (1, 33, 4099), {"counter": integers(2**31)}, {"key": 2**63 + 5}
    ),
    "episode_seeds": Case(
        episode_seeds.EPISODE_SEEDS,
        lambda n: {"N": n},
        (1, 33, 4099),
        {"environment": integers(1000), "episode": integers(2**40, torch.int64)},
        {"run_seed": 2**63 + 5},
    ),
    "sample-categorical": Case(
        sample.CATEGORICAL, lambda n: {"N": n}, (1, 33, 257), scalars=_DRAW, constants={"ACTIONS": 5, "DISCRETE": 1}
    ),
    "sample-gaussian": Case(
        sample.GAUSSIAN, lambda n: {"N": n}, (1, 33, 257), scalars=_DRAW, constants={"ACTIONS": 6, "DISCRETE": 0}
    ),
    "gae": Case(gae.GAE, lambda n: {"N": n, "T": 7}, (1, 33, 257), _FLAGS, {"gamma": 0.99, "gae_lambda": 0.95}),
    "ppo_loss-categorical": _loss(
        ppo_loss.CATEGORICAL, {"action": integers(4), "old_log_prob": normal(-1.4, 0.3)}, {"ACTIONS": 4, "DISCRETE": 1}
    ),
    "ppo_loss-gaussian": _loss(ppo_loss.GAUSSIAN, {"old_log_prob": normal(-4.0)}, {"ACTIONS": 3, "DISCRETE": 0}),
    "sum_partials": Case(ppo_loss.SUM, lambda n: {"P": n, "K": 5}, (1, 33, 512), scalars={"count": 700}),
    "advantage_shift": Case(
        advantage_shift.ADVANTAGE_SHIFT,
        lambda n: {"B": n, "M": n + 100},
        (1, 33, 600),
        {"index": lambda g, shape: torch.randperm(shape[0] + 100, generator=g)[: shape[0]].int()},
    ),
    "squares": Case(global_norm.SQUARES, lambda n: {"n": n, "P": partitions(n)}, (1, 33, 600)),
    "clip_scale": Case(
        global_norm.CLIP_SCALE, lambda n: {"P": n}, (1, 33, 512), {"partials": positive}, {"max_norm": 0.5}
    ),
    "adam": Case(
        adam.ADAM,
        lambda n: {"n": n},
        (1, 33, 4099),
        {
            "parameters": normal(),
            "scale": positive,
            "first_moment": normal(),
            "second_moment": positive,
            "schedule": positive,
        },
        {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-5},
    ),
    "muon": Case(
        muon.MUON,
        lambda m: {"n": 640 * m, "M": m, "S": muon.scratch_size(18, 35)},
        (1, 2, 3),
        {
            "parameters": normal(),
            "scale": positive,
            "momentum": normal(),
            "offset": lambda _, shape: 640 * torch.arange(shape[0], dtype=torch.int32),
            "schedule": positive,
        },
        {"beta": 0.95},
        {"INPUTS": 18, "OUTPUTS": 35},
    ),
    "shuffle": Case(
        shuffle.SHUFFLE, lambda n: {"n": n}, (1, 33, 4099), scalars={"update": 3, "epoch": 1, "run_seed": 2**63 + 5}
    ),
    "orthogonal": Case(
        orthogonal.ORTHOGONAL,
        lambda n: {"I": n, "O": 5},
        (1, 5, 9),
        scalars={"gain": 1.5, "layer": 2, "run_seed": 2**63 + 5},
    ),
    **_environments(),
}


def declared() -> set[str]:
    """The names of all kernels in the sources."""
    return {
        name for path in compiler.FOLDER.glob("*.cu") for name in re.findall(r"^KERNEL (\w+)\(", path.read_text(), re.M)
    }
