"""`replay`: one episode again, alone in its environment, step by step; not a stage of the pipeline.

An episode follows from its seed and the policy. A checkpoint's evaluation episodes come out as episodes.csv has them,
bit by bit; a training episode begins as the training saw it, and is played by the policy that the training ended with.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor

import envs
from envs.spec import EnvSpec
from envs.vector import StepOutput, empty_output
from kernels import compiler
from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError
from pipeline import checkpoint, evaluation, files, seeds
from pipeline import config as configuration
from pipeline.config import Config
from pipeline.policy import Policy, empty_action, mode, sample, several

_PICTURES = 1000  # at most, of an episode
_PICTURE_MS = 30


class Step(NamedTuple):
    """One step of one world of N agents, 1 where an environment has but one."""

    observation: Tensor  # (N, D), what the policy saw
    action: Tensor  # (N,) or (N, A), not clipped
    out: StepOutput  # what followed
    state: Tensor | None  # (N * S,), of a native environment's world before the step


def run(config: Config) -> None:
    """Plays the episode and writes `<out>/episode.csv`, with `replay.render` a picture of each step, `episode.gif`.

    Raises:
        UserError: the checkpoint is damaged or of another environment, or has no such episode; `out` holds a replay
            already.
    """
    out = Path(config.out)
    files.refuse_existing(out, "episode.csv")
    assert config.checkpoint is not None  # config.main requires it
    torch.set_num_threads(1)
    compiler.set_threads(config.device.threads)
    device = torch.device(config.device.resolve())
    loaded = checkpoint.load(Path(config.checkpoint))
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    checkpoint.expect_environment(loaded.manifest, spec, config.evaluate.transfer)
    if spec.fillers:
        raise UserError(
            f"wanted an environment whose agents end together; {config.env.title} has {spec.agents} that do "
            "not. Play its episodes by pipeline.evaluate"
        )
    expect_seeded(config, spec)
    run_seed = int(loaded.manifest["config"]["seed"])
    policy, flat = evaluation.initial_policy(loaded.manifest, spec, device)
    flat.parameters.copy_(loaded.tensors["parameters"])
    policy = evaluation.frozen(policy, loaded.tensors, device)

    listed, row = episode_list(config, run_seed, loaded.tensors, spec.agents)
    steps = list(play(policy, spec, listed.to(device), row, config.evaluate.deterministic))
    if config.replay.render:
        files.write(out / "episode.gif", episode_gif(spec, steps))
    files.write(out / "episode.csv", episode_csv(spec, steps))
    last = steps[-1].out
    end = "terminated" if last.terminated[0] else "truncated"
    text = f"replay: {spec.name}, {config.replay.split} episode {config.replay.episode}"
    returns = last.episode_return.double().mean().float()  # as the evaluation has it
    text += f": return {returns.item()!r}, length {last.episode_length[0].item()}, {end}"
    Console().print(text, highlight=False, soft_wrap=True)


def expect_seeded(config: Config, spec: EnvSpec) -> None:
    """Raises UserError where the wanted episode is one that began from no seed."""
    wanted = config.replay
    if wanted.split == "train" and wanted.episode and not spec.seeded_at_reset:
        raise UserError(
            f"replay.episode: wanted 0 of a training on {config.env.title}, whose later episodes go on from where the "
            f"first left its generator; got {wanted.episode}"
        )


def episode_list(config: Config, run_seed: int, tensors: Mapping[str, Tensor], agents: int = 1) -> tuple[Tensor, int]:
    """The seeds of the list that the episode stands in, (E,) int64, and its place there.

    Args:
        run_seed: the training's.
        tensors: the checkpoint's; `env.episode_index` (N,) says which episodes there were.
        agents: rows of a world, which play the same episode.

    Raises:
        UserError: the list has no such episode.
    """
    wanted = config.replay
    if wanted.split != "train":
        count = config.evaluate.episodes
        if wanted.episode >= count:
            raise UserError(
                f"replay.episode: wanted one of the evaluation's, below evaluate.episodes={count}; got "
                f"{wanted.episode}. Give the evaluate.episodes that it was evaluated with"
            )
        return seeds.evaluation_seeds(wanted.split, count), wanted.episode
    index = tensors["env.episode_index"]
    assert wanted.environment is not None  # ReplayConfig requires it
    if wanted.environment >= len(index):
        raise UserError(f"replay.environment: wanted one of {len(index)} environments; got {wanted.environment}")
    if wanted.episode > (last := int(index[wanted.environment])):
        raise UserError(
            f"replay.episode: wanted one that environment {wanted.environment} began in the training, 0 to {last}; got "
            f"{wanted.episode}"
        )
    environment = torch.tensor([wanted.environment // agents], dtype=torch.int32)
    return episode_seeds(run_seed, environment, torch.tensor([wanted.episode])), 0


@torch.no_grad()
def play(policy: Policy, spec: EnvSpec, listed: Tensor, row: int, deterministic: bool) -> Iterator[Step]:
    """Steps of episode `row` of a list, alone in its environment; of a world's agents all, by the same policy.

    The policy sees it in that place of a batch as long as the list, as `evaluation.play` does: a row's bits depend on
    its place and the batch's size, and on nothing in the other rows.

    Args:
        listed: (E,) int64 seeds, on the device to play on.
        deterministic: the most likely action, else the sample that the evaluation draws.
    """
    agents, device = spec.agents, listed.device
    count, place = len(listed) * agents, slice(row * agents, (row + 1) * agents)
    env, batch = envs.make(spec, agents, 0, device), torch.zeros(count, spec.observation_size, device=device)
    sizes = several(spec)
    actions, unused = empty_action(spec, (count,), device), torch.empty(2, count, device=device)
    observation = torch.empty(agents, spec.observation_size, device=device)
    env.reset(observation, listed[row].repeat(agents))
    sampling_key = int(listed[0]) & (1 << 64) - 1
    for step in range(spec.max_episode_steps):
        batch[place] = observation
        parameters = policy.distribution(batch)
        if deterministic:
            mode(parameters, actions, sizes)
        else:
            sample(parameters, actions, unused[0], unused[1], step, sampling_key, sizes)
        action, out = actions[place].clone(), empty_output(spec, agents, device)
        state = env.state()["state"].T.flatten().clone() if "state" in env.state() else None
        env.step(action, out)
        yield Step(observation, action, out, state)
        if out.terminated[0] or out.truncated[0]:
            return
        observation = out.observation


def episode_csv(spec: EnvSpec, steps: list[Step]) -> str:
    """One row a step: its number from 1, what was seen, done and earned; the last row, what the last step led to.

    Of a world of several agents one row a step and agent.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    many = math.prod(spec.action_shape)
    names = ["action"] if many == 1 else [f"action_{k}" for k in range(many)]
    several = spec.agents > 1
    agent = ["agent"] if several else []
    writer.writerow(["step", *agent, *(f"observation_{k}" for k in range(spec.observation_size)), *names, "reward"])
    last = Step(steps[-1].out.final_observation, torch.empty(spec.agents, 0), steps[-1].out, None)
    for number, (observation, action, out, _) in enumerate([*steps, last], start=1):
        for k in range(spec.agents):
            done = [*_texts(action[k]), *_texts(out.reward[k])] if number <= len(steps) else [""] * (many + 1)
            writer.writerow([number, *([k] if several else []), *_texts(observation[k]), *done])
    return text.getvalue()


def episode_gif(spec: EnvSpec, steps: list[Step]) -> bytes:
    """A moving picture of what each step started from; of a long episode every k-th step.

    Raises:
        UserError: nobody draws this environment.
    """
    shown = steps[:: -(-len(steps) // _PICTURES)]
    states = [np.zeros(0, np.float32) if step.state is None else step.state.cpu().numpy() for step in shown]
    pictures = [Image.fromarray(envs.render(spec, state)) for state in states]
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=_PICTURE_MS, loop=0)
    return file.getvalue()


def _texts(values: Tensor) -> list[Any]:
    return [repr(value) for value in values.flatten().tolist()]


if __name__ == "__main__":
    configuration.main("replay", run)
