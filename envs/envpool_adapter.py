"""EnvPool's environments: their specification, and the pool that steps all of them in threads of its own."""

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import numpy as np

from envs.gymnasium_adapter import HostSpec, described
from envs.player import Board, decoder, flattener, near, one_line, spaces
from kernels.errors import UserError

_UNLIMITED = 2**31 - 1  # EnvPool's time limit of an environment that has none
_OURS = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "max_episode_steps", "gym_reset_return_info")


@dataclass(frozen=True, kw_only=True)
class EnvPoolSpec(HostSpec):
    """An environment of EnvPool's.

    Attributes:
        seedable: when an environment takes a seed: as it is made, and never again. Its first episode begins from that
            seed; later ones go on from the generator that it left.
        threads: of the pool; None: EnvPool's own choice. Changes no result.
    """

    seedable: str = "at creation"
    threads: int | None = field(default=None, compare=False)

    @property
    def seeded_at_reset(self) -> bool:
        return False


def spec(
    id: str,
    kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    threads: int | None = None,
) -> EnvPoolSpec:
    """The specification of an environment.

    Args:
        id: `HalfCheetah-v4`.
        kwargs: what `envpool.make` takes beside it, such as `{reset_noise_scale: 0.2}`.
        max_episode_steps: its time limit; None: its own.
        threads: as of `EnvPoolSpec`.

    Raises:
        UserError: there is no such environment, it cannot be made, has no time limit, several players, or spaces that
            are not supported.
    """
    envpool, kwargs = _package(), dict(kwargs or {})
    if id not in envpool.list_all_envs():
        raise UserError(f"env.id: wanted an id that EnvPool knows; got {id!r}, {near(id, envpool.list_all_envs())}")
    if taken := [key for key in kwargs if key in _OURS]:
        raise UserError(f"env.kwargs: wanted what {id} alone takes; got {taken[0]}, which the pipeline gives by itself")
    with _refused(id, kwargs):
        found = envpool.make_spec(id, **kwargs)
        observation, action = found.gymnasium_observation_space, found.gymnasium_action_space
    if (players := found.config.max_num_players) > 1:
        raise UserError(f"env.id: wanted an environment of one player; {id} has up to {players}. Choose another")
    own = found.config.max_episode_steps
    limit = max_episode_steps or (own if own < _UNLIMITED else None)
    _unbind(observation)
    return EnvPoolSpec(
        **described(id, observation, action, limit, "Choose another of EnvPool's, which cannot be wrapped"),
        kwargs=kwargs,
        versions=_versions(),
        threads=threads,
    )


def _unbind(space: Any) -> None:
    """No lower bound where EnvPool gives C++'s `numeric_limits::min()`, the smallest number above 0, for the lowest."""
    if isinstance(space, spaces.Dict):
        for each in space.values():
            _unbind(each)
    elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        space.low[space.low == np.finfo(space.dtype).tiny] = -np.inf


