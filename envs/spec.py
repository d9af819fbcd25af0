"""What an environment is: its shapes, bounds, time limit and the header that holds its dynamics."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.launcher import source


@dataclass(frozen=True)
class Discrete:
    """Actions 0, 1, ..., n - 1."""

    n: int


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once; choice k takes one of 0, 1, ..., sizes[k] - 1."""

    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """Continuous actions; one inclusive bound for each dimension."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Parameter:
    """A physical parameter that each episode draws, uniform in the range of its split; both ends belong to it."""

    name: str
    train: tuple[float, float]  # of the selection episodes too
    held_out: tuple[float, float]


@dataclass(frozen=True)
class EnvSpec:
    """The one place where an environment's metadata is written; kernels get it as compile-time constants."""

    name: str
    version: int
    observation_low: tuple[float, ...]
    observation_high: tuple[float, ...]
    action: Discrete | MultiDiscrete | Box
    max_episode_steps: int
    state_size: int  # floats of physical state for each environment
    reward_range: tuple[float, float]  # of one step
    header: Path  # the dynamics, C++ and CUDA from one source
    parameters: tuple[Parameter, ...] = ()  # those that are drawn; they lie behind the environment's own state
    agents: int = field(default=1, kw_only=True)  # rows of a world, which share episodes

    @property
    def observation_size(self) -> int:
        """D: floats of one observation."""
        return len(self.observation_low)

    @property
    def actions(self) -> int | tuple[int, ...]:
        """What the kernels are compiled for: actions, those of each of several choices, or continuous dimensions."""
        if isinstance(self.action, Box):
            return len(self.action.low)
        return self.action.n if isinstance(self.action, Discrete) else self.action.sizes

    @property
    def discrete(self) -> bool:
        return not isinstance(self.action, Box)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Of one action: () for one choice, (K,) for several, (A,) for A continuous dimensions."""
        if isinstance(self.action, Discrete):
            return ()
        return (len(self.action.sizes if isinstance(self.action, MultiDiscrete) else self.action.low),)

    @property
    def resumable(self) -> bool:
        """Whether a training that was stopped can go on: whether the environments' state can be saved."""
        return True

    @property
    def seeded_at_reset(self) -> bool:
        """Whether every episode begins from a seed of its own; else only the first one of each environment does."""
        return True

    @property
    def fillers(self) -> bool:
        """Whether a row whose agent is gone has nothing to say until its world begins anew."""
        return False

    def fields(self) -> dict[str, Any]:
        """All fields as JSON values: infinite bounds as the strings "inf" and "-inf", the header by its file name."""
        action = {"kind": type(self.action).__name__.lower(), **dataclasses.asdict(self.action)}
        names = [each.name for each in dataclasses.fields(self)]
        if self.agents == 1:
            names.remove("agents")  # so that no environment became another one when worlds of several came
        plain = {name: getattr(self, name) for name in names}
        values = _json_values({**plain, "action": action, "header": self.header.name})
        del values["parameters"]
        if self.parameters:
            values["parameters"] = {
                each.name: {"train": list(each.train), "held_out": list(each.held_out)} for each in self.parameters
            }
        assert isinstance(values, dict)
        return values

    def sha256(self) -> str:
        """Hash of every field and of the text of the dynamics: it changes when the environment does."""
        text = json.dumps({**self.fields(), **self._sources()}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _sources(self) -> dict[str, str]:
        return {"header_sha256": hashlib.sha256(source(self.header).encode()).hexdigest()}


def _json_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_values(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_json_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
