"""Plays Gymnasium environments into arrays: in this process, or as a program of its own in a worker process.

Everything that touches Gymnasium is here: an environment is found and made, its observations are written into flat
rows, its actions are made from the policy's choices, and its episodes begin where others end. Autoreset is ours, in the
same step as the end, so there are no rows without a step in them: Gymnasium's vector classes and their autoreset modes
are not used.

A worker runs this file by its path and imports no torch, which would take it seconds and hundreds of megabytes.
"""

import ctypes
import difflib
import importlib
import json
import mmap
import operator
import os
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels.errors import UserError

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.wrappers import TimeLimit
except ModuleNotFoundError as error:
    raise UserError(
        f"env=gymnasium: wanted the package gymnasium; {error.name} is not installed. "
        "Install it with `pip install 'lockstep[gymnasium]'`"
    ) from error

# ---------------------------------------------------------------------------------------------------------------------
# Finding and making an environment
# ---------------------------------------------------------------------------------------------------------------------


def make(id: str, kwargs: Mapping[str, Any], max_episode_steps: int | None) -> gymnasium.Env:
    """One environment of Gymnasium's registry (`LunarLander-v3`) or of a class (`module:Class`).

    Args:
        id: `module:` in front of an id imports the module that registers it.
        kwargs: what it is made with.
        max_episode_steps: its time limit, steps; None: its own, if it has one.

    Raises:
        UserError: there is no such module, class or id; it cannot be made; what was made is no environment.
    """
    found = find(id)
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    try:
        if isinstance(found, str):
            return gymnasium.make(found, disable_env_checker=True, **limit, **kwargs)
        environment = found(**kwargs)
    except UserError:
        raise
    except Exception as error:  # whatever an environment raises
        if type(error).__name__ in ("DependencyNotInstalled", "ModuleNotFoundError"):
            raise UserError(f"env.id: wanted {id} to be made; a package is missing: {one_line(error)}") from error
        text = f"env.id, env.kwargs: wanted {id} to be made with {dict(kwargs)}; {type(error).__name__}: "
        raise UserError(f"{text}{one_line(error)}{_trace(error)}") from error
    if not isinstance(environment, gymnasium.Env):
        raise UserError(f"env.id: wanted a class of gymnasium.Env; {id} makes a {type(environment).__name__}")
    return TimeLimit(environment, **limit) if limit else environment


def find(id: str) -> str | Callable[..., Any]:
    """The registry's id, or the class that `module:Class` names. UserError: there is none."""
    module, colon, name = id.rpartition(":")
    if colon:
        content = vars(_import(module))
        if callable(content.get(name)):
            return content[name]  # type: ignore[no-any-return]
        if name not in gymnasium.registry:
            classes = [
                key for key, each in content.items() if isinstance(each, type) and issubclass(each, gymnasium.Env)
            ]
            raise UserError(f"env.id: wanted a class of {module}; got {name!r}, {near(name, [*classes, *_ids()])}")
    elif name not in gymnasium.registry and not _is_atari(name):
        hint = "For a class of yours write module:Class"
        raise UserError(f"env.id: wanted an id that Gymnasium knows; got {name!r}, {near(name, _ids())}. {hint}")
    return name


def make_world(id: str, kwargs: Mapping[str, Any]) -> Any:
    """One parallel environment of PettingZoo's, by a module's `parallel_env` or by `module:function`.

    Raises:
        UserError: there is no such module or function; it cannot be made; what was made is no parallel environment.
    """
    module, _, name = id.partition(":")
    content = vars(_import(module))
    function = content.get(name or "parallel_env")
    if not callable(function):
        own = [key for key, each in content.items() if callable(each)]
        raise UserError(
            f"env.id: wanted a function of {module}; got {name or 'parallel_env'!r}, "
            f"{near(name or 'parallel_env', own)}"
        )
    try:
        world = function(**kwargs)
    except Exception as error:  # whatever an environment raises
        text = f"env.id, env.kwargs: wanted {id} to be made with {dict(kwargs)}; {type(error).__name__}: "
        raise UserError(f"{text}{one_line(error)}{_trace(error)}") from error
    if not getattr(world, "possible_agents", None) or hasattr(world, "agent_iter"):
        raise UserError(
            f"env.id: wanted a parallel environment of PettingZoo's, with possible_agents; {id} makes a "
            f"{type(world).__name__}. Turn-based ones are made parallel by pettingzoo.utils.turn_based_aec_to_parallel"
        )
    return world