class Pool:
    """Plays what is on the board in a pool of EnvPool's, as a `Stepper` of envs/host.py.

    EnvPool begins an episode one step late, in place of an action that it ignores. Here those that ended are reset in
    the same step, so that no such step is ever taken. A death on the step of its time limit it tells as a truncation
    alone: it is given a limit one step longer, and the truncation is told here.

    Args:
        spec: the environment.
        board: of all its environments.
    """

    workers: int | None = None

    def __init__(self, spec: EnvPoolSpec, board: Board) -> None:
        self._spec, self.board = spec, board
        self._pool: Any = None
        self._sizes = np.array(spec.actions) if spec.discrete else None
        self._totals = np.zeros(len(board.seed))
        self._lengths = np.zeros(len(board.seed), np.int32)

    def reset(self) -> None:
        """Makes a new pool, of the board's seeds: EnvPool takes them at no other time."""
        self._pool, space, action_space = make(self._spec, self.board.seed.tolist())
        self._write, self._decode = flattener(space), decoder(action_space)
        observation, _ = self._pool.reset()
        self._observe(observation, self.board.observation)
        self._totals[:], self._lengths[:] = 0.0, 0

    def step(self) -> None:
        board, pool = self.board, self._pool
        self._expect_choices()
        observation, reward, terminated, truncated, _ = pool.step(self._decode(board.action))
        self._observe(observation, board.observation)
        self._lengths += 1
        self._totals += reward
        board.reward[:], board.episode_return[:], board.episode_length[:] = reward, self._totals, self._lengths
        board.terminated[:] = terminated
        board.truncated[:] = truncated | (self._lengths >= self._spec.max_episode_steps)
        board.final_observation[:] = board.observation
        ended = np.flatnonzero(board.terminated | board.truncated).astype(np.int32)
        if len(ended):
            observation, info = pool.reset(ended)
            first = np.empty((len(ended), board.observation.shape[1]), np.float32)
            self._observe(observation, first)
            board.observation[info["env_id"]] = first
            self._totals[ended], self._lengths[ended] = 0.0, 0

    def close(self) -> None:
        self._pool = None  # its threads end with it

    def _observe(self, observation: Any, rows: np.ndarray) -> None:
        try:
            self._write(observation, rows)
        except (ValueError, TypeError) as error:
            wanted = f"env.id: wanted {self._spec.id} to answer as its spaces say"
            raise UserError(f"{wanted}; {one_line(error)}. Choose another of EnvPool's") from error

    def _expect_choices(self) -> None:
        """A choice that is none would be an index into a pool's memory."""
        if self._sizes is None:
            return
        action = self.board.action
        wrong = ((action < 0) | (action >= self._sizes)).any(1)
        if wrong.any():
            wanted = f"env.id: wanted actions of {self._spec.id} from 0 and below {self._sizes.tolist()}"
            raise UserError(f"{wanted}; environment {int(wrong.argmax())} got {action[int(wrong.argmax())].tolist()}")


class Alone:
    """One environment with the interface of Gymnasium's, for checks of what it returns; each reset makes a new pool."""

    def __init__(self, spec: EnvPoolSpec) -> None:
        self._spec = spec
        self._pool, self.observation_space, self.action_space = make(spec, [0])

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        self._pool, *_ = make(self._spec, [seed])
        observation, info = self._pool.reset()
        return _first(observation), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, *values, info = self._pool.step(np.asarray(action)[None])
        reward, terminated, truncated = (value[0] for value in values)
        return _first(observation), reward, terminated, truncated, info

    def close(self) -> None:
        self._pool = None


def _first(observation: Any) -> Any:
    """That of the first environment, by reference."""
    if isinstance(observation, dict):
        return {key: _first(value) for key, value in observation.items()}
    return observation[0, ...]  # an array even where it has no dimension


def make(spec: EnvPoolSpec, seeds: Sequence[int]) -> tuple[Any, Any, Any]:
    """A pool of an environment for each seed, 31 bits, and its spaces of observations and actions.

    Its time limit is a step longer than that of the specification.

    Raises UserError: EnvPool refuses.
    """
    envpool, limit = _package(), min(spec.max_episode_steps + 1, _UNLIMITED)
    with _refused(spec.id, spec.kwargs):
        pool = envpool.make_gymnasium(
            spec.id, num_envs=len(seeds), seed=list(seeds), num_threads=spec.threads or 0, max_episode_steps=limit,
            **spec.kwargs,
        )  # fmt: skip
        return pool, pool.observation_space, pool.action_space


@contextmanager
def _refused(id: str, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Whatever EnvPool raises as a user's mistake; its spaces warn of roundings of their bounds that all have."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # of many kinds, assertions among them
        text = f"env.id, env.kwargs: wanted {id} to be made with {dict(kwargs)}; {type(error).__name__}: "
        raise UserError(f"{text}{one_line(error)}") from error


def _package() -> Any:
    try:
        import envpool  # an extra, and slow to import
    except ModuleNotFoundError as error:
        raise UserError(
            f"env=envpool: wanted the package envpool; {error.name} is not installed. "
            "Install it with `pip install 'lockstep[envpool]'`"
        ) from error
    return envpool


def _versions() -> dict[str, str]:
    """Of EnvPool, and of the packages of models and levels that it brings."""
    required = (re.split(r"[^\w.-]", each)[0] for each in metadata.requires("envpool") or ())
    return {name: metadata.version(name) for name in ("envpool", *required) if name.startswith("envpool")}
