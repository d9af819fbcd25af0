"""How fast a device trains: a graph an iteration against the same launches one by one, beside the device's limits.

    python -m benchmarks.gpu --out FOLDER [--seconds 150]

Each row trains an environment with so many environments and two hidden layers. Its share of the memory's speed counts
the bytes that PPO must move (`least_bytes`), its share of the arithmetic the multiply-adds that it must do
(pipeline/speed.py); both limits are measured in the same run, just before. What the time does not suffice for is left
out and said so. One table, and gpu.json with every number. It runs on a CPU too, where a graph is what it stands for.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from rich.console import Console
from rich.table import Table

import envs
from pipeline import config as configuration
from pipeline.assembly import Training, assemble
from pipeline.config import PPOConfig
from pipeline.profile import PHASES, clock_of
from pipeline.speed import fma_gflops, multiply_adds


@dataclass(frozen=True)
class Setting:
    """An environment, N of it, and the width of two hidden layers."""

    env: str
    num_envs: int
    width: int


SETTINGS = [
    Setting("breakout", 8192, 128), Setting("cartpole", 8192, 64), Setting("breakout", 65536, 128),
    Setting("cartpole", 65536, 64), Setting("breakout", 4096, 32), Setting("cartpole", 4096, 32),
    Setting("breakout", 16384, 512), Setting("cartpole", 16384, 256),
]  # fmt: skip
STEPS = 64  # of a rollout
LEAST_ITERATIONS = 3


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def memory_gbytes(device: torch.device, megabytes: int = 1024) -> float:
    """Bytes a second that a large copy reads and writes, in GB/s: the best of some."""
    source = torch.ones(megabytes << 18, device=device)
    target, best = torch.empty_like(source), 0.0
    for _ in range(10):
        finish(device)
        begun = time.perf_counter()
        target.copy_(source)
        finish(device)
        best = max(best, 2 * source.nbytes / (time.perf_counter() - begun) / 1e9)
    return best


def least_bytes(training: Training, config: PPOConfig) -> int:
    """What an iteration must move through memory at least.

    The rollout is written once. The advantages read it but for the actions, and each epoch reads its observations,
    actions, log-probabilities, advantages and returns. Each minibatch reads and writes parameters and moments.
    """
    rollout = training.ppo.rollout
    written = sum(each.nbytes for each in vars(rollout).values() if isinstance(each, torch.Tensor))
    written -= rollout.seen.nbytes  # a view of the observations
    epoch = rollout.seen.nbytes + sum(each.nbytes for each in rollout.recorded)
    steps = config.update_epochs * config.num_minibatches
    return 2 * written + config.update_epochs * epoch + 6 * steps * training.flat.parameters.nbytes


def begin(setting: Setting, device: torch.device, *more: str) -> Training:
    """A training of the setting; each with the same seed."""
    config = configuration.load(
        [
            f"env={setting.env}", f"device={device.type}", "tracking.enabled=false", f"ppo.num_envs={setting.num_envs}",
            f"ppo.num_steps={STEPS}", f"policy.hidden=[{setting.width},{setting.width}]",
            f"ppo.total_steps={10**6 * setting.num_envs * STEPS}", *more,
        ]
    )  # fmt: skip
    return assemble(config, envs.spec(config.env.name, config.env.max_episode_steps), device, clock_of(device))


def rate(training: Training, device: torch.device, seconds: float) -> tuple[float, dict[str, float]]:
    """Seconds of an iteration, and of its phases, over some seconds of iterations."""
    ppo = training.ppo
    ppo.iterate()
    finish(device)
    before, begun, count = ppo.clock.seconds(), time.perf_counter(), 0
    while count < LEAST_ITERATIONS or time.perf_counter() - begun < seconds:
        ppo.iterate(ahead=device.type != "cpu")
        count += 1
    done = ppo._begun - ppo.iteration + count  # with the one that is ahead
    finish(device)
    wall, after = time.perf_counter() - begun, ppo.clock.seconds()
    return wall / done, {name: (after[name] - before[name]) / done for name in PHASES}


def measure(setting: Setting, device: torch.device, seconds: float, *more: str) -> dict[str, Any]:
    """The row of a setting."""
    begun = time.perf_counter()
    training = begin(setting, device, *more)
    config = training.ppo.config
    prepared = time.perf_counter() - begun
    memory, peak = memory_gbytes(device, 1024 if device.type == "cuda" else 1), fma_gflops(device, 1, 0.05)
    graph, phases = rate(training, device, seconds)
    training.ppo._work = training.ppo.work  # the same launches, each by the host
    eager, _ = rate(training, device, seconds)
    work = multiply_adds(training.policy, config).whole
    return {
        **asdict(setting),
        "path": training.path,
        "steps_per_second": config.batch_size / graph,
        "eager_steps_per_second": config.batch_size / eager,
        "iteration_ms": 1e3 * graph,
        "phases_ms": {name: 1e3 * spent for name, spent in phases.items()},
        "memory_gbytes": memory,
        "memory_share": least_bytes(training, config) / graph / 1e9 / memory,
        "fma_peak_gflops": peak,
        "fma_share": 2e-9 * work / graph / peak,
        "prepare_seconds": prepared,
    }


def measure_all(
    settings: Sequence[Setting], device: torch.device, seconds: float, row: Callable[..., dict[str, Any]] = measure
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows, and in words what was left out: for want of time, or since it failed."""
    begun, rows, left_out = time.perf_counter(), [], []
    for setting in settings:
        name = f"{setting.env}, {setting.num_envs:,} environments, hidden {setting.width}"
        if time.perf_counter() - begun > seconds:
            left_out.append(f"{name}: no time left")
            continue
        try:
            rows.append(row(setting, device, min(2.0, seconds / len(settings) / 4)))
        except Exception as error:  # a row that fails must not cost the others
            left_out.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return rows, left_out


def table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("env", "N", "hidden", "path", "M steps/s", "eager", "graph gains", "of memory", "of FMA")
    shown = Table(*columns, title="Training, one graph an iteration")
    for row in rows:
        fast, slow = row["steps_per_second"], row["eager_steps_per_second"]
        shown.add_row(
            row["env"], f"{row['num_envs']:,}", str(row["width"]), row["path"].split()[0], f"{fast / 1e6:.2f}",
            f"{slow / 1e6:.2f}", f"{fast / slow:.2f} x", f"{row['memory_share']:.1%}", f"{row['fma_share']:.1%}",
        )  # fmt: skip
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpu", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=150.0)
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    options.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    content: dict[str, Any] = {"device": name, "torch": torch.__version__, "rows": [], "left_out": []}

    def keep() -> None:
        (options.out / "gpu.json").write_text(json.dumps(content, indent=1) + "\n")

    def row(*given: Any) -> dict[str, Any]:
        content["rows"].append(measure(*given))
        keep()  # at once: whoever runs out of time has what was measured
        return cast(dict[str, Any], content["rows"][-1])

    rows, left_out = measure_all(SETTINGS, device, options.seconds, row)
    content["left_out"] = left_out
    keep()
    for line in left_out:
        print(f"left out: {line}")
    Console(width=120).print(table(rows))


if __name__ == "__main__":
    main()