def _trace(error: Exception) -> str:
    """Where it was raised, behind a line's end; nothing where the line says it all: an argument that is not taken."""
    argument = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    return "" if argument else f"\n{traceback.format_exc().rstrip()}"


def _is_atari(id: str) -> bool:
    """Whether ale-py knows the id; it is registered then."""
    if not id.startswith("ALE/"):
        return False
    try:
        gymnasium.register_envs(importlib.import_module("ale_py"))
    except ModuleNotFoundError as error:
        raise UserError(
            f"env.id: wanted the package ale-py for {id}; {error.name} is not installed. "
            "Install it with `pip install 'lockstep[atari]'`"
        ) from error
    return id in gymnasium.registry


def _import(module: str) -> Any:
    if module == "envs.atari":  # by its path: in a worker the package would bring torch with it
        return types.SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("atari.py"))))
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise UserError(
                f"env.id: wanted the module {module}; it imports {error.name}, which is not there"
            ) from error
        here = sorted(
            {path.stem for path in Path.cwd().glob("*.py")}
            | {path.parent.name for path in Path.cwd().glob("*/__init__.py")}
        )
        raise UserError(
            f"env.id: wanted a module in this folder or installed; got {module!r}, {near(module, here)}"
        ) from error
    except (Exception, SystemExit) as error:
        text = f"env.id: wanted the module {module} to be imported; {type(error).__name__}: {one_line(error)}"
        raise UserError(f"{text}\n{traceback.format_exc().rstrip()}") from error


def _ids() -> list[str]:
    return sorted(gymnasium.registry)


def near(name: str, options: Sequence[str]) -> str:
    """In words which options are most like a name that is none of them."""
    lower = {option.lower(): option for option in options}
    found = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    return f"nearest: {', '.join(lower[each] for each in found)}" if found else "and nothing is like it"


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


# ---------------------------------------------------------------------------------------------------------------------
# Spaces
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A leaf of an observation space and its place in the flat observation, all of it float32.

    A box is its values: those of uint8 divided by 255, others, float64 too, rounded to float32. Choices are one-hot.

    Attributes:
        path: the keys and places that lead to it; () where the space is no Dict and no Tuple.
        kind: box, discrete, multidiscrete or multibinary.
        shape, dtype: of a value.
        first: its first element in the flat observation.
        low, high: (size,) float32, the bounds of its elements.
        starts, sizes: of each choice, the lowest value and how many there are.
    """

    path: tuple[str | int, ...]
    kind: str
    shape: tuple[int, ...]
    dtype: str
    first: int
    low: np.ndarray
    high: np.ndarray
    starts: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return len(self.low)

    def record(self) -> dict[str, Any]:
        """What the environment's specification says of it: JSON values."""
        place = {"path": "/".join(map(str, self.path)), "kind": self.kind, "shape": list(self.shape)}
        return {**place, "dtype": self.dtype, "first": self.first, "size": self.size}


