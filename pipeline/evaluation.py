"""Playing a fixed list of episodes to their ends, and what is told of them.

One environment an episode, each to its end: never the first N episodes that finish, which favours short ones. Where
several agents share a world, an episode is a whole world, all its agents by the policy, and its return their mean.
"""

import csv
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import envs
from envs.normalize import Statistics, observation_statistics
from envs.parameters import drawn as parameters_of
from envs.spec import EnvSpec
from envs.vector import empty_output
from kernels.errors import UserError
from pipeline import seeds
from pipeline.checkpoint import parameters_sha256
from pipeline.config import EvaluateConfig, PolicyConfig
from pipeline.mlp import FUSED, HOSTED, FusedPolicy, shapes
from pipeline.policy import FlatParameters, Policy, build, empty_action, mode, sample, several


@dataclass(frozen=True)
class Episodes:
    """E episodes, in the order of their seeds; of a world of agents: the mean of their returns, the longest stay, and
    whether all of them died.
    """

    returns: Tensor  # (E,) float32, of the environment's own rewards, the mean over a world's agents
    lengths: Tensor  # (E,) int32
    terminated: Tensor  # (E,) bool; the others ended by the time limit
    parameters: Mapping[str, Tensor]  # (E,) float32 each: what the episode drew


@torch.no_grad()
def play(policy: Policy, spec: EnvSpec, episode_seeds: Tensor, deterministic: bool, device: torch.device) -> Episodes:
    """Plays each of the episodes once, to its end.

    Args:
        episode_seeds: (E,) int64.
        deterministic: the most likely action, else a sampled one. Sampling draws with keys of its own.
    """
    count = len(episode_seeds) * spec.agents
    env = envs.make(spec, count, 0, device)
    out = empty_output(spec, count, device)
    action, sizes = empty_action(spec, (count,), device), several(spec)
    unused = torch.empty(2, count, device=device)
    env.reset(out.observation, episode_seeds.to(device).repeat_interleave(spec.agents))
    drawn = {name: values.cpu() for name, values in parameters_of(env).items()}
    running = torch.ones(count, dtype=torch.bool, device=device)
    returns, terminated = torch.empty(count, device=device), torch.zeros_like(running)
    lengths = torch.empty(count, dtype=torch.int32, device=device)
    sampling_key = int(episode_seeds[0]) & (1 << 64) - 1
    for step in range(spec.max_episode_steps):
        parameters = policy.distribution(out.observation)
        if deterministic:
            mode(parameters, action, sizes)
        else:
            sample(parameters, action, unused[0], unused[1], step, sampling_key, sizes)
        env.step(action, out)
        ended = running & (out.terminated | out.truncated).bool()
        returns[ended], lengths[ended] = out.episode_return[ended], out.episode_length[ended]
        terminated[ended] = out.terminated[ended].bool()
        running &= ~ended
        if not running.any():
            break
    assert not running.any(), "an episode outlived its time limit"
    if not returns.isfinite().all():
        wrong = int((~returns.isfinite()).nonzero()[0])
        raise UserError(
            f"evaluate: the return of episode {wrong // spec.agents} must be finite; got {returns[wrong].item()}"
        )
    # A sum of few float32 in float64 is exact: in whatever order, and of one agent its own return.
    worlds = (-1, spec.agents)
    together = returns.double().view(worlds).mean(1).float()
    return Episodes(together.cpu(), lengths.view(worlds).amax(1).cpu(), terminated.view(worlds).amin(1).cpu(), drawn)


def initial_policy(manifest: Mapping[str, Any], spec: EnvSpec, device: torch.device) -> tuple[Policy, FlatParameters]:
    """The policy that a training began with, in its flat buffer, answering by the path that trained it."""
    config = PolicyConfig(**manifest["config"]["policy"])
    policy, flat = build(spec, config, int(manifest["config"]["seed"]), device)
    if manifest["path"] in (FUSED, HOSTED):
        return FusedPolicy(shapes(policy, flat, spec, config), flat), flat
    return policy, flat


class Frozen:
    """A policy that sees observations as its training did at its end: by statistics that change no more."""

    def __init__(self, policy: Policy, statistics: Statistics) -> None:
        self._policy, self._statistics = policy, statistics

    def distribution(self, observation: Tensor) -> Tensor:
        return self._policy.distribution(self._statistics.normalize(observation))

    def value(self, observation: Tensor) -> Tensor:
        return self._policy.value(self._statistics.normalize(observation))


