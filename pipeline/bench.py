"""How fast does it train here, what limits it, and how does it scale? Through the objects that the stage trains with.

    python -m pipeline.bench                                              # the default training; about three minutes
    python -m pipeline.bench env=breakout policy.hidden=[128,128] ppo.num_envs=256 --sections shapes
    python -m pipeline.bench --quick --json bench.json

docs/performance.md tells what is measured, how to read it, and results.
"""

import argparse
import dataclasses
import functools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernels import compiler
from kernels.errors import UserError
from pipeline import bench_figure, files, provenance, speed, tracking
from pipeline import config as configuration
from pipeline.config import Config
from pipeline.log import Log
from pipeline.profile import clock_of
from pipeline.speed import Measured, spread

OUT = "build/bench"
ENDLESS = "ppo.total_steps=1000000000000"  # what is measured in rounds does not end by itself
# What PPO implementations are compared on: CartPole, two hidden layers of 64, 4 epochs of 4 minibatches.
SHAPE = ("env=cartpole", "policy.hidden=[64,64]", "ppo.num_minibatches=4", "ppo.update_epochs=4", ENDLESS)
SHAPES = (("ppo.num_envs=256", "ppo.num_steps=64"), ("ppo.num_envs=8", "ppo.num_steps=128"))
SAMPLES = 1 << 19  # of an iteration where environments are many: the rollout is cut short
LONGEST = 5.0  # seconds of an iteration: what takes longer, and what is larger, is left out of a section
TIMES = (1, 2, 4, 10)

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much is measured: rounds of everything, in turn, and the seconds of one round of a training.

    Attributes:
        peak_seconds: of the yardstick before each training.
        logged_seconds: of a training with MLflow, which first has to start.
    """

    rounds: int
    seconds: float
    section_seconds: float
    peak_seconds: float
    times_seconds: float
    logged_rounds: int
    logged_seconds: float
    environments: tuple[int, ...]
    hidden: tuple[int, ...]


FULL = Effort(5, 1.0, 0.4, 0.05, 0.25, 2, 8.0, (8, 32, 128, 512, 2048, 8192, 16384), (32, 64, 128, 256))
QUICK = Effort(2, 0.1, 0.05, 0.01, 0.02, 1, 0.2, (8, 64), (32, 64))


@dataclass(frozen=True)
class Options:
    json: Path | None
    quick: bool
    sections: tuple[str, ...]


# ---------------------------------------------------------------------------------------------------------------------
# What is measured
# ---------------------------------------------------------------------------------------------------------------------


class Bench:
    """The configured training and the sections around it, measured in this process."""

    def __init__(self, config: Config, effort: Effort, console: Console, progress: Progress) -> None:
        self.config, self.effort, self.console, self.progress = config, effort, console, progress
        self.steps_per_second = 0.0  # of the configured training, as soon as it is known
        self.base = 0  # resident bytes of the process without a training

    def training(self, shapes: bool) -> list[Row]:
        """The configured training, and behind it the shapes of `SHAPES`."""
        Measured(self.config)  # what is loaded and built once is no training's memory
        self.base = speed.resident_bytes()
        configs = [self.config]
        for shape in SHAPES if shapes else ():
            shaped = configuration.load((*SHAPE, *shape))
            configs.append(dataclasses.replace(shaped, device=self.config.device))
        rows = self._in_turn("training", configs, self.effort.seconds, math.inf)
        self.steps_per_second = rows[0]["steps_per_second"]
        return rows

    def threads(self) -> list[Row]:
        """1, 2, 4, ... threads, and one for each core."""
        cores = compiler.cores()
        counts = sorted({*(1 << n for n in range(cores.bit_length()) if 1 << n <= cores), cores})
        return self._section("threads", [self._with(device={"threads": count}) for count in counts])

    def environments(self) -> list[Row]:
        """From few environments to many; those whose samples do not divide into the minibatches are left out."""
        configs = []
        for count in self.effort.environments:
            steps = min(self.config.ppo.num_steps, max(1, SAMPLES // count))
            if count * steps % self.config.ppo.num_minibatches == 0:
                configs.append(self._with(ppo={"num_envs": count, "num_steps": steps}))
        return self._section("environments", configs)

    def hidden(self) -> list[Row]:
        """Hidden layers as many as configured, all of one width."""
        depth = len(self.config.policy.hidden)
        return self._section(
            "hidden", [self._with(policy={"hidden": (width,) * depth}) for width in self.effort.hidden]
        )

    def steps(self) -> list[Row]:
        """Whole trainings of 1, 2, 4 and 10 times as many steps: seconds, and the process's peak memory."""
        iterations = self._iterations(self.effort.times_seconds)
        seconds: dict[int, list[float]] = {times: [] for times in TIMES}
        peaks = dict.fromkeys(TIMES, 0)
        for _ in self._rounds("steps", self.effort.rounds):
            for times in TIMES:
                config = self._with(ppo={"total_steps": times * iterations * self.config.ppo.batch_size})
                speed.forget_peak()
                seconds[times].append(_train(config, tracking.NullRun())["wall"])
                peaks[times] = max(peaks[times], speed.peak_bytes())
        return [
            {
                "times": times,
                "steps": times * iterations * self.config.ppo.batch_size,
                **spread("seconds", seconds[times]),
                # Of the shortest training in the same round, by the steps: 1 where the cost is linear.
                **spread("relative", [own / one / times for own, one in zip(seconds[times], seconds[1], strict=True)]),
                "peak_memory_bytes": peaks[times],
            }
            for times in TIMES
        ]

    def logging(self) -> list[Row]:
        """Whole trainings without and with a row in MLflow, in turn."""
        total = self._iterations(self.effort.logged_seconds) * self.config.ppo.batch_size
        config = self._with(ppo={"total_steps": total})
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in self._rounds("logging", self.effort.logged_rounds):
            for tracked in found:
                found[tracked].append(_train_tracked(config, tracked))
        walls = {tracked: [seconds["wall"] for seconds in each] for tracked, each in found.items()}
        return [
            {
                "tracking": tracked,
                "steps": total,
                **spread("seconds", walls[tracked]),
                **spread("log_share", [each["logging"] / each["wall"] for each in found[tracked]]),
                **spread("finish_seconds", [each["finish"] for each in found[tracked]]),
                # What the tracking costs of the same round's training without it, in all.
                **spread("cost", [own / off - 1 for own, off in zip(walls[tracked], walls[False], strict=True)]),
            }
            for tracked in found
        ]

    def _rounds(self, title: str, count: int) -> Iterator[int]:
        task = self.progress.add_task(title, total=count)
        yield from self.progress.track(range(count), task_id=task)
        self.progress.remove_task(task)

    def _iterations(self, seconds: float) -> int:
        return max(1, math.ceil(seconds * self.steps_per_second / self.config.ppo.batch_size))

    def _with(self, **changes: Mapping[str, Any]) -> Config:
        """The configuration with keys of some sections changed."""
        sections = {name: dataclasses.replace(getattr(self.config, name), **keys) for name, keys in changes.items()}
        return dataclasses.replace(self.config, **sections)

    def _section(self, title: str, configs: Sequence[Config]) -> list[Row]:
        return self._in_turn(title, configs, self.effort.section_seconds, LONGEST)

    def _in_turn(self, title: str, configs: Sequence[Config], seconds: float, longest: float) -> list[Row]:
        """All configurations in each round, one after the other, so that a slow time of the machine meets them all."""
        task = self.progress.add_task(f"{title}: building", total=self.effort.rounds * len(configs))
        trainings: list[Measured] = []
        for number, config in enumerate(configs):
            trainings.append(Measured(config))
            if (took := trainings[-1].first_seconds) > longest and number + 1 < len(configs):
                self.console.print(f"{title}: an iteration takes {took:.0f} s here; larger ones are left out")
                break
        self.progress.update(task, description=title, total=self.effort.rounds * len(trainings))
        for _ in range(self.effort.rounds):
            for training in trainings:
                training.round(seconds, self.effort.peak_seconds)
                self.progress.advance(task)
        self.progress.remove_task(task)
        return [training.row(self.base) for training in trainings]


