"""What an environment of others is, and one of Gymnasium's: its specification, read from one that is made for it."""

import dataclasses
import hashlib
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from envs.player import find, make, make_world, parts, spaces
from envs.spec import Box, Discrete, EnvSpec, MultiDiscrete
from kernels.errors import UserError


@dataclass(frozen=True, kw_only=True)
class HostSpec(EnvSpec):
    """An environment of other people's, which the host steps.

    `fields`, and so the hash, hold what changes a result: id, kwargs, spaces and their layout, time limit, versions.

    Attributes:
        id: by which its library makes it.
        kwargs: what it is made with.
        layout: where each part of its observation lies in the flat one (envs/player.py, Part).
        action_space: kind, shape, dtype and start of what the environment takes.
        versions: of packages, by name.
        seed_bits: of an episode seed the environment gets the two top bits, its split, and the lowest 29.
    """

    id: str
    kwargs: Mapping[str, Any] = field(hash=False)
    layout: tuple[Mapping[str, Any], ...] = field(hash=False)
    action_space: Mapping[str, Any] = field(hash=False)
    versions: Mapping[str, str] = field(hash=False)
    seed_bits: int = 31
    # Its state is its own, and its dynamics are no header.
    state_size: int = 0
    header: Path = Path()

    @property
    def resumable(self) -> bool:
        return False

    def fields(self) -> dict[str, Any]:
        own = {each.name for each in dataclasses.fields(self) if each.compare} - {"state_size", "header"}
        return {name: value for name, value in super().fields().items() if name in own}

    def _sources(self) -> dict[str, str]:
        return {}  # what there is of them is a field


@dataclass(frozen=True, kw_only=True)
class GymnasiumSpec(HostSpec):
    """An environment of Gymnasium's registry, or a class of the user's (`id` is `module:Class`).

    Attributes:
        source_sha256: of the file of its class; None where there is none to read.
        workers: processes that step it; 0: a loop in this one; None: the faster, measured. Changes no result.
        timeout_s: seconds that a worker may take for one call.
    """

    source_sha256: str | None
    workers: int | None = field(default=None, compare=False)
    timeout_s: float = field(default=60.0, compare=False)


def spec(
    id: str,
    kwargs: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    workers: int | None = None,
    timeout_s: float = 60.0,
) -> GymnasiumSpec:
    """The specification of an environment.

    Args:
        id: `LunarLander-v3`, or `my_module:MyClass` of a module in the working folder or installed.
        kwargs: what it is made with.
        max_episode_steps: its time limit; None: its own.
        workers, timeout_s: as of `GymnasiumSpec`.

    Raises:
        UserError: there is no such environment, it cannot be made, has no time limit, or spaces that are not supported.
    """
    kwargs = dict(kwargs or {})
    environment = make(id, kwargs, max_episode_steps)
    limit = max_episode_steps or getattr(environment.spec, "max_episode_steps", None)
    kind = type(environment.unwrapped)
    made = GymnasiumSpec(
        **described(id, environment.observation_space, environment.action_space, limit),
        kwargs=kwargs,
        versions=_versions(kind),
        source_sha256=_source_sha256(kind),
        workers=workers,
        timeout_s=timeout_s,
    )
    environment.close()
    return made


def described(
    id: str,
    observation: Any,
    action: Any,
    limit: int | None,
    otherwise: str = "Wrap the environment in a gymnasium.ActionWrapper",
) -> dict[str, Any]:
    """The fields of a `HostSpec` that follow from an id, the spaces and the time limit, None for none.

    `otherwise`: what to do where actions are not supported.

    Raises UserError: there is no time limit, or spaces are not supported.
    """
    if limit is None:
        raise UserError(
            f"env.max_episode_steps: wanted a time limit, steps; {id} has none of its own, and an evaluation plays "
            "episodes to their end. Give env.max_episode_steps=<steps>"
        )
    layout = parts(observation)
    if not sum(part.size for part in layout):
        raise UserError(f"env.id: wanted an observation of one number or more; {id} has an empty one")
    name, _, version = id.partition("-v") if re.search(r"-v\d+$", id) else (id, "", "0")
    return {
        "name": name,
        "version": int(version),
        "observation_low": tuple(float(bound) for part in layout for bound in part.low),
        "observation_high": tuple(float(bound) for part in layout for bound in part.high),
        "action": _action(id, action, otherwise),
        "max_episode_steps": int(limit),
        "reward_range": (-math.inf, math.inf),
        "id": id,
        "layout": tuple(part.record() for part in layout),
        "action_space": _recorded(action),
    }


_OF_ATARI = (
    *("id", "noop_max", "frame_skip", "sticky"),
    *("frameskip", "repeat_action_probability", "obs_type", "max_num_frames_per_episode"),
)