def frozen(policy: Policy, tensors: Mapping[str, Tensor], device: torch.device) -> Policy:
    """The policy behind the statistics of observations in a checkpoint's tensors; as it is where there are none."""
    own = {name.removeprefix("env."): tensor for name, tensor in tensors.items() if name.startswith("env.")}
    statistics = observation_statistics(own, device)
    return Frozen(policy, statistics) if statistics else policy


def compare(
    manifest: Mapping[str, Any],
    parameters: Tensor,
    spec: EnvSpec,
    config: EvaluateConfig,
    device: torch.device,
    report: Callable[[str], None] = lambda line: None,
    tensors: Mapping[str, Tensor] = {},
) -> dict[str, Episodes]:
    """Plays a training's initial policy and its final one on the same episodes: `initial` and `final`.

    Args:
        manifest: of the checkpoint; the initial policy is made again from its run seed and must have its hash.
        parameters: (n,) float32, the final policy's flat buffer.
        tensors: the checkpoint's; the final policy sees by its statistics of observations, if it has any.

    Raises:
        UserError: the initial policy or the parameters are not what the manifest says.
    """
    policy, flat = initial_policy(manifest, spec, device)
    found = parameters_sha256(flat.parameters)
    if found != manifest["initial_params_sha256"]:
        raise UserError(
            f"evaluate: expected the initial policy to have SHA-256 {manifest['initial_params_sha256']}; made {found} "
            "from the run seed. The initialization changed since the training; train again"
        )
    if parameters.shape != flat.parameters.shape:
        raise UserError(f"evaluate: wanted {len(flat.parameters)} parameters; the checkpoint has {len(parameters)}")
    episode_seeds = seeds.evaluation_seeds(config.split, config.episodes)
    played = {}
    for name in ("initial", "final"):
        if name == "final":
            flat.parameters.copy_(parameters)
            policy = frozen(policy, tensors, device)
        played[name] = play(policy, spec, episode_seeds, config.deterministic, device)
        report(f"{name} policy: mean return {mean(played[name].returns):.6g} over {config.episodes} episodes")
    return played


def mean(values: Tensor) -> float:
    """The mean in float64, correctly rounded sum: the same on every machine."""
    return math.fsum(values.double().tolist()) / len(values)


def metrics(played: Mapping[str, Episodes], manifest: Mapping[str, Any], config: EvaluateConfig) -> dict[str, Any]:
    """What metrics.json holds: the final policy's episodes, and how they differ pair by pair from the initial one's."""
    initial, final = played["initial"].returns, played["final"].returns
    gain = final.double() - initial.double()
    average = mean(final)
    drawn = played["final"].parameters
    return {
        "env": manifest["env_spec"]["name"],
        "run_seed": manifest["config"]["seed"],
        "split": config.split,
        "episodes": config.episodes,
        "deterministic": config.deterministic,
        "checkpoint_sha256": manifest["sha256"],
        "step": manifest["step"],
        "return_mean": average,
        "return_std": math.sqrt(math.fsum((value - average) ** 2 for value in final.tolist()) / len(final)),
        "return_median": float(np.median(final.double().numpy())),
        "length_mean": mean(played["final"].lengths),
        "initial_return_mean": mean(initial),
        "improvement_mean": mean(gain),
        "improved_fraction": mean((gain > 0).double()),
        **({"parameters": {name: terciles(values, final) for name, values in drawn.items()}} if drawn else {}),
    }


def terciles(values: Tensor, returns: Tensor) -> dict[str, dict[str, float]]:
    """The mean return of the episodes with the lowest, middle and highest third of a parameter's values, (E,) each."""
    thirds = zip(("low", "middle", "high"), values.argsort(stable=True).tensor_split(3), strict=True)
    return {
        name: {
            "from": values[third].min().item(),
            "to": values[third].max().item(),
            "episodes": len(third),
            "return_mean": mean(returns[third]),
        }
        for name, third in thirds
        if len(third)
    }


def episodes_csv(played: Mapping[str, Episodes]) -> str:
    """The content of episodes.csv: one row a policy and episode; `seed` is the index within the split.

    Parameters that the episodes drew stand in columns of their names.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(played["final"].parameters)
    writer.writerow(["policy", "seed", "return", "length", "end", *names])
    for name, episodes in played.items():
        rows = zip(episodes.returns.tolist(), episodes.lengths.tolist(), episodes.terminated.tolist(), strict=True)
        for index, (total, length, terminated) in enumerate(rows):
            drawn = [repr(episodes.parameters[each][index].item()) for each in names]
            writer.writerow([name, index, repr(total), length, "terminated" if terminated else "truncated", *drawn])
    return text.getvalue()
