"""The fused MLP actor-critic: packing, forward, rollout and gradient of a network whose shapes are compiled in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from kernels.errors import UserError
from kernels.launcher import Constant, In, Kernel, Out, Scalar, Size
from kernels.ppo_loss import METRICS

MAX_DEPTH, MIN_WIDTH, MAX_WIDTH = 3, 8, 256  # hidden layers, and what is compiled for
CONSTANTS = ("OBSERVATION", "HIDDEN", "RELU", "SHARED", "OFFSETS", "LOG_STD", "ACTIONS", "DISCRETE")
_ENVIRONMENT = (*CONSTANTS, "STATE", "AGENTS")
_SAMPLES = 256  # of a partition, as a rule
_ROWS = 32  # of a tile of a rollout at most, and so the agents of a world


def partitions(count: int) -> int:
    """Into how many partial gradients a minibatch is divided: from its size alone, so that no machine changes it."""
    return min(count, max(4, min(512, count // _SAMPLES)))


def _blocks(rows: int, most: int) -> int:
    """Tiles of at most `most` rows, and enough of them for several cores."""
    return max(-(-rows // most), min(16, -(-rows // 4)))


def tiles(rows: int, agents: int = 1) -> int:
    """Into how many tiles a rollout divides its rows, whole worlds of `agents` of them; it changes no bit."""
    return _blocks(rows // agents, _ROWS // agents)


# What an action is: one choice, several, or continuous.
_ACTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "one": ("int32", ()),
    "several": ("int32", ("ACTIONS",)),
    "continuous": ("float32", ("ACTIONS",)),
}


def _action(kind: str, leading: Sequence[str], argument: Callable[..., In] = In) -> In:
    dtype, own = _ACTIONS[kind]
    return argument("action", dtype, (*leading, *own))


SIZES = Kernel("mlp_sizes", [Out("sizes", "int32", (6,))], blocks=lambda size: 1, constants=CONSTANTS)
_TILES = (32, 64, 128)  # samples of a tile on a GPU
_BESIDE = 4 * _TILES[-1] + 8  # bytes that a block may have beside its tile (mlp_final_values)


@functools.cache
def _sizes(*constants: Constant) -> list[int]:
    """What the shapes come to (mlp_sizes.cu), by the host whatever the device: launches may be being recorded."""
    sizes = np.empty(6, np.int32)
    SIZES.build_host(None, dict(zip(CONSTANTS, constants, strict=True)))(1, [sizes.ctypes.data])
    return [int(size) for size in sizes]


def _tile(constants: Mapping[str, Constant], shared_limit: int, most: int = _TILES[-1]) -> tuple[dict[str, int], int]:
    """How many samples a block takes at a time on a GPU, at most `most`, and the bytes that they take.

    Enough of them that a layer's product, 8 samples by 4 outputs a thread, keeps 128 threads at work, if they fit.

    Raises:
        UserError: not even the fewest fit.
    """
    _, _, _, *floats = _sizes(*(constants[name] for name in CONSTANTS))
    hidden: Any = constants["HIDDEN"]
    wanted = max(_TILES[0], min(most, 8 * 4 * 128 // max(hidden)))
    bytes_of = {samples: 4 * size for samples, size in zip(_TILES, floats, strict=True) if samples <= wanted}
    fitting = [samples for samples, size in bytes_of.items() if size + _BESIDE <= shared_limit]
    if not fitting:
        raise UserError(
            f"device: hidden layers of {list(hidden)} take {4 * floats[0]:,} bytes of a block's shared memory; this "
            f"device gives {shared_limit:,}. Train with device.fused=false, or with narrower layers"
        )
    return {"SAMPLES": fitting[-1]}, bytes_of[fitting[-1]]


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
    tile=_tile,
)
DISTRIBUTION = Kernel(
    "mlp_distribution",
    [*_PACKED_AND_SEEN, Out("parameters", "float32", ("M", "PARAMETERS")), Size("K"), Size("M")],
    blocks=lambda size: -(-size["M"] // 64),  # a step's few rows are done before another thread has woken up
    file="mlp_forward",
    constants=CONSTANTS,
    tile=_tile,
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
    tile=_tile,
)


def _rollout(kind: str) -> Kernel:
    bounds = (
        []
        if kind != "continuous"
        else [In("action_low", "float32", ("ACTIONS",)), In("action_high", "float32", ("ACTIONS",))]
    )
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
            _action(kind, each, Out),
            Out("observation", "float32", ("T+1", "N", "OBSERVATION")),
            Out("log_prob", "float32", each),
            Out("entropy", "float32", each),
            Out("reward", "float32", each),
            Out("terminated", "uint8", each),
            Out("truncated", "uint8", each),
            Out("final_observation", "float32", (*each, "OBSERVATION")),
            Out("finished_episode_return", "float32", each),
            Out("finished_episode_length", "int32", each),
            Out("policy_version", "int32", each),
            Out("spent", "int64", ("tiles", 2)),
            Size("K"),
            Size("T"),
            Size("N"),
            Scalar("max_episode_steps", "int32"),
            Scalar("run_seed", "uint64"),
        ],
        blocks=lambda size: size["tiles"],
        constants=_ENVIRONMENT,
        tile=functools.partial(_tile, most=_ROWS),
    )


def _minibatch(kind: str) -> list[In]:
    return [
        In("packed", "float32", ("K",)),
        In("observation", "float32", ("M", "OBSERVATION")),
        In("index", "int32", ("B",)),
        _action(kind, ("M",)),
        In("old_log_prob", "float32", ("M",)),
        In("advantage", "float32", ("M",)),
        In("returns", "float32", ("M",)),
        In("shift", "float32", (2,)),
    ]


def _gradient(kind: str) -> Kernel:
    return Kernel(
        "mlp_gradient",
        [
            *_minibatch(kind),
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
        tile=_tile,
    )


def _policy_metrics(kind: str) -> Kernel:
    return Kernel(
        "mlp_policy_metrics",
        [
            *_minibatch(kind),
            Out("partials", "float32", ("P", len(METRICS))),
            Size("B"),
            Size("P"),
            Scalar("clip_coef", "float32"),
            Scalar("ent_coef", "float32"),
        ],
        blocks=lambda size: size["P"],
        file="mlp_gradient",
        constants=CONSTANTS,
        tile=_tile,
    )


ROLLOUT = {kind: _rollout(kind) for kind in _ACTIONS}
GRADIENT = {kind: _gradient(kind) for kind in _ACTIONS}
POLICY_METRICS = {kind: _policy_metrics(kind) for kind in _ACTIONS}
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


@dataclass(frozen=True)
class MLP:
    """The shapes of an actor-critic, compiled into its kernels. Every array is contiguous and on one device.

    Sizes below: n flat parameters, K packed ones, Q floats of a partition's gradient, D floats observed, A actions,
    M samples of a rollout, B of a minibatch, P partitions of it.

    Attributes:
        observation: D.
        hidden: widths of the hidden layers, input side first; 1 to 3 of 8 to 256.
        relu: ReLU between layers, else tanh.
        shared: one trunk for actor and critic, else one each.
        offsets: where each piece begins in the flat buffer: the layers of the actor (or of the trunk) and its head, the
            critic's layers (if it has its own) and head, then log_std where actions are continuous.
        actions: number of actions, of each choice where there are several; or of dimensions.
        discrete: whether actions are int32 choices.
        log_std_range: bounds of the logarithm of the standard deviation, whole numbers.
    """

    observation: int
    hidden: tuple[int, ...]
    relu: bool
    shared: bool
    offsets: tuple[int, ...]
    actions: Constant
    discrete: bool
    log_std_range: tuple[int, int]

    @functools.cached_property
    def constants(self) -> dict[str, Any]:
        return {
            "OBSERVATION": self.observation,
            "HIDDEN": self.hidden,
            "RELU": int(self.relu),
            "SHARED": int(self.shared),
            "OFFSETS": self.offsets,
            "LOG_STD": self.log_std_range,
            "ACTIONS": self.actions,
            "DISCRETE": int(self.discrete),
        }

    @property
    def kind(self) -> str:
        """What an action is: one choice, several, or continuous."""
        return "continuous" if not self.discrete else "one" if isinstance(self.actions, int) else "several"

    @functools.cached_property
    def sizes(self) -> tuple[int, int, int]:
        """K, Q, and the floats of a sample's distribution."""
        packed, gradient, parameters, *_ = _sizes(*self.constants.values())
        return packed, gradient, parameters

    def pack(self, parameters: Tensor, packed: Tensor) -> None:
        """Copies the flat parameters (n,) float32 to where the other kernels read them, (K,) float32."""
        PACK(parameters, packed, **self.constants)

    def values(self, packed: Tensor, observation: Tensor, value: Tensor) -> None:
        """Writes the values (M,) float32 of observations (M, D) float32."""
        VALUES(packed, observation, value, **self.constants)

    def distribution(self, packed: Tensor, observation: Tensor, parameters: Tensor) -> None:
        """Writes the parameters (M, sizes[2]) float32 of the action distribution at observations (M, D) float32."""
        DISTRIBUTION(packed, observation, parameters, **self.constants)

    def final_values(
        self, packed: Tensor, observation: Tensor, terminated: Tensor, truncated: Tensor, value: Tensor
    ) -> None:
        """Writes the values (M,) float32 of observations (M, D) where `truncated` and not `terminated`, (M,) uint8."""
        FINAL_VALUES(packed, observation, terminated, truncated, value, **self.constants)

    def rollout(
        self,
        header: Path,
        state_size: int,
        agents: int,
        packed: Tensor,
        iteration: Tensor,
        state: Mapping[str, Tensor],
        bounds: tuple[Tensor, Tensor] | None,
        written: Sequence[Tensor],
        max_episode_steps: int,
        run_seed: int,
    ) -> None:
        """Plays T steps of N environments in one launch.

        Args:
            header: the dynamics; what it defines stands in kernels/environment.cuh.
            state_size: floats of an environment's state.
            agents: rows of a world, which divide N.
            iteration: (1,) int32, the training iteration: step t draws as step iteration * T + t.
            state: of the environments, as `kernels.env.env_step` takes it; updated.
            bounds: two (A,) float32 for continuous actions, None for discrete ones.
            written: action (T, N) or (T, N, K) int32, or (T, N, A) float32; observation (T+1, N, D), of which row T is
                read first; log_prob, entropy, reward (T, N) float32; terminated, truncated (T, N) uint8;
                final_observation (T, N, D), only where a time limit alone ended an episode; the episode's return (T, N)
                float32 and length (T, N) int32, the step included; policy_version (T, N) int32; ticks
                (tiles(N, agents), 2) int64, of the processor's counter, spent in the network and in the environments.
        """
        kernel = ROLLOUT[self.kind]
        own = [state[argument.name] for argument in kernel.arguments[2:7] if isinstance(argument, In)]
        scalars = (max_episode_steps, run_seed)
        kernel(
            packed,
            iteration,
            *own,
            *(bounds or ()),
            *written,
            *scalars,
            header=header,
            **self.constants,
            STATE=state_size,
            AGENTS=agents,
        )

    def gradient(
        self,
        packed: Tensor,
        samples: Sequence[Tensor],
        partials: Tensor,
        clip_coef: float,
        ent_coef: float,
        vf_coef: float,
    ) -> None:
        """Writes the partitions' gradients of the PPO loss (kernels/loss.cuh) of a minibatch.

        Args:
            samples: observation (M, D) float32; index (B,) int32; action (M,) or (M, K) int32, or (M, A) float32;
                old_log_prob, advantage, returns (M,) float32; shift (2,) float32, of the advantages.
            partials: (P, Q) float32, written; P is `partitions(B)`.
        """
        GRADIENT[self.kind](packed, *samples, partials, clip_coef, ent_coef, vf_coef, **self.constants)

    def policy_metrics(
        self, packed: Tensor, samples: Sequence[Tensor], partials: Tensor, clip_coef: float, ent_coef: float
    ) -> None:
        """Writes the partitions' sums (P, 5) float32 of the metrics in METRICS' order, of the value loss 0."""
        POLICY_METRICS[self.kind](packed, *samples, partials, clip_coef, ent_coef, **self.constants)

    def reduce(
        self,
        partials: Tensor,
        parameters: Tensor,
        sums: Tensor,
        gradient: Tensor,
        squares: Tensor,
        metrics: Tensor,
        samples: int,
    ) -> None:
        """Adds the partitions.

        Args:
            partials: (P, Q) float32.
            parameters: (n,) float32; a log_std at its bounds gets no gradient.
            sums: (Q,) float32, written; scratch.
            gradient: (n,) float32, written where parameters lie.
            squares: (R,) float32, written: sums of the gradient's squares.
            metrics: (5,) float32, written: means over the samples.
            samples: B.
        """
        REDUCE(partials, parameters, sums, gradient, squares, metrics, samples, **self.constants)
