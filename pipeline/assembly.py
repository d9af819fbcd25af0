"""From a configuration to a training in progress: which optimizer steps it, which path runs its network."""

from dataclasses import dataclass

import torch

import envs
from envs.normalize import Clipped, Normalized
from envs.spec import EnvSpec
from envs.staged import Staged
from envs.vector import NativeVectorEnv, VectorEnv
from pipeline.capture import CapturedFused, CapturedGeneral, LaunchedHosted
from pipeline.config import Config, PPOConfig
from pipeline.fused import Fused
from pipeline.general import General
from pipeline.hosted import Hosted
from pipeline.mlp import misfit, shapes
from pipeline.optimizer import Adam, Muon
from pipeline.policy import ActorCritic, FlatParameters, build
from pipeline.ppo import PPO, Path
from pipeline.precision import at
from pipeline.profile import Clock

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Training:
    """A training before its first iteration.

    Attributes:
        path: what runs the network, in words, with the reason where it is not the fast path.
        played: the environments as they are, before rewards are clipped or anything is normalized.
    """

    ppo: PPO
    policy: ActorCritic
    flat: FlatParameters
    path: str
    played: VectorEnv


def assemble(config: Config, spec: EnvSpec, device: torch.device, clock: Clock) -> Training:
    """Builds a training: the same bits for the same configuration."""
    policy, flat = build(spec, config.policy, config.seed, device)
    where = device if spec.resumable else CPU  # the host steps what it cannot resume
    made = envs.make(spec, config.ppo.num_envs, config.seed, where)
    env = _seen(config, _staged(made, device, clock))
    path, why = _path(config, policy, flat, env)
    ppo = PPO(config.ppo, env, path, _optimizer(config.ppo, policy, flat), config.seed, clock)
    return Training(ppo, policy, flat, f"{path.name} path{why}{_stepped(made)}", made)


def _staged(env: VectorEnv, device: torch.device, clock: Clock) -> VectorEnv:
    """The environments as the device has them."""
    return env if env.device.type == device.type else Staged(env, device, clock.phase)


def _seen(config: Config, env: VectorEnv) -> VectorEnv:
    """The environments as the training sees them: rewards clipped, then what is to be normalized."""
    if config.env.reward_limit is not None:
        env = Clipped(env, config.env.reward_limit)
    return Normalized(env, config.env.normalized, config.ppo.gamma) if config.env.normalized else env


def _stepped(env: VectorEnv) -> str:
    """In words how the host steps the environments, where it does."""
    if (workers := getattr(env, "workers", None)) is None:
        return ""
    return f", environments in {workers} processes" if workers else ", environments in a loop"


def _optimizer(config: PPOConfig, policy: ActorCritic, flat: FlatParameters) -> Adam:
    steps = config.update_epochs * config.num_minibatches
    if config.optimizer == "muon":
        return Muon(flat, policy.hidden_matrices(), config.max_grad_norm, steps)
    return Adam(flat, config.max_grad_norm, steps)


def _slow(config: Config, device: torch.device) -> str | None:
    """Why the fast path is not taken; None where it is."""
    if not config.device.fused:
        return "device.fused=false"
    if config.device.matmul != "float32":
        return f"device.matmul={config.device.matmul}"
    return misfit(config.policy, device)


def _path(config: Config, policy: ActorCritic, flat: FlatParameters, env: VectorEnv) -> tuple[Path, str]:
    """What runs the network, and in words why it is not the fast path."""
    why = _slow(config, env.device)
    native, captured = isinstance(env, NativeVectorEnv), env.device.type == "cuda"
    if why:
        general = CapturedGeneral if native and captured else General
        network = at(policy, config.device.matmul, env.device)
        return general(network, flat, env, config.ppo, config.seed), f" ({why})"
    mlp = shapes(policy, flat, env.spec, config.policy)
    if isinstance(env, NativeVectorEnv):
        return (CapturedFused if captured else Fused)(mlp, flat, env, config.ppo, config.seed), ""
    return (LaunchedHosted if captured else Hosted)(mlp, flat, env, config.ppo, config.seed), ""