def parts(space: gymnasium.Space, path: tuple[str | int, ...] = (), first: int = 0) -> list[Part]:
    """The leaves of an observation space in the order of their places. UserError: one is of a kind without a place."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        found: list[Part] = []
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, each in items:
            found += parts(each, (*path, key), found[-1].first + found[-1].size if found else first)
        return found
    name, shape = type(space).__name__, space.shape or ()
    if isinstance(space, spaces.Box):
        scale = 255.0 if space.dtype == np.uint8 else 1.0
        with np.errstate(over="ignore"):  # a bound beyond float32 is infinite
            low, high = (
                (each.astype(np.float64).ravel() / scale).astype(np.float32) for each in (space.low, space.high)
            )
        return [Part(path, "box", shape, str(space.dtype), first, low, high)]
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(shape))
        return [Part(path, "multibinary", shape, str(space.dtype), first, *_zeros_and_ones(count))]
    if isinstance(space, spaces.Discrete):
        starts, sizes = (int(space.start),), (int(space.n),)
        return [Part(path, "discrete", (), str(space.dtype), first, *_zeros_and_ones(sizes[0]), starts, sizes)]
    if isinstance(space, spaces.MultiDiscrete):
        starts, sizes = (tuple(each.ravel().tolist()) for each in (space.start, space.nvec))
        return [
            Part(path, "multidiscrete", shape, str(space.dtype), first, *_zeros_and_ones(sum(sizes)), starts, sizes)
        ]
    where = f" at {'/'.join(map(str, path))}" if path else ""
    raise UserError(
        f"env.id: wanted observations of Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple; got {name}{where}. "
        "Wrap the environment in a gymnasium.ObservationWrapper that makes a Box of them"
    )


def _zeros_and_ones(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(count, np.float32), np.ones(count, np.float32)


def writer(part: Part) -> Callable[[Any, np.ndarray], None]:
    """Writes a value of the part into its elements of a flat observation, (D,), or n values into those of (n, D).

    ValueError: the value is not of the space.
    """
    place = slice(part.first, part.first + part.size)
    what = "observation" + "".join(f"[{key!r}]" for key in part.path)

    def checked(value: Any, row: np.ndarray) -> np.ndarray:
        array, many = np.asarray(value), row.shape[:-1]
        if array.shape != many + part.shape:
            raise ValueError(f"{what} must have shape {many + part.shape}; got {array.shape}")
        return array.reshape(*many, -1)

    def write_values(value: Any, row: np.ndarray) -> None:
        row[..., place] = checked(value, row)

    def write_bytes(value: Any, row: np.ndarray) -> None:
        np.divide(checked(value, row), np.float32(255.0), out=row[..., place], casting="same_kind")

    places = np.cumsum((part.first, *part.sizes[:-1])) if part.sizes else np.zeros(0, int)

    def write_choices(value: Any, row: np.ndarray) -> None:
        if row.ndim > 1:
            for each, one in zip(value, row, strict=True):
                write_choices(each, one)
            return
        choices = checked(value, row).tolist() if part.shape else [operator.index(value)]
        row[place] = 0.0
        for choice, start, size, begin in zip(choices, part.starts, part.sizes, places, strict=True):
            if not start <= choice < start + size:
                raise ValueError(f"{what} must be one of {start} to {start + size - 1}; got {choice}")
            row[begin + choice - start] = 1.0

    if part.sizes:
        return write_choices
    return write_bytes if part.dtype == "uint8" and part.kind == "box" else write_values


def flattener(space: gymnasium.Space) -> Callable[[Any, np.ndarray], None]:
    """Writes an observation of the space, all its parts, into a flat (D,) float32 row; or n into (n, D)."""
    writers = [(part.path, writer(part)) for part in parts(space)]
    if len(writers) == 1 and not writers[0][0]:
        return writers[0][1]

    def write(value: Any, row: np.ndarray) -> None:
        for path, write_part in writers:
            leaf = value
            for key in path:
                leaf = leaf[key]
            write_part(leaf, row)

    return write


def decoder(space: gymnasium.Space) -> Callable[[np.ndarray], np.ndarray]:
    """From n rows of a policy's choices, (n, K) int32 from 0 or (n, A) float32, to the n actions that are meant.

    Choices are counted from the space's start; continuous actions are clipped to its bounds.
    """
    shape = space.shape or ()
    if isinstance(space, spaces.Discrete):
        return lambda rows: rows[:, 0].astype(np.int64) + space.start
    if isinstance(space, spaces.MultiDiscrete):
        return lambda rows: (rows.reshape(-1, *shape) + space.start).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return lambda rows: rows.reshape(-1, *shape).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    return lambda rows: np.clip(rows.reshape(-1, *shape), space.low, space.high).astype(space.dtype)


# ---------------------------------------------------------------------------------------------------------------------
# Playing
# ---------------------------------------------------------------------------------------------------------------------


class Board(NamedTuple):
    """What is exchanged with those that step N environments: arrays over one piece of memory, D floats seen."""

    action: np.ndarray  # (N, K) int32 choices from 0, or (N, A) float32 that are not clipped
    seed: np.ndarray  # (N,) int64: of the episode to begin next, 31 bits
    observation: np.ndarray  # (N, D) float32: the next one; after an end the first of the new episode
    final_observation: np.ndarray  # (N, D) float32: what this step led to, before any reset
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) uint8
    truncated: np.ndarray  # (N,) uint8
    episode_return: np.ndarray  # (N,) float32: of the episode of this step, this step included; summed in float64
    episode_length: np.ndarray  # (N,) int32: likewise
    playing: np.ndarray  # (N,) uint8: 1 while its environment is in a call
    frames: np.ndarray  # (N,) int64: of an emulator, since the beginning, as `info["frames"]` of each call tells
    alive: np.ndarray  # (N,) uint8: 1 where an agent sees the observation; of worlds alone
    begun: np.ndarray  # (N,) uint8: 1 where the step ended a world's episode and began its next; of worlds alone

    def rows(self, first: int, end: int) -> "Board":
        """Environments [first, end), by reference."""
        return Board(*(array[first:end] for array in self))


def board(num_envs: int, observation_size: int, actions: int, discrete: bool, memory: Any = None) -> Board:
    """Arrays over `memory`, a buffer of at least `board_bytes`; over memory of their own without one."""
    fields = (
        ((actions,), "int32" if discrete else "float32"), ((), "int64"),
        ((observation_size,), "float32"), ((observation_size,), "float32"), ((), "float32"),
        ((), "uint8"), ((), "uint8"), ((), "float32"), ((), "int32"), ((), "uint8"), ((), "int64"),
        ((), "uint8"), ((), "uint8"),
    )  # fmt: skip
    arrays, place = [], 0
    for shape, dtype in fields:
        whole = (num_envs, *shape)
        array: np.ndarray = np.zeros(whole, dtype) if memory is None else np.ndarray(whole, dtype, memory, place)
        place += -(-array.nbytes // 64) * 64
        arrays.append(array)
    return Board(*arrays)


def board_bytes(num_envs: int, observation_size: int, actions: int, discrete: bool) -> int:
    """Bytes that `board` needs."""
    return sum(-(-array.nbytes // 64) * 64 for array in board(num_envs, observation_size, actions, discrete))


class PlayError(Exception):
    """An environment raised: which one, in which call, what, and the traceback."""

    def __init__(self, environment: int, call: str, text: str, trace: str) -> None:
        super().__init__(text)
        self.environment, self.call, self.text, self.trace = environment, call, text, trace


class Player:
    """Steps the environments [first, first + n) of a board, one after the other.

    Args:
        environments: n of them, of one kind.
        board: of all N; only the rows of these environments are read and written.
        first: the index of the first one.
    """

    def __init__(self, environments: Sequence[gymnasium.Env], board: Board, first: int = 0) -> None:
        self._environments, self._first = environments, first
        self._board = board.rows(first, first + len(environments))
        self._write = flattener(environments[0].observation_space)
        self._decode = decoder(environments[0].action_space)
        self._totals = [0.0] * len(environments)
        self._lengths = np.zeros(len(environments), np.int32)
        self._board.frames[:] = 0

    def reset(self) -> None:
        """Begins an episode in every environment, of the board's seeds; writes the observations. Raises PlayError."""
        self._begin(range(len(self._environments)))

    def step(self) -> None:
        """Plays the board's actions, writes all else; where an episode ends the next one begins. Raises PlayError."""
        board, write, totals, ended, playing = self._board, self._write, self._totals, [], -1
        actions = self._decode(board.action)
        try:
            for i, environment in enumerate(self._environments):
                board.playing[i], playing = 1, i
                observation, reward, terminated, truncated, info = environment.step(actions[i])
                write(observation, board.observation[i])
                reward, terminated, truncated = float(reward), bool(terminated), bool(truncated)
                board.reward[i], board.terminated[i], board.truncated[i] = reward, terminated, truncated
                totals[i] += reward
                board.episode_return[i] = totals[i]
                board.frames[i] += info.get("frames", 0)
                board.playing[i] = 0
                if terminated or truncated:
                    ended.append(i)
        except Exception as error:  # likewise
            raise self._raised(playing, "step", error) from error
        self._lengths += 1
        board.episode_length[:] = self._lengths
        board.final_observation[:] = board.observation
        if ended:
            self._begin(ended)

    def close(self) -> None:
        for environment in self._environments:
            environment.close()

    def _begin(self, which: Sequence[int]) -> None:
        board, i = self._board, -1
        try:
            for i in which:
                board.playing[i] = 1
                observation, info = self._environments[i].reset(seed=int(board.seed[i]))
                self._write(observation, board.observation[i])
                board.frames[i] += info.get("frames", 0)
                self._totals[i], self._lengths[i] = 0.0, 0
                board.playing[i] = 0
        except Exception as error:  # likewise
            raise self._raised(i, "reset", error) from error

    def _raised(self, i: int, call: str, error: Exception) -> PlayError:
        text = f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
        return PlayError(self._first + i, call, text, traceback.format_exc().rstrip())