def _train(config: Config, row: tracking.Run) -> dict[str, float]:
    """Trains to the end, with the stage's log; the seconds by phase."""
    device = torch.device(config.device.resolve())
    compiler.set_threads(config.device.threads)
    clock = clock_of(device)
    training = speed.start(config, device, clock)
    log, progress, ppo = Log(), speed.unseen_progress(training), training.ppo
    while not ppo.finished:
        log.iteration(ppo, ppo.iterate(), row, progress)
    return clock.seconds()


def _train_tracked(config: Config, tracked: bool) -> dict[str, float]:
    """As `_train`, into an MLflow store of its own; `finish`: the seconds until the store had all of it."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db"
        own = dataclasses.replace(config.tracking, enabled=tracked, uri=uri)
        with tracking.start(dataclasses.replace(config, tracking=own), {}) as row:
            seconds = _train(config, row)
            begun = time.perf_counter()
            row.finish(tags={}, metrics={})
            return {**seconds, "finish": time.perf_counter() - begun}


# ---------------------------------------------------------------------------------------------------------------------
# What a person sees
# ---------------------------------------------------------------------------------------------------------------------


def shape_name(row: Row) -> str:
    return f"{row['env']} {row['num_envs']:,}×{row['num_steps']}"


def training_table(rows: Sequence[Row], rounds: int) -> Table:
    title = f"Training: median of {rounds} rounds, %: share of the FMA peak"
    headers = ("envs × steps", "steps/s", "range", "GFLOP/s", "%", "update", "%", "peak", "MB")
    return _table(
        title,
        headers,
        [
            [
                shape_name(row),
                f"{row['steps_per_second']:,.0f}",
                _range(row["steps_per_second_range"]),
                f"{row['gflops']:.1f}",
                f"{100 * row['peak_share']:.1f}",
                f"{row['update_gflops']:.1f}",
                f"{100 * row['update_peak_share']:.1f}",
                f"{row['fma_peak_gflops']:.0f}",
                _megabytes(row["peak_memory_bytes"]),
            ]
            for row in rows
        ],
    )


def phases_table(rows: Sequence[Row]) -> Table:
    headers = ("envs × steps", *(name.replace("_", "\n") for name in speed.TIMED), "sum")
    shares = [(*(row["phases"][name] for name in speed.TIMED), row["phases_sum"]) for row in rows]
    cells = [[shape_name(row), *(f"{100 * s:.1f}" for s in each)] for row, each in zip(rows, shares, strict=True)]
    return _table("Where the time goes: % of the wall", headers, cells)


def scaling_table(name: str, rows: Sequence[Row]) -> Table:
    names: dict[str, tuple[str, Callable[[Row], str]]] = {
        "threads": ("threads", lambda row: f"{row['threads']}"),
        "environments": ("envs × steps", lambda row: f"{row['num_envs']:,}×{row['num_steps']}"),
        "hidden": ("hidden", lambda row: " ".join(map(str, row["hidden"]))),
    }
    head, first = names[name]
    headers = (head, "steps/s", "range", "GFLOP/s", "of peak", "of the first", "MB")
    cells = [
        [
            first(row),
            f"{row['steps_per_second']:,.0f}",
            _range(row["steps_per_second_range"]),
            f"{row['gflops']:.1f}",
            _percent(row["peak_share"]),
            f"{row['steps_per_second'] / rows[0]['steps_per_second']:.2f}",
            _megabytes(row["peak_memory_bytes"]),
        ]
        for row in rows
    ]
    return _table(f"Scaling: {name}", headers, cells)


def steps_table(rows: Sequence[Row]) -> Table:
    headers = ("times", "steps", "seconds", "range", "a step, of the first", "peak MB")
    cells = [
        [
            f"{row['times']}",
            f"{row['steps']:,}",
            f"{row['seconds']:.3f}",
            "{:.3f}–{:.3f}".format(*row["seconds_range"]),
            f"{row['relative']:.3f}",
            _megabytes(row["peak_memory_bytes"]),
        ]
        for row in rows
    ]
    return _table("Cost against steps: whole trainings", headers, cells)


def logging_table(rows: Sequence[Row]) -> Table:
    headers = ("MLflow", "steps", "seconds", "range", "logging's share", "cost", "then waits")
    cells = [
        [
            "on" if row["tracking"] else "off",
            f"{row['steps']:,}",
            f"{row['seconds']:.2f}",
            "{:.2f}–{:.2f}".format(*row["seconds_range"]),
            f"{100 * row['log_share']:.2f} %",
            f"{100 * row['cost']:+.1f} %",
            f"{row['finish_seconds']:.1f} s",
        ]
        for row in rows
    ]
    return _table("Cost of the log: whole trainings", headers, cells)


def _table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    result = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for number, header in enumerate(headers):
        result.add_column(header, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f}"


def _range(ends: Sequence[float]) -> str:
    """From the smallest to the largest, short: 47–61 k, 1.21–1.35 M."""
    if ends[1] >= 1e6:
        return "{:.2f}–{:.2f} M".format(*(end / 1e6 for end in ends))
    return "{:.0f}–{:.0f} k".format(*(end / 1e3 for end in ends))


# ---------------------------------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------------------------------

SECTIONS: dict[str, Callable[[Bench], list[Row]]] = {
    "steps": Bench.steps,
    "threads": Bench.threads,
    "environments": Bench.environments,
    "hidden": Bench.hidden,
    "logging": Bench.logging,
}
TABLES: dict[str, Callable[[Sequence[Row]], Table]] = {
    "steps": steps_table,
    "logging": logging_table,
    **{name: functools.partial(scaling_table, name) for name in ("threads", "environments", "hidden")},
}
NAMES = ("shapes", *SECTIONS)


def run(config: Config, options: Options) -> dict[str, Any]:
    """Measures, prints tables and writes `<out>/{bench.json,bench.svg}`; returns what is in the JSON file.

    Raises:
        UserError: a folder cannot be written to; numbers that are not finite came up.
    """
    out = Path(config.out)
    written = options.json or out / "bench.json"
    if written.is_dir():
        raise UserError(f"--json: wanted a file to write to; {written} is a folder. Name a file in it")
    for folder in (out, written.parent):
        files.expect_writable(folder)
    torch.set_num_threads(1)  # as the stage does
    device = torch.device(config.device.resolve())
    effort = QUICK if options.quick else FULL
    console = Console(file=sys.stdout, highlight=False)
    console.width = max(console.width, 80)  # a narrow terminal breaks lines; rich would cut numbers
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bench = Bench(config, effort, console, progress)
        rows = bench.training("shapes" in options.sections)
        console.print(_headline(config, rows[0], device), soft_wrap=True)
        console.print(training_table(rows, effort.rounds), phases_table(rows))
        sections = {"shapes": rows[1:]} if len(rows) > 1 else {}
        for name, measure in SECTIONS.items():
            if name in options.sections and not (name == "threads" and device.type != "cpu"):
                sections[name] = measure(bench)
                console.print(TABLES[name](sections[name]))
    result = {
        **rows[0],
        "config": configuration.decisive(config),
        "effort": dataclasses.asdict(effort),
        "machine": provenance.collect(str(device)),
        "sections": sections,
    }
    files.write_json(written, result)
    files.write(out / "bench.svg", bench_figure.svg(rows, sections))
    console.print(f"bench: wrote {written} and {out / 'bench.svg'}", soft_wrap=True)
    return result


def _headline(config: Config, row: Row, device: torch.device) -> str:
    ppo, policy = config.ppo, config.policy
    trunk = ", shared" if policy.shared else ""
    return (
        f"bench: {config.env.title}, {ppo.num_envs:,} environments × {ppo.num_steps} steps, {ppo.update_epochs} epochs "
        f"× {ppo.num_minibatches} minibatches, hidden {list(policy.hidden)} {policy.activation}{trunk}, {row['path']} "
        f"on {device}, threads {row['threads']}"
    )


def parse(arguments: Sequence[str]) -> tuple[list[str], Options]:
    """The configuration's overrides, and the options. Raises UserError."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.bench", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "overrides",
        nargs="*",
        help=f"key=value of the configuration, as for train, by default out={OUT}; ppo.total_steps is not used",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all numbers go: <out>/bench.json")
    parser.add_argument("--quick", action="store_true", help="a look at it: too short to compare")
    parser.add_argument("--sections", default=",".join(NAMES), help=f"some of {','.join(NAMES)}, or none")
    flags = [text for action in parser._actions for text in action.option_strings]

    def refuse(message: str) -> NoReturn:
        raise UserError(f"wanted key=value, or one of {', '.join(flags)}; {message}")

    parser.error = refuse  # type: ignore[assignment, method-assign]
    given = parser.parse_intermixed_args(list(arguments))
    names = [] if given.sections == "none" else given.sections.split(",")
    for name in names:
        if name not in NAMES:
            near = configuration.near(name, NAMES)
            hint = f". Nearest: {', '.join(near)}" if near else ""
            raise UserError(f"--sections: wanted some of {', '.join(NAMES)}, or none; got {name!r}{hint}")
    return given.overrides, Options(given.json, given.quick, tuple(names))


def main(arguments: Sequence[str]) -> None:
    """A user's mistake: one line and exit code 2; Ctrl-C: one line and exit code 130."""
    try:
        overrides, options = parse(arguments)
        config = configuration.load([f"out={OUT}", *overrides, ENDLESS])
        with configuration.expect_memory():
            run(config, options)
    except UserError as error:
        configuration.fail("bench", error)
    except KeyboardInterrupt:
        print("bench: stopped by Ctrl-C; nothing was written", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main(sys.argv[1:])
