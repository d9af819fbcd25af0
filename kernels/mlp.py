"""The fused MLP actor-critic: packing, forward, rollout and gradient of a network whose shapes are compiled in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernels.launcher import Constant, In, Kernel, Out, Scalar, Size
from kernels.ppo_loss import METRICS

MAX_DEPTH, MIN_WIDTH, MAX_WIDTH = 3, 8, 256  # hidden layers, and what is compiled for
CONSTANTS = ("OBSERVATION", "HIDDEN", "RELU", "SHARED", "OFFSETS", "LOG_STD", "ACTIONS", "DISCRETE")
_ENVIRONMENT = (*CONSTANTS, "STATE")
_SAMPLES = 256  # of a partition, as a rule


def partitions(count: int) -> int:
    """Into how many partial gradients a minibatch is divided: from its size alone, so that no machine changes it."""
    return min(count, max(4, min(512, count // _SAMPLES)))


def _blocks(rows: int, most: int) -> int:
    """Tiles of at most `most` rows, and enough of them for several cores."""
    return max(-(-rows // most), min(16, -(-rows // 4)))


def _action(discrete: bool, leading: Sequence[str], kind: Callable[..., In] = In) -> In:
    return kind("action", "int32", (*leading,)) if discrete else kind("action", "float32", (*leading, "ACTIONS"))


SIZES = Kernel("mlp_sizes", [Out("sizes", "int32", (3,))], blocks=lambda size: 1, constants=CONSTANTS)
PACK = Kernel(
    "mlp_pack",
    [In("parameters", "float32", ("n",)), Out("packed", "float32", ("K",)), Size("n"), Size("K")],
    blocks=lambda size: min(16, -(-size["n"] // 2048)),
    constants=CONSTANTS,
)
_PACKED_AND_SEEN = [In("packed", "float32", ("K",)), In("observation", "float32", ("M", "OBSERVATION"))]
VALUES = Kernel(
    "mlp_values",
    [*_PACKED_AND_SEEN, Out("value", "float32", ("M",)), Size("K"), Size("M")],
    blocks=lambda size: _blocks(size["M"], 192),
    file="mlp_forward",
    constants=CONSTANTS,
)
DISTRIBUTION = Kernel(
    "mlp_distribution",
    [*_PACKED_AND_SEEN, Out("parameters", "float32", ("M", "PARAMETERS")), Size("K"), Size("M")],
    blocks=lambda size: _blocks(size["M"], 192),
    file="mlp_forward",
    constants=CONSTANTS,
)
FINAL_VALUES = Kernel(
    "mlp_final_values",
    [
        *_PACKED_AND_SEEN,
        In("terminated", "uint8", ("M",)),
        In("truncated", "uint8", ("M",)),
        Out("value", "float32", ("M",)),
        Size("K"),
        Size("M"),
    ],
    blocks=lambda size: _blocks(size["M"], 4096),
    file="mlp_forward",
    constants=CONSTANTS,
)


def _rollout(discrete: bool) -> Kernel:
    bounds = [] if discrete else [In("action_low", "float32", ("ACTIONS",)), In("action_high", "float32", ("ACTIONS",))]
    each = ("T", "N")
    return Kernel(
        "mlp_rollout",
        [
            In("packed", "float32", ("K",)),
            In("iteration", "int32", (1,)),
            Out("state", "float32", ("STATE", "N")),
            Out("episode_seed", "int64", ("N",)),
            Out("episode_index", "int64", ("N",)),
            Out("episode_length", "int32", ("N",)),
            Out("episode_return", "float32", ("N",)),
            *bounds,
            Out("observation", "float32", ("T+1", "N", "OBSERVATION")),
            _action(discrete, each, Out),
            Out("log_prob", "float32", each),
            Out("entropy", "float32", each),
            Out("reward", "float32", each),
            Out("terminated", "uint8", each),
            Out("truncated", "uint8", each),
            Out("final_observation", "float32", (*each, "OBSERVATION")),
            Out("finished_episode_return", "float32", each),
            Out("finished_episode_length", "int32", each),
            Out("policy_version", "int32", each),
            Size("K"),
            Size("T"),
            Size("N"),
            Scalar("max_episode_steps", "int32"),
            Scalar("run_seed", "uint64"),
        ],
        blocks=lambda size: _blocks(size["N"], 32),
        constants=_ENVIRONMENT,
    )


def _minibatch(discrete: bool) -> list[In]:
    return [
        In("packed", "float32", ("K",)),
        In("observation", "float32", ("M", "OBSERVATION")),
        In("index", "int32", ("B",)),
        _action(discrete, ("M",)),
        In("old_log_prob", "float32", ("M",)),
        In("advantage", "float32", ("M",)),
        In("returns", "float32", ("M",)),
        In("shift", "float32", (2,)),
    ]


def _gradient(discrete: bool) -> Kernel:
    return Kernel(
        "mlp_gradient",
        [
            *_minibatch(discrete),
            Out("partials", "float32", ("P", "Q")),
            Size("B"),
            Size("P"),
            Size("Q"),
            Scalar("clip_coef", "float32"),
            Scalar("ent_coef", "float32"),
            Scalar("vf_coef", "float32"),
        ],
        blocks=lambda size: size["P"] * (1 if size["SHARED"] else 2),
        constants=CONSTANTS,
    )


def _policy_metrics(discrete: bool) -> Kernel:
    return Kernel(
        "mlp_policy_metrics",
        [
            *_minibatch(discrete),
            Out("partials", "float32", ("P", len(METRICS))),
            Size("B"),
            Size("P"),
            Scalar("clip_coef", "float32"),
            Scalar("ent_coef", "float32"),
        ],
        blocks=lambda size: size["P"],
        file="mlp_gradient",
        constants=CONSTANTS,
    )


ROLLOUT = {discrete: _rollout(discrete) for discrete in (True, False)}
GRADIENT = {discrete: _gradient(discrete) for discrete in (True, False)}
POLICY_METRICS = {discrete: _policy_metrics(discrete) for discrete in (True, False)}
REDUCE = Kernel(
    "mlp_reduce",
    [
        In("partials", "float32", ("P", "Q")),
        In("parameters", "float32", ("n",)),
        Out("sums", "float32", ("Q",)),
        Out("gradient", "float32", ("n",)),
        Out("squares", "float32", ("R",)),
        Out("metrics", "float32", (len(METRICS),)),
        Size("P"),
        Size("Q"),
        Size("n"),
        Size("R"),
        Scalar("samples", "int32"),
    ],
    blocks=lambda size: size["R"],
    constants=CONSTANTS,
)
