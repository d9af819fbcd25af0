"""Environment steps and resets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from kernels.launcher import Constant, In, Kernel, Out, Scalar, Size

_CONSTANTS = ("STATE", "OBSERVATION", "ACTIONS", "DISCRETE", "AGENTS")


def _blocks(size: Mapping[str, int]) -> int:
    return -(-size["N"] // 128)


_STATE = [
    Out("state", "float32", ("STATE", "N")),
    Out("episode_seed", "int64", ("N",)),
    Out("episode_index", "int64", ("N",)),
    Out("episode_length", "int32", ("N",)),
    Out("episode_return", "float32", ("N",)),
]
_OUTPUT: list[In | Size | Scalar] = [
    Out("observation", "float32", ("N", "OBSERVATION")),
    Out("reward", "float32", ("N",)),
    Out("terminated", "uint8", ("N",)),
    Out("truncated", "uint8", ("N",)),
    Out("final_observation", "float32", ("N", "OBSERVATION")),
    Out("finished_episode_return", "float32", ("N",)),
    Out("finished_episode_length", "int32", ("N",)),
    Size("N"),
    Scalar("max_episode_steps", "int32"),
    Scalar("run_seed", "uint64"),
]
_BOUNDS: list[In | Size | Scalar] = [
    In("action_low", "float32", ("ACTIONS",)),
    In("action_high", "float32", ("ACTIONS",)),
]

ENV_RESET = Kernel(
    "env_reset",
    [
        In("episode_seed", "int64", ("N",)),
        Out("state", "float32", ("STATE", "N")),
        Out("episode_index", "int64", ("N",)),
        Out("episode_length", "int32", ("N",)),
        Out("episode_return", "float32", ("N",)),
        Out("observation", "float32", ("N", "OBSERVATION")),
        Size("N"),
    ],
    blocks=_blocks,
    constants=_CONSTANTS,
)
ENV_STEP_DISCRETE = Kernel(
    "env_step", [*_STATE, In("action", "int32", ("N",)), *_OUTPUT], blocks=_blocks, constants=_CONSTANTS
)
ENV_STEP_SEVERAL = Kernel(
    "env_step", [*_STATE, In("action", "int32", ("N", "ACTIONS")), *_OUTPUT], blocks=_blocks, constants=_CONSTANTS
)
ENV_STEP_CONTINUOUS = Kernel(
    "env_step",
    [*_STATE, In("action", "float32", ("N", "ACTIONS")), *_BOUNDS, *_OUTPUT],
    blocks=_blocks,
    constants=_CONSTANTS,
)


def env_reset(
    header: Path,
    constants: Mapping[str, Constant],
    episode_seed: Tensor,
    state: Tensor,
    episode_index: Tensor,
    episode_length: Tensor,
    episode_return: Tensor,
    observation: Tensor,
) -> None:
    """Begins the episode of the given seed in each of N environments and sets their counters to 0.

    Args:
        header: the dynamics; what it defines stands in kernels/environment.cuh.
        constants: STATE (S), OBSERVATION (D), ACTIONS, DISCRETE (0 or 1), AGENTS (rows of a world, which divide N).
        episode_seed: (N,) int64 bit patterns; the rows of a world share theirs.
        state: (S, N) float32, written.
        episode_index: (N,) int64, written.
        episode_length: (N,) int32, written.
        episode_return: (N,) float32, written.
        observation: (N, D) float32, written: the first of the episode.

    Raises:
        ValueError: an array is not as stated.
    """
    arrays = (episode_seed, state, episode_index, episode_length, episode_return, observation)
    ENV_RESET(*arrays, header=header, **constants)


class EnvStep:
    """Steps N environments, whose own arrays are bound once: what comes with each step is little to check and to pass.

    Args:
        header: the dynamics; what it defines stands in kernels/environment.cuh.
        constants: STATE (S), OBSERVATION (D), ACTIONS (A), DISCRETE (0 or 1), AGENTS (rows of a world, which divide N).
        bounds: two (A,) float32 for continuous actions, None for discrete ones.
        state: read and written: state (S, N) float32, episode_seed and episode_index (N,) int64,
            episode_length (N,) int32, episode_return (N,) float32.
        max_episode_steps: the time limit.
        run_seed: 64 bits; seeds the episodes that begin.
    """

    def __init__(
        self,
        header: Path,
        constants: Mapping[str, Constant],
        bounds: tuple[Tensor, Tensor] | None,
        state: Mapping[str, Tensor],
        max_episode_steps: int,
        run_seed: int,
    ) -> None:
        one = isinstance(constants["ACTIONS"], int)
        self._kernel = ENV_STEP_CONTINUOUS if bounds else ENV_STEP_DISCRETE if one else ENV_STEP_SEVERAL
        self._header, self._constants = header, constants
        self._state = [state[argument.name] for argument in _STATE]
        self._bounds = list(bounds or ())
        self._scalars: list[Any] = [self._state[0].shape[-1], max_episode_steps, run_seed]
        self._checked: object = None
        self._run: Callable[[int, list[Any]], None]
        self._blocks = 0

    def __call__(self, action: Tensor, output: tuple[Tensor, ...]) -> None:
        """One step; where an episode ends the next one of the run seed begins in the same step.

        Args:
            action: (N,) int32 within [0, A), (N, K) int32 where there are several choices, or (N, A) float32, clipped
                to the bounds. An action that is none (outside, or NaN) makes its environment's state, observation and
                reward NaN.
            output: written: observation (N, D) float32, reward (N,) float32, terminated and truncated (N,) uint8,
                final_observation (N, D) float32, and the episode's return (N,) float32 and length (N,) int32, this
                step included.

        Raises:
            ValueError: an array is not as stated.
        """
        given = (action, *output)
        likeness = [(v.dtype, v.shape, v.is_contiguous(), v.device) if isinstance(v, Tensor) else None for v in given]
        arrays = [*self._state, action, *self._bounds, *output]
        if likeness != self._checked:  # else it was checked before
            values = [*arrays, *self._scalars[1:]]
            self._run, self._blocks, _ = self._kernel.plan(values, self._header, self._constants)
            self._checked = likeness
        self._run(self._blocks, arrays + self._scalars)