class WorldPlayer:
    """Steps worlds of a board, one after the other; each of a world's k agents is a row, in the order of their names.

    A world begins anew, by the seed on its first row, once all its agents are gone, or at its time limit, which
    truncates those that are left. Till then the row of an agent that is gone is a filler: all of it is 0.

    Args:
        worlds: of one kind.
        board: of all N rows; only those of these worlds are read and written.
        first: the index of the first row.
        max_episode_steps: of a world's episode.
    """

    def __init__(self, worlds: Sequence[Any], board: Board, first: int, max_episode_steps: int) -> None:
        self._worlds, self._first, self._limit = worlds, first, max_episode_steps
        self._agents = list(worlds[0].possible_agents)
        self._board = board.rows(first, first + len(worlds) * len(self._agents))
        self._write = flattener(worlds[0].observation_space(self._agents[0]))
        self._decode = decoder(worlds[0].action_space(self._agents[0]))
        self._totals = [0.0] * len(self._board.reward)
        self._ages = [0] * len(worlds)
        self._board.frames[:] = 0

    def reset(self) -> None:
        """Begins an episode in every world, of the board's seeds; writes the observations. Raises PlayError."""
        for number in range(len(self._worlds)):
            self._call(number, "reset", self._begin)

    def step(self) -> None:
        """Plays the board's actions, writes all else; where an episode ends the next one begins. Raises PlayError."""
        board = self._board
        for outputs in (board.observation, board.final_observation, board.reward, board.terminated, board.truncated,
                        board.episode_return, board.episode_length, board.begun):  # fmt: skip
            outputs[:] = 0
        self._actions = self._decode(board.action)
        for number in range(len(self._worlds)):
            self._call(number, "step", self._advance)
        board.final_observation[:] = board.observation
        for number in range(len(self._worlds)):
            rows = self._rows(number)
            if not board.alive[rows].any():
                board.begun[rows] = 1
                self._call(number, "reset", self._begin)

    def close(self) -> None:
        for world in self._worlds:
            world.close()

    def _rows(self, number: int) -> slice:
        return slice(number * len(self._agents), (number + 1) * len(self._agents))

    def _call(self, number: int, name: str, function: Callable[[int], None]) -> None:
        rows = self._rows(number)
        self._board.playing[rows] = 1
        try:
            function(number)
        except Exception as error:  # whatever an environment raises
            text = f"{type(error).__name__}: {one_line(error)}".removesuffix(": ")
            raise PlayError(self._first + rows.start, name, text, traceback.format_exc().rstrip()) from error
        self._board.playing[rows] = 0

    def _begin(self, number: int) -> None:
        board, world, rows = self._board, self._worlds[number], self._rows(number)
        observations, _ = world.reset(seed=int(board.seed[rows.start]))
        if sorted(world.agents) != sorted(self._agents):
            raise ValueError(f"all possible agents must be there when an episode begins; got {world.agents}")
        for row, agent in enumerate(self._agents, rows.start):
            self._write(observations[agent], board.observation[row])
            self._totals[row] = 0.0
        board.alive[rows] = 1
        self._ages[number] = 0

    def _advance(self, number: int) -> None:
        board, world, rows = self._board, self._worlds[number], self._rows(number)
        acting = [(row, agent) for row, agent in enumerate(self._agents, rows.start) if board.alive[row]]
        observations, rewards, deaths, cuts, _ = world.step({agent: self._actions[row] for row, agent in acting})
        self._ages[number] += 1
        for row, agent in acting:
            self._write(observations[agent], board.observation[row])
            dead, cut = bool(deaths[agent]), bool(cuts[agent]) or self._ages[number] >= self._limit
            board.reward[row], board.terminated[row], board.truncated[row] = float(rewards[agent]), dead, cut
            self._totals[row] += float(rewards[agent])
            board.episode_return[row], board.episode_length[row] = self._totals[row], self._ages[number]
            board.alive[row] = not (dead or cut)
        joined = set(world.agents) - {agent for _, agent in acting}
        if joined:
            raise ValueError(f"an agent that is gone must stay away until the next episode; {sorted(joined)} came back")


