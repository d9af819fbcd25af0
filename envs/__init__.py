"""Environments by name."""

import dataclasses
import difflib
from typing import Any

import torch

from envs import acrobot, breakout, cartpole, mountain_car, mountain_car_continuous, pendulum
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
    "spec",
]

_MODULES = (acrobot, breakout, cartpole, mountain_car, mountain_car_continuous, pendulum)
_SPECS: dict[str, EnvSpec] = {module.SPEC.name: module.SPEC for module in _MODULES}
ADAPTERS = (
    "gymnasium",
    "atari",
    "pettingzoo",
)  # names of other people's environments, which are chosen by their own keys


def names() -> list[str]:
    """The native environments that `spec` knows."""
    return sorted(_SPECS)


def spec(name: str, max_episode_steps: int | None = None, **host: Any) -> EnvSpec:
    """The environment called `name`, with its own time limit or the one given (steps, at least 1).

    Args:
        name: a native environment, or an adapter.
        max_episode_steps: its time limit, steps, at least 1; None: its own.
        host: which of the adapter's it is (envs/gymnasium_adapter.py: `spec`, `atari`, `world`).

    Raises UserError for an unknown name or a limit below 1.
    """
    if name == "gymnasium":
        from envs import gymnasium_adapter  # an extra, and slow to import

        return gymnasium_adapter.spec(max_episode_steps=max_episode_steps, **host)
    if name in ("atari", "pettingzoo"):
        from envs import gymnasium_adapter

        kind = gymnasium_adapter.atari if name == "atari" else gymnasium_adapter.world
        return kind(max_episode_steps=max_episode_steps, **host)
    if name not in _SPECS:
        options = sorted([*names(), *ADAPTERS])
        near = difflib.get_close_matches(name, options, n=1)
        hint = f"did you mean {near[0]}?" if near else "choose one of these."
        raise UserError(f"env: wanted one of {', '.join(options)}; got {name!r}: {hint}")
    found = _SPECS[name]
    if max_episode_steps is None:
        return found
    if max_episode_steps < 1:
        raise UserError(
            f"env: max_episode_steps must be at least 1; got {max_episode_steps}: leave it out for {name}'s"
        )
    return dataclasses.replace(found, max_episode_steps=max_episode_steps)


def make(spec: EnvSpec, num_envs: int, run_seed: int, device: torch.device) -> VectorEnv:
    """`num_envs` environments of one kind on one device; their training episodes follow from `run_seed`."""
    if spec.resumable:
        return NativeVectorEnv(spec, num_envs, run_seed, device)
    from envs.gymnasium_adapter import GymnasiumSpec, WorldSpec
    from envs.host import HostVectorEnv, Worlds

    assert isinstance(spec, GymnasiumSpec)
    if isinstance(spec, WorldSpec):
        return Worlds(spec, num_envs, run_seed, device)
    return HostVectorEnv(spec, num_envs, run_seed, device)
