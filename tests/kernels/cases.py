"""Every kernel with arguments that exercise it: the table that all gates go through."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from compare import poisoned
from networks import choices, flat_size, network, packed, parameters
from torch import Tensor

import envs
from envs import Discrete, EnvSpec
from kernels import (
    adam,
    advantage_shift,
    compiler,
    env,
    episode_seeds,
    fma_peak,
    gae,
    global_norm,
    mlp,
    muon,
    orthogonal,
    philox_words,
    ppo_loss,
    sample,
    shuffle,
    stopwatch,
    summary,
)
from kernels.launcher import Constant, In, Kernel, Out, Scalar, partitions, resolve
from kernels.mlp import MLP

Fill = Callable[[torch.Generator, tuple[int, ...]], Tensor]


def normal(mean: float = 0.0, deviation: float = 1.0) -> Fill:
    return lambda generator, shape: torch.randn(shape, generator=generator) * deviation + mean


def positive(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=generator) + 0.01


def integers(high: int, dtype: torch.dtype = torch.int32) -> Fill:
    return lambda generator, shape: torch.randint(high, shape, generator=generator, dtype=torch.int64).to(dtype)


def flags(share: float) -> Fill:
    return lambda generator, shape: (torch.rand(shape, generator=generator) < share).to(torch.uint8)


def zeros(_: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape)


def rows_of_more(more: int) -> Fill:
    """Different rows of a rollout that holds so many more."""
    return lambda generator, shape: torch.randperm(shape[0] + more, generator=generator)[: shape[0]].int()


@dataclass(frozen=True)
class Case:
    """A kernel's row. An array not in `fill` is normal where it is read, and poison where it is written."""

    kernel: Kernel
    sizes: Callable[[int], Mapping[str, int]]  # of the declared shapes, from the number of rows
    rows: tuple[int, ...]  # one, odd, and enough for several blocks
    fill: Mapping[str, Fill] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    header: Path | None = None
    gaps: Collection[str] = ()  # outputs of which a part is left as it was
    ticks: Collection[str] = ()  # outputs that measure time: no result, never the same twice
    blocks: int | None = None  # under a sanitizer, where the product starts more than it takes to see what happens

    def arguments(self, rows: int, seed: int = 0) -> list[Any]:
        """Fresh arguments, the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        wide = {name: len(value) if isinstance(value, tuple) else value for name, value in self.constants.items()}
        sizes = {**self.sizes(rows), **wide}
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
        return self.results([v for a, v in zip(passed, arguments, strict=True) if isinstance(a, Out)])

    def results(self, written: Sequence[Tensor]) -> list[Tensor]:
        """What was written, without what measures time."""
        outputs = [a for a in self.kernel.arguments if isinstance(a, Out)]
        return [tensor for a, tensor in zip(outputs, written, strict=True) if a.name not in self.ticks]


def _games(ranges: Sequence[tuple[float, float]], first_whole: int = 0) -> Fill:
    """States of a game, anywhere within the ranges, from one number on whole."""

    def fill(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
        low, high = (torch.tensor(bounds)[:, None] for bounds in zip(*ranges, strict=True))
        state = low + (high - low) * torch.rand(shape, generator=generator)
        state[first_whole:] = state[first_whole:].round()
        return state

    return fill


_BALL = [(3.0, 33.0), (0.0, 36.0), (0.0, 24.0), (-1.35, 1.35), (-0.9, 0.9), (1.0, 5.0), (0.0, 12.0)]
_CELLS = (0.0, 10.0)
_STATES = {
    "breakout": _games([*_BALL, *6 * [(0.0, 2.0**18 - 1)]], 5),  # balls everywhere, rows of bricks with holes
    "gridmaze": _games([*4 * [(0.0, 7.0)], *4 * [(0.0, 2.0**16 - 1)]]),
    "memory": _games([(0.0, 15.0), (0.0, 15.0), (5.0, 12.0)]),
    "snake": _games([_CELLS, _CELLS, (1.0, 11.0), (0.0, 2.0**22 - 1), _CELLS, _CELLS]),
    "squared": _games([_CELLS, _CELLS, *4 * [_CELLS]]),
}
# Fewer cases where dynamics have neither mathematics of their own nor the default form; whole worlds.
_ROWS = {
    name: (4, 132) if name == "snake" else (1, 130) for name in (*_STATES, "cartpole_masked") if name != "breakout"
}


def _environment(kernel: Kernel, spec: EnvSpec) -> Case:
    discrete = isinstance(spec.action, Discrete)
    actions = spec.action.n if isinstance(spec.action, Discrete) else len(spec.action.low)
    return Case(
        kernel,
        lambda n: {"N": n},
        _ROWS.get(spec.name, (1, 33, 130)),
        fill={
            "state": _STATES.get(spec.name, normal()),  # many of CartPole's end at once
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
            "AGENTS": spec.agents,
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
            "index": rows_of_more(100),
            "shift": lambda _, shape: torch.tensor([0.1, 0.9]),
            **fill,
        },
        scalars={"clip_coef": 0.2, "ent_coef": 0.01, "vf_coef": 0.5},
        constants=constants,
    )


_FUSED_LOSS = {"clip_coef": 0.2, "ent_coef": 0.01, "vf_coef": 0.5}


def _fused(
    kernel: Kernel,
    net: MLP,
    sizes: Callable[[int], Mapping[str, int]],
    rows: tuple[int, ...],
    fill: Mapping[str, Fill] | None = None,
    **options: Any,
) -> Case:
    """A kernel of the MLP: its parameters are those of a network."""
    filled: dict[str, Fill] = {
        "parameters": lambda *_: parameters(net),
        "packed": lambda *_: packed(net),
        "shift": lambda *_: torch.tensor([0.1, 0.9]),
        "old_log_prob": normal(-1.5, 0.3),
    }
    if net.discrete:
        filled["action"] = lambda g, shape: torch.stack([integers(n)(g, shape[:1]) for n in choices(net)], -1).view(
            shape
        )
    read = {a.name for a in kernel.arguments if isinstance(a, In) and not isinstance(a, Out)}
    return Case(
        kernel,
        lambda n: {"K": net.sizes[0], "Q": net.sizes[1], "PARAMETERS": net.sizes[2], "n": flat_size(net), **sizes(n)},
        rows,
        {**{name: value for name, value in filled.items() if name in read}, **(fill or {})},
        constants=net.constants,
        **options,
    )


def _minibatch(B: int) -> dict[str, int]:
    return {"B": B, "M": B + 20, "P": mlp.partitions(B)}


def _played(name: str, discrete: bool) -> Case:
    """A rollout of an environment, with episodes of four steps at most."""
    spec = envs.spec(name)
    actions = spec.action.n if isinstance(spec.action, Discrete) else len(spec.action.low)
    net = network((9,), spec.observation_size, actions, discrete, relu=True)
    kernel = mlp.ROLLOUT["one" if discrete else "continuous"]
    case = _fused(
        kernel,
        net,
        lambda n: {"T": 3, "N": n, "tiles": mlp.tiles(n, spec.agents)},
        (1, 7, 19) if spec.agents == 1 else (spec.agents, 5 * spec.agents),
        {
            "iteration": lambda *_: torch.tensor([5], dtype=torch.int32),
            "state": _STATES.get(name, normal()),  # many of CartPole's end at once
            "episode_seed": integers(2**62, torch.int64),
            "episode_index": integers(9, torch.int64),
            "episode_length": integers(4),
            "episode_return": normal(),
            "observation": normal(),
            "action_low": lambda _, shape: torch.full(shape, -1.5),
            "action_high": lambda _, shape: torch.full(shape, 1.5),
        },
        scalars={"max_episode_steps": 4, "run_seed": 2**63 + 5},
        header=spec.header,
        gaps=("final_observation",),
        ticks=("spent",),
    )
    return replace(case, constants={**case.constants, "STATE": spec.state_size, "AGENTS": spec.agents})


# The shapes are small and ReLU the rule, since a build under a sanitizer takes seconds (and with tanh, more of them).
# One network is wider than 64: there a tile holds more samples than the head takes at a time.
_TANH, _CHOICES = network((9, 17)), network((9, 17), actions=(3, 2), relu=True, shared=True)
_ONE, _GAUSSIAN = network((9,), relu=True), network((9,), discrete=False, relu=True)


def _networks() -> dict[str, Case]:
    def rows(n: int) -> dict[str, int]:
        return {"M": n}

    def partial(n: int) -> dict[str, int]:
        return {"P": n, "R": 3}

    pads = {"packed": zeros}
    ends = {"terminated": flags(0.05), "truncated": flags(0.95)}
    reduced = {"samples": 700}
    metrics = {"clip_coef": 0.2, "ent_coef": 0.01}
    several, gaussian = mlp.GRADIENT["several"], mlp.GRADIENT["continuous"]
    return {
        "mlp_sizes": Case(mlp.SIZES, lambda n: {}, (1,), constants=_TANH.constants),
        "mlp_pack": _fused(mlp.PACK, network((33, 40)), lambda n: {}, (1,), pads, gaps=("packed",)),
        "mlp_pack-gaussian": _fused(
            mlp.PACK, network((48, 40), discrete=False, shared=True), lambda n: {}, (1,), pads, gaps=("packed",)
        ),
        "mlp_values": _fused(mlp.VALUES, _TANH, rows, (1, 33, 70), blocks=2),
        "mlp_distribution": _fused(mlp.DISTRIBUTION, _CHOICES, rows, (1, 33, 130)),
        "mlp_distribution-gaussian": _fused(
            mlp.DISTRIBUTION, network((72,), discrete=False, relu=True), rows, (1, 33, 130)
        ),
        "mlp_final_values": _fused(mlp.FINAL_VALUES, _GAUSSIAN, rows, (1, 33, 80), ends, gaps=("value",), blocks=2),
        "mlp_gradient": _fused(
            several,
            _CHOICES,
            _minibatch,
            (1, 33, 150),
            {"index": rows_of_more(20)},
            scalars=_FUSED_LOSS,
            gaps=("partials",),
        ),
        "mlp_gradient-gaussian": _fused(
            gaussian,
            _GAUSSIAN,
            _minibatch,
            (1, 33, 150),
            {"index": rows_of_more(20)},
            scalars=_FUSED_LOSS,
            gaps=("partials",),
        ),
        "mlp_policy_metrics": _fused(
            mlp.POLICY_METRICS["one"],
            _ONE,
            _minibatch,
            (1, 33, 150),
            {"index": rows_of_more(20)},
            scalars=metrics,
        ),
        "mlp_reduce": _fused(mlp.REDUCE, _CHOICES, partial, (1, 33, 7), {"gradient": zeros}, scalars=reduced),
        "mlp_reduce-gaussian": _fused(mlp.REDUCE, _GAUSSIAN, partial, (1, 33, 7), {"gradient": zeros}, scalars=reduced),
        "mlp_rollout-cartpole": _played("cartpole", True),
        "mlp_rollout-pendulum": _played("pendulum", False),
        "mlp_rollout-snake": _played("snake", True),
    }


def _sums(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """Sums over parts of a rollout: of counts and squares, so that no mean is NaN."""
    return torch.rand(shape, generator=generator, dtype=torch.float64) + torch.tensor([1.0, 1, 1, 0, 9, 0, 9, 1, 1])


_DRAW = {"step": 7, "run_seed": 2**63 + 5}
_FLAGS = {"terminated": integers(2, torch.uint8), "truncated": integers(2, torch.uint8)}

CASES: dict[str, Case] = {
    "stopwatch": Case(
        stopwatch.STOPWATCH,
        lambda n: {"S": n, "P": 3},
        (1, 33, 150),
        {"shares": integers(1000, torch.int64), "spent": integers(1000, torch.int64), "last": integers(2, torch.int64)},
        {"phase": 1, "other": 2},
        ticks=("spent", "last"),
    ),
    "fma_peak": Case(
        fma_peak.FMA_PEAK,
        lambda n: {"n": n},
        (1, 33, 12300),
        {"x": normal()},
        {"rounds": 3, "factor": 0.75, "offset": 0.5},
    ),
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
        sample.CATEGORICAL,
        lambda n: {"N": n},
        (1, 33, 130),
        {"first": integers(100)},
        scalars=_DRAW,
        constants={"ACTIONS": 5, "DISCRETE": 1},
    ),
    "sample-gaussian": Case(
        sample.GAUSSIAN,
        lambda n: {"N": n},
        (1, 33, 130),
        {"first": integers(100)},
        scalars=_DRAW,
        constants={"ACTIONS": 6, "DISCRETE": 0},
    ),
    "gae": Case(gae.GAE, lambda n: {"N": n, "T": 7}, (1, 33, 130), _FLAGS, {"gamma": 0.99, "gae_lambda": 0.95}),
    "ppo_loss-categorical": _loss(
        ppo_loss.CATEGORICAL, {"action": integers(4), "old_log_prob": normal(-1.4, 0.3)}, {"ACTIONS": 4, "DISCRETE": 1}
    ),
    "ppo_loss-gaussian": _loss(ppo_loss.GAUSSIAN, {"old_log_prob": normal(-4.0)}, {"ACTIONS": 3, "DISCRETE": 0}),
    "sum_partials": Case(ppo_loss.SUM, lambda n: {"P": n, "K": 5}, (1, 33, 512), scalars={"count": 700}),
    "advantage_shift": Case(
        advantage_shift.ADVANTAGE_SHIFT,
        lambda n: {"K": 3, "B": n, "M": 3 * n},
        (1, 33, 2100),
        {"indices": lambda g, shape: torch.randperm(math.prod(shape), generator=g).view(shape).int()},
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
        shuffle.SHUFFLE,
        lambda n: {"n": n},
        (1, 33, 4099),
        {"iteration": lambda *_: torch.tensor([3], dtype=torch.int32)},
        {"epoch": 1, "run_seed": 2**63 + 5},
    ),
    "orthogonal": Case(
        orthogonal.ORTHOGONAL,
        lambda n: {"I": n, "O": 5},
        (1, 5, 9),
        scalars={"gain": 1.5, "layer": 2, "run_seed": 2**63 + 5},
    ),
    "rollout_sums": Case(
        summary.ROLLOUT_SUMS,
        lambda n: {"X": 5 * n + 3, "M": n, "V": n + 3, "P": min(n, 3)},
        (1, 33, 600),
        {**_FLAGS, "episode_length": integers(500)},
    ),
    "summary": Case(
        summary.SUMMARY, lambda n: {"P": n, "K": n, "W": 5}, (1, 7, 33), {"partials": _sums}, {"samples": 700}
    ),
    **_networks(),
    **_environments(),
}


def declared() -> set[str]:
    """The names of all kernels in the sources."""
    return {
        name for path in compiler.FOLDER.glob("*.cu") for name in re.findall(r"^KERNEL (\w+)\(", path.read_text(), re.M)
    }
