"""How soon is CartPole solved? Steps and seconds of training until the last 100 episodes average 475, over ten seeds.

    python -m benchmarks.solve                       # conf/env's values
    python -m benchmarks.solve ppo.num_envs=64 seed=1,2,3

Every key of `python -m pipeline.train` may follow. The time is the training's own wall: imports and compiling, which a
cached build does once, are not part of it.
"""

import dataclasses
import statistics
import sys
from collections import deque
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

import envs
from kernels import compiler
from kernels.errors import UserError
from pipeline import config as configuration
from pipeline.assembly import assemble
from pipeline.profile import clock_of

SOLVED, EPISODES = 475.0, 100


def solve(config: configuration.Config) -> tuple[int, float, bool]:
    """Steps and seconds until it is solved, or those of the whole training; and whether it was."""
    device = torch.device("cpu")
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    clock = clock_of(device)
    ppo = assemble(config, spec, device, clock).ppo
    last: deque[float] = deque(maxlen=EPISODES)
    while not ppo.finished:
        metrics = ppo.iterate()
        if metrics["episodes"]:
            ended = (ppo.rollout.terminated | ppo.rollout.truncated).bool()
            last.extend(ppo.rollout.episode_returns[ended].tolist())
        if len(last) == EPISODES and statistics.fmean(last) >= SOLVED:
            return ppo.steps, clock.wall, True
    return ppo.steps, clock.wall, False


def main(arguments: Sequence[str]) -> None:
    seeds = next((each.removeprefix("seed=") for each in arguments if each.startswith("seed=")), "1,2,3,4,5,6,7,8,9,10")
    rest = [each for each in arguments if not each.startswith("seed=")]
    if not all(seed.isdecimal() for seed in seeds.split(",")):
        print(f"solve: seed: wanted whole numbers, such as 1,2,3; got {seeds!r}", file=sys.stderr)
        raise SystemExit(2)
    try:
        config = configuration.load(["env=cartpole", "device=cpu", "tracking.enabled=false", *rest])
    except UserError as error:
        print(f"solve: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    torch.set_num_threads(1)
    compiler.set_threads(config.device.threads)
    solve(dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, total_steps=config.ppo.batch_size)))  # builds
    table = Table(
        "seed", "steps", "seconds", "", title=f"{config.env.name}: {SOLVED:g} over the last {EPISODES} episodes"
    )
    found = [solve(dataclasses.replace(config, seed=int(seed))) for seed in seeds.split(",")]
    for seed, (steps, seconds, solved) in zip(seeds.split(","), found, strict=True):
        table.add_row(seed, f"{steps:,}", f"{seconds:.3f}", "solved" if solved else "not solved")
    medians = [statistics.median(each) for each in zip(*found, strict=True)]
    table.add_row(
        "median", f"{medians[0]:,.0f}", f"{medians[1]:.3f}", f"{sum(f[2] for f in found)} of {len(found)} solved"
    )
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
