"""Environments by name."""

import dataclasses
import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from envs.parameters import with_ranges
from envs.spec import Box, Discrete, EnvSpec, MultiDiscrete
from envs.vector import NativeVectorEnv, StepOutput, VectorEnv, empty_output
from kernels.errors import UserError

__all__ = [
    "ADAPTERS",
    "Box",
    "Discrete",
    "EnvSpec",
    "MultiDiscrete",
    "NativeVectorEnv",
    "StepOutput",
    "VectorEnv",
    "empty_output",
    "make",
    "names",
    "render",
    "spec",
]


def _native() -> dict[str, ModuleType]:
    """The native environments: modules <name>.py of this folder with their dynamics beside them, <name>.h."""
    names = [name for _, name, _ in pkgutil.iter_modules(__path__) if (Path(__path__[0]) / f"{name}.h").is_file()]
    modules = {name: importlib.import_module(f"envs.{name}") for name in names}
    for name, module in modules.items():
        if module.SPEC.name != name:
            raise UserError(f"envs/{name}.py: wanted its SPEC to have the name {name!r}; got {module.SPEC.name!r}")
    return modules


_NATIVE = _native()
# Names of other people's environments, which are chosen by their own keys.
ADAPTERS = ("gymnasium", "atari", "envpool", "pettingzoo")


def names() -> list[str]:
    """The native environments that `spec` knows."""
    return sorted(_NATIVE)


def spec(
    name: str, max_episode_steps: int | None = None, parameters: Mapping[str, Any] | None = None, **host: Any
) -> EnvSpec:
    """The environment called `name`, with its own time limit or the one given (steps, at least 1).

    Args:
        name: a native environment, or an adapter.
        max_episode_steps: its time limit, steps, at least 1; None: its own.
        parameters: of a native one: the ranges that its episodes draw from (envs/parameters.py, `with_ranges`).
        host: which of the adapter's it is (envs/gymnasium_adapter.py and envs/envpool_adapter.py).

    Raises UserError for an unknown name, a limit below 1, or ranges that are none.
    """
    if name == "gymnasium":
        from envs import gymnasium_adapter  # an extra, and slow to import

        return gymnasium_adapter.spec(max_episode_steps=max_episode_steps, **host)
    if name in ("atari", "pettingzoo"):
        from envs import gymnasium_adapter

        kind = gymnasium_adapter.atari if name == "atari" else gymnasium_adapter.world
        return kind(max_episode_steps=max_episode_steps, **host)
    if name == "envpool":
        from envs import envpool_adapter

        return envpool_adapter.spec(max_episode_steps=max_episode_steps, **host)
    if name not in _NATIVE:
        options = sorted([*names(), *ADAPTERS])
        near = difflib.get_close_matches(name, options, n=1)
        hint = f"did you mean {near[0]}?" if near else "choose one of these."
        raise UserError(f"env: wanted one of {', '.join(options)}; got {name!r}: {hint}")
    found = _NATIVE[name].SPEC
    if parameters:
        found = with_ranges(found, parameters)
    if max_episode_steps is None:
        return found
    if max_episode_steps < 1:
        raise UserError(
            f"env: max_episode_steps must be at least 1; got {max_episode_steps}: leave it out for {name}'s"
        )
    return dataclasses.replace(found, max_episode_steps=max_episode_steps)


def render(spec: EnvSpec, state: np.ndarray) -> np.ndarray:
    """A picture, (H, W, 3) uint8, of one native environment (of several agents: a world) in this state, (S,) float32.

    Raises UserError where there is no one who draws it.
    """
    draw = getattr(_NATIVE.get(spec.name), "render", None)
    if draw is None:
        drawn = ", ".join(name for name, module in _NATIVE.items() if hasattr(module, "render"))
        wanted = f"a native environment whose module has a function render(state): {drawn}"
        raise UserError(f"render: wanted {wanted}; got {spec.name}")
    picture: np.ndarray = draw(state[: spec.agents * spec.state_size - len(spec.parameters)])
    return picture


def make(spec: EnvSpec, num_envs: int, run_seed: int, device: torch.device) -> VectorEnv:
    """`num_envs` environments of one kind on one device; their training episodes follow from `run_seed`."""
    if spec.resumable:
        return NativeVectorEnv(spec, num_envs, run_seed, device)
    from envs.gymnasium_adapter import HostSpec, WorldSpec
    from envs.host import HostVectorEnv, Worlds

    assert isinstance(spec, HostSpec)
    if isinstance(spec, WorldSpec):
        return Worlds(spec, num_envs, run_seed, device)
    return HostVectorEnv(spec, num_envs, run_seed, device)