# ---------------------------------------------------------------------------------------------------------------------
# A worker process
# ---------------------------------------------------------------------------------------------------------------------

RESET, STEP = b"r", b"s"  # what a worker is told
DONE, FAILED = b".", b"!"  # what it answers; after the latter a line of JSON


@dataclass(frozen=True)
class Task:
    """What to play, and what a worker is started with.

    Attributes:
        id, kwargs, max_episode_steps: as for `make`.
        first, end: its environments, of those on the board: their rows.
        agents: of a world, each a row; 0: these are environments of Gymnasium's.
        board: the arguments of `board`; this and what follows is of a worker process alone.
        memory, answers: descriptors of the board's memory, and of the pipe to answer on.
        parent: the process that it ends with.
    """

    id: str
    kwargs: Mapping[str, Any]
    max_episode_steps: int
    first: int
    end: int
    agents: int
    board: tuple[int, int, int, bool] = (0, 0, 0, False)
    memory: int = -1
    answers: int = -1
    parent: int = 0


# Run by `python -c`, with the parent's path and a task: so that a module is found wherever the parent finds it.
BOOTSTRAP = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "runpy.run_path(sys.argv[2])['work'](json.loads(sys.argv[3]))"
)


def players(task: Task, whole: Board) -> Player | WorldPlayer:
    """Those of a task's rows of the board, their environments made."""
    if not task.agents:
        made = [make(task.id, task.kwargs, task.max_episode_steps) for _ in range(task.first, task.end)]
        return Player(made, whole, task.first)
    worlds = [make_world(task.id, task.kwargs) for _ in range(task.first, task.end, task.agents)]
    return WorldPlayer(worlds, whole, task.first, task.max_episode_steps)


def work(task: Mapping[str, Any]) -> None:
    """A worker's life: it makes its environments, answers each byte of its standard input, and ends with that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends its workers
    if sys.platform == "linux":  # a worker that hangs ends with its parent as well
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    mine = Task(**task)
    if os.getppid() != mine.parent:
        return
    try:
        memory = mmap.mmap(mine.memory, board_bytes(*mine.board))
        player = players(mine, board(*mine.board, memory))
        os.write(mine.answers, DONE)
        while command := os.read(0, 1):
            player.reset() if command == RESET else player.step()
            os.write(mine.answers, DONE)
        player.close()
    except (PlayError, UserError) as error:
        content = vars(error) if isinstance(error, PlayError) else {"refusal": str(error)}
        with os.fdopen(mine.answers, "wb") as answers:
            answers.write(FAILED + json.dumps(content).encode() + b"\n")
    except BrokenPipeError:
        pass  # the parent is gone
