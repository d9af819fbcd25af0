"""Environments by name."""

import dataclasses
import difflib

import torch

from envs import acrobot, breakout, cartpole, mountain_car, mountain_car_continuous, pendulum
from envs.spec import Box, Discrete, EnvSpec, MultiDiscrete
from envs.vector import NativeVectorEnv, StepOutput, VectorEnv, empty_output
from kernels.errors import UserError

__all__ = [
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


def names() -> list[str]:
    """The environments that `spec` knows."""
    return sorted(_SPECS)


def spec(name: str, max_episode_steps: int | None = None) -> EnvSpec:
    """The environment called `name`, with its own time limit or the one given (steps, at least 1).

    Raises UserError for an unknown name or a limit below 1.
    """
    if name not in _SPECS:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]}?" if near else "choose one of these."
        raise UserError(f"env: wanted one of {', '.join(names())}; got {name!r}: {hint}")
    found = _SPECS[name]
    if max_episode_steps is None:
        return found
    if max_episode_steps < 1:
        raise UserError(
            f"env: max_episode_steps must be at least 1; got {max_episode_steps}: leave it out for {name}'s"
        )
    return dataclasses.replace(found, max_episode_steps=max_episode_steps)


def make(spec: EnvSpec, num_envs: int, run_seed: int, device: torch.device) -> NativeVectorEnv:
    """`num_envs` environments of one kind on one device; their training episodes follow from `run_seed`."""
    return NativeVectorEnv(spec, num_envs, run_seed, device)
