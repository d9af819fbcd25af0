"""Does it learn? Trains each environment with its own values of conf/env over several seeds, and prints the table.

    python -m benchmarks.learning out=runs/learning                          # five seeds, held-out episodes
    python -m benchmarks.learning out=runs/learning split=selection env=acrobot,pendulum seed=1,2
    python -m benchmarks.learning out=runs/learning fused=false              # by torch's autograd

Everything goes through the product's `train` and `evaluate`. A training that lies in `out` already is not done again:
values are chosen on the selection split, and then the same policies are played on the held-out one.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline import checkpoint, evaluate, train
from pipeline import config as configuration

# The mean return over 100 episodes that every training seed should reach within a million steps.
BARS = {"acrobot": -100.0, "cartpole": 475.0, "mountain_car_continuous": 90.0, "pendulum": -200.0}
OPTIONS = {"out": "runs/learning", "split": "held_out", "env": ",".join(BARS), "seed": "1,2,3,4,5"}
OPTIONS |= {"device": "cpu", "fused": "true"}


def result(name: str, seed: int, split: str, out: Path, *device: str) -> dict[str, float]:
    """The metrics of one training's policy on a split; trains and plays what `out` lacks."""
    overrides = [f"env={name}", f"seed={seed}", *device, "tracking.enabled=false", f"evaluate.split={split}"]
    config = configuration.load(overrides)
    folder = out / ("fused" if config.device.fused else "general") / name / f"seed-{seed}"
    if not (folder / checkpoint.MANIFEST).exists():
        train.run(dataclasses.replace(config, out=str(folder)))
    if not (folder / split / "metrics.json").exists():
        evaluate.run(dataclasses.replace(config, checkpoint=str(folder), out=str(folder / split)))
    metrics: dict[str, float] = json.loads((folder / split / "metrics.json").read_text())
    return metrics


def main(arguments: Sequence[str]) -> None:
    given = dict(each.split("=", 1) for each in arguments if "=" in each)
    if unknown := [each for each in arguments if each.split("=", 1)[0] not in OPTIONS or "=" not in each]:
        sys.exit(f"learning: wanted {', '.join(f'{key}=<value>' for key in OPTIONS)}; got {unknown[0]!r}")
    options = {**OPTIONS, **given}
    if unknown := [name for name in options["env"].split(",") if name not in BARS]:
        sys.exit(f"learning: env: wanted some of {', '.join(BARS)}; got {unknown[0]!r}")
    if not all(seed.isdecimal() for seed in options["seed"].split(",")):
        sys.exit(f"learning: seed: wanted whole numbers, such as 1,2,3; got {options['seed']!r}")
    table = Table("environment", "seed", "steps", "mean return", "bar", "", title=f"split {options['split']}")
    for name in options["env"].split(","):
        for seed in map(int, options["seed"].split(",")):
            device = (f"device={options['device']}", f"device.fused={options['fused']}")
            metrics = result(name, seed, options["split"], Path(options["out"]), *device)
            reached = "reached" if metrics["return_mean"] >= BARS[name] else "missed"
            cells = (f"{metrics['step']:,}", f"{metrics['return_mean']:.2f}", f"{BARS[name]:g}", reached)
            table.add_row(name, str(seed), *cells)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