def atari(
    id: str,
    max_episode_steps: int | None,
    noop_max: int,
    frame_skip: int,
    sticky: float,
    kwargs: Mapping[str, Any] | None = None,
    workers: int | None = None,
    timeout_s: float = 60.0,
) -> GymnasiumSpec:
    """The specification of an Atari game behind the wrapper of envs/atari.py, whose arguments these are.

    Raises:
        UserError: as `spec`.
    """
    if taken := [key for key in kwargs or {} if key in _OF_ATARI]:
        raise UserError(
            f"env.kwargs: wanted what {id} alone takes; got {taken[0]}, which is given by env.id, env.noop_max, "
            "env.frame_skip and env.sticky"
        )
    if util.find_spec("ale_py"):  # else it is told how to get it
        find(id)
    arguments = {**(kwargs or {}), "id": id, "noop_max": noop_max, "frame_skip": frame_skip, "sticky": sticky}
    made = spec("envs.atari:Atari", arguments, max_episode_steps, workers, timeout_s)
    name, _, version = id.removeprefix("ALE/").partition("-v")
    versions = {**made.versions, "ale-py": metadata.version("ale-py")}
    source = hashlib.sha256(Path(__file__).with_name("atari.py").read_bytes()).hexdigest()
    return dataclasses.replace(made, name=name, version=int(version), versions=versions, source_sha256=source)


@dataclass(frozen=True, kw_only=True)
class WorldSpec(GymnasiumSpec):
    """A parallel environment of PettingZoo's: a world of k agents, each of which is a row.

    Attributes:
        agent_names: in the order of their rows.
    """

    agent_names: tuple[str, ...]

    @property
    def fillers(self) -> bool:
        return True


def world(
    id: str,
    max_episode_steps: int | None,
    kwargs: Mapping[str, Any] | None = None,
    workers: int | None = None,
    timeout_s: float = 60.0,
) -> WorldSpec:
    """The specification of a parallel environment of PettingZoo's.

    Args:
        id: a module with a function `parallel_env`, or `module:function`.
        kwargs: what the function takes.
        max_episode_steps: time limit of a world's episode.
        workers, timeout_s: as of `GymnasiumSpec`.

    Raises:
        UserError: there is no such environment, it cannot be made, its agents' spaces differ or are not supported, or
            there is no time limit.
    """
    kwargs = dict(kwargs or {})
    environment = make_world(id, kwargs)
    agents = tuple(environment.possible_agents)
    spaces_of = {agent: (environment.observation_space(agent), environment.action_space(agent)) for agent in agents}
    for agent, found in spaces_of.items():
        if found != spaces_of[agents[0]]:
            raise UserError(
                f"env.id: wanted agents of equal spaces, since one policy plays them all; {agent} of {id} has "
                f"{found[0]} and {found[1]}, {agents[0]} has {spaces_of[agents[0]][0]} and {spaces_of[agents[0]][1]}. "
                "Pad them, by a wrapper such as SuperSuit's"
            )
    kind = type(environment.unwrapped)
    made = WorldSpec(
        **described(id, *spaces_of[agents[0]], max_episode_steps),
        kwargs=kwargs,
        versions={**_versions(kind), "pettingzoo": metadata.version("pettingzoo")},
        source_sha256=_source_sha256(kind),
        workers=workers,
        timeout_s=timeout_s,
        agents=len(agents),
        agent_names=agents,
    )
    environment.close()
    return made


def _action(id: str, space: Any, otherwise: str) -> Discrete | MultiDiscrete | Box:
    """The actions as the policy chooses them: choices from 0, or continuous ones within bounds."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return MultiDiscrete((2,) * int(np.prod(space.shape)))
    wanted = f"env.id: wanted actions of Discrete, MultiDiscrete, MultiBinary or a Box of floats; {id} has"
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise UserError(f"{wanted} {space}. {otherwise}")
    low, high = (tuple(map(float, bound.ravel())) for bound in (space.low, space.high))
    if not np.isfinite((low, high)).all():
        raise UserError(
            f"{wanted} {space}, without bounds to clip to. Give its action space the bounds that make sense"
        )
    return Box(low, high)


def _recorded(space: Any) -> dict[str, Any]:
    start = np.asarray(getattr(space, "start", 0)).ravel().tolist()
    kind = type(space).__name__.lower()
    return {"kind": kind, "shape": list(space.shape or ()), "dtype": str(space.dtype), "start": start}


def _versions(kind: type) -> dict[str, str]:
    """Of Gymnasium, and of the package that the class comes from, where that is a package under its own name."""
    found = {"gymnasium": metadata.version("gymnasium")}
    package = kind.__module__.split(".")[0]
    try:
        return {**found, package: metadata.version(package)}
    except metadata.PackageNotFoundError:
        return found


def _source_sha256(kind: type) -> str | None:
    try:
        return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()
    except (OSError, TypeError):
        return None
