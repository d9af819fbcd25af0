"""How fast are others? The same PPO recipe, on this product and on its peers, alternating in one run.

    python -m benchmarks.peers                                        # every peer, both cases, three rounds
    python -m benchmarks.peers --peers sb3,rejax --cases 8x128 --rounds 5 --seconds 10 --json peers.json
    python -m benchmarks.peers --peers sb3 --cases 8x128 --env gymnasium   # our training, too, on Gymnasium's CartPole

Each peer lives in an environment of its own, `build/peers/<name>`, that the first run installs with pip: some minutes
and 1 to 2 GB a peer. Measured are the environment steps a second of a whole training, rollouts and updates, after the
first iterations; imports and compilation are told apart as the start-up. `benchmarks/recipes.py` holds the recipe, and
`docs/benchmarks.md` tells what is alike, what is not, and results.
"""

import argparse
import dataclasses
import datetime
import functools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from benchmarks import recipes

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build" / "peers"
INSTALL_SECONDS = 1800.0
RUN_SECONDS = 300.0  # of start-up, beside the measured ones: after that a run has failed
TRIAL_SECONDS = 2.0  # measured with each number of threads, to choose one
FIRST_ITERATIONS = 20  # of our first training, which tells how many make the measured seconds

# On Linux the plain name would bring the CUDA build, of several GB.
TORCH = "torch==2.13.0+cpu" if sys.platform == "linux" else "torch==2.13.0"
GYMNASIUM = "gymnasium==1.4.0 numpy==2.4.6"
JAX = "jax[cpu]==0.10.2"


class PeerError(Exception):
    """A peer that cannot be installed or does not run: its text is the reason, one line."""


@dataclasses.dataclass(frozen=True)
class Peer:
    """A training library: its name in the table, and the arguments of each call of `pip install` that installs it."""

    title: str
    installs: tuple[str, ...]


PEERS = {
    "sb3": Peer("SB3", (f"{TORCH} stable-baselines3==2.9.2 {GYMNASIUM}",)),
    "sbx": Peer("SBX", (f"{TORCH} {JAX} sbx-rl==0.28.0 stable-baselines3==2.9.2 {GYMNASIUM}",)),
    "skrl": Peer("skrl", (f"{TORCH} skrl[torch]==2.1.1 {GYMNASIUM}",)),
    "tianshou": Peer("Tianshou", (f"{TORCH} tianshou==2.0.1 {GYMNASIUM}",)),
    # Its wheel asks for Python 3.10 and for much that the one script does not import.
    "cleanrl": Peer(
        "CleanRL",
        (
            f"{TORCH} gym==0.23.1 pygame-ce==2.5.8 numpy==1.26.4",
            "--no-deps --ignore-requires-python cleanrl==1.2.0",
        ),
    ),
    # A later gymnax returns other values from a step than this rejax unpacks.
    "rejax": Peer("rejax", (f"{JAX} rejax==0.1.3 gymnax==0.0.9",)),
    # Built against the torch installed before it; the build downloads raylib and Box2D.
    "pufferlib": Peer(
        "PufferLib",
        (
            f"{TORCH} numpy==1.26.4 setuptools==80.9.0 wheel==0.45.1 Cython==3.1.2",
            "--no-build-isolation pufferlib==3.0.0",
        ),
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """Environments side by side, and steps of each in a rollout."""

    envs: int
    steps: int

    @property
    def batch(self) -> int:
        return self.envs * self.steps

    def __str__(self) -> str:
        return f"{self.envs}x{self.steps}"


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: environment steps, the seconds that they took, and the process's other seconds."""

    steps: int
    seconds: float
    startup_seconds: float
    versions: Mapping[str, str]

    @property
    def speed(self) -> float:
        """Environment steps a second."""
        return self.steps / self.seconds


def installed(name: str) -> bool:
    """Whether the peer's environment holds what PEERS names."""
    receipt = _receipt(name)
    return receipt.exists() and receipt.read_text() == "\n".join(PEERS[name].installs)


def install(name: str) -> None:
    """Makes the peer's environment.

    Raises:
        PeerError: pip failed.
    """
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    (ENVIRONMENTS / ".gitignore").write_text("*\n")
    _receipt(name).unlink(missing_ok=True)
    if not python(name).exists():
        _call([sys.executable, "-m", "venv", str(ENVIRONMENTS / name)], INSTALL_SECONDS)
    for arguments in PEERS[name].installs:
        command = [str(python(name)), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments.split()]
        _call(command, INSTALL_SECONDS)
    _receipt(name).write_text("\n".join(PEERS[name].installs))


def python(name: str) -> Path:
    """The interpreter of the peer's environment."""
    return ENVIRONMENTS / name / "bin" / "python"


def _receipt(name: str) -> Path:
    return ENVIRONMENTS / name / "installed.txt"


def run_peer(name: str, case: Case, seconds: float, threads: int) -> Run:
    """One training of a peer in a process of its own.

    Raises:
        PeerError: it failed, took too long, or printed something else than a result.
    """
    recipe = [str(ROOT / "benchmarks" / "recipes.py"), name, f"--envs={case.envs}", f"--steps={case.steps}"]
    # OpenMP's threads are torch's; NPROC bounds those of XLA.
    limits = {"OMP_NUM_THREADS": str(threads), "NPROC": str(threads)}
    begun = time.perf_counter()
    command = [str(python(name)), "-I", *recipe, f"--seconds={seconds}"]
    # In its own folder: some leave files where they run.
    output = _call(command, RUN_SECONDS + 10 * seconds, limits, ENVIRONMENTS / name)
    elapsed = time.perf_counter() - begun
    try:
        result = json.loads(output.strip().splitlines()[-1])
        return Run(result["steps"], result["seconds"], elapsed - result["seconds"], result["versions"])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise PeerError(f"wanted a line of JSON; got {output.strip()[-100:]!r}") from error


def run_ours(case: Case, iterations: int, environment: str = "cartpole") -> Run:
    """One training by the product's command line; all its iterations count, the first one too.

    Args:
        environment: cartpole, the native one; or gymnasium, whose CartPole-v1 is then stepped through the adapter.

    Raises:
        PeerError: it failed.
    """
    values = {
        "num_envs": case.envs,
        "num_steps": case.steps,
        "total_steps": iterations * case.batch,
        "num_minibatches": recipes.MINIBATCHES,
        "update_epochs": recipes.EPOCHS,
        "learning_rate": recipes.LEARNING_RATE,
        "anneal_lr": "false",
        "gamma": recipes.GAMMA,
        "gae_lambda": recipes.GAE_LAMBDA,
        "clip_coef": recipes.CLIP,
        "ent_coef": 0.0,
        "vf_coef": 2 * recipes.VALUE_WEIGHT,
        "max_grad_norm": recipes.MAX_GRAD_NORM,
    }
    hidden = ",".join(map(str, recipes.HIDDEN))
    with tempfile.TemporaryDirectory(prefix="lockstep-peers-") as folder:
        command = [sys.executable, "-m", "pipeline.train", f"env={environment}", "device=cpu", "tracking.enabled=false"]
        command += [f"policy.hidden=[{hidden}]", "policy.activation=tanh", f"out={folder}/run"]
        command += [f"hydra.run.dir={folder}/hydra", *(f"ppo.{key}={value}" for key, value in values.items())]
        begun = time.perf_counter()
        _call(command, RUN_SECONDS * 10)
        elapsed = time.perf_counter() - begun
        profile = json.loads((Path(folder) / "run" / "profile.json").read_text())
        path = json.loads((Path(folder) / "run" / "checkpoint.json").read_text())["path"]
    seconds = iterations * case.batch / profile["steps_per_second"]
    return Run(iterations * case.batch, seconds, elapsed - seconds, {"path": path})


def _call(
    command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> str:
    """The standard output of a command; a failure is told by its reason."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"took more than {seconds:.0f} s") from error
    except OSError as error:
        raise PeerError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise PeerError(reason(done.stdout + done.stderr) or f"exit code {done.returncode}, nothing said")
    return done.stdout


def reason(output: str) -> str:
    """The line of a failed command's output that says why: the last exception, else the last error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern in (r"[\w.]*(Error|Exception)\b.*:", r"(?i)error\b"):
        for line in reversed(lines):
            if re.match(pattern, line):
                return line
    return lines[-1] if lines else ""


def fastest(measure: Callable[[int], Run], threads: Sequence[int]) -> int:
    """The number of threads with which the peer is fastest."""
    return max(threads, key=lambda count: measure(count).speed)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summary(pairs: Sequence[tuple[Run, Run]]) -> dict[str, Any]:
    """What the rounds of one peer tell: `pairs` holds our run and the peer's right after it, round by round.

    The ratio, how many times as fast we are, is taken within each round, so that what slows the machine for minutes
    slows both.
    """
    return {
        "ours_steps_per_second": spread([ours.speed for ours, _ in pairs]),
        "steps_per_second": spread([peer.speed for _, peer in pairs]),
        "ratio": spread([ours.speed / peer.speed for ours, peer in pairs]),
        "startup_seconds": spread([peer.startup_seconds for _, peer in pairs]),
        "ours_startup_seconds": spread([ours.startup_seconds for ours, _ in pairs]),
        "versions": dict(pairs[-1][1].versions),
        "rounds": [{"ours": dataclasses.asdict(ours), "peer": dataclasses.asdict(peer)} for ours, peer in pairs],
    }


class Comparison:
    """All rounds of some peers, with a line for each run as it ends, and a bar on a terminal.

    Args:
        options: the command line's.
        console: where lines and bar go.
    """

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options, self.console = options, console
        self.failed: dict[str, str] = {}  # by peer, whatever the case
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)

    def run(self) -> dict[str, Any]:
        """By case: our and each peer's summary, or why there is none."""
        options = self.options
        with self._bar:
            self._install()
            threads = sorted({1, os.cpu_count() or 1})
            peers = len(options.peers) - len(self.failed)
            total = len(options.cases) * (1 + peers * (len(threads) + 2 * options.rounds))
            self._bar.update(self._task, completed=0, total=total)
            return {str(case): self._case(case, threads) for case in options.cases}

    def _install(self) -> None:
        self._bar.update(self._task, completed=0, total=len(self.options.peers))
        for name in self.options.peers:
            if not installed(name):
                self._bar.update(self._task, description=f"installing {PEERS[name].title}")
                self._say(f"installing {PEERS[name].title}")
                self._try(name, "does not install", lambda: install(name))
            self._bar.advance(self._task)

    def _case(self, case: Case, threads: Sequence[int]) -> dict[str, Any]:
        options, chosen = self.options, {}
        pairs: dict[str, list[tuple[Run, Run]]] = {name: [] for name in options.peers}
        iterations = FIRST_ITERATIONS
        ours = self._measure("ours", case, lambda: run_ours(case, iterations, options.env))  # compiles the kernels, too
        for name in self._running():
            trial = functools.partial(self._peer, name, case, TRIAL_SECONDS)
            chosen[name] = self._try(name, "does not run", lambda: fastest(trial, threads))
        for _ in range(options.rounds):
            for name in self._running():
                iterations = max(1, round(ours.speed * options.seconds / case.batch))
                ours = self._measure("ours", case, lambda: run_ours(case, iterations, options.env))
                peer = self._try(name, "does not run", lambda: self._peer(name, case, options.seconds, chosen[name]))
                if peer:
                    pairs[name].append((ours, peer))
        return {
            name: {"failed": self.failed[name]}
            if name in self.failed
            else {**summary(pairs[name]), "threads": chosen[name]}
            for name in options.peers
        }

    def _running(self) -> list[str]:
        return [name for name in self.options.peers if name not in self.failed]

    def _try(self, name: str, failure: str, work: Callable[[], Any]) -> Any:
        """What the work returns; a peer that fails is left out from then on, and None is returned."""
        try:
            return work()
        except PeerError as error:
            self.failed[name] = f"{failure}: {error}"
            self._say(f"{PEERS[name].title} {self.failed[name]}")
            return None

    def _peer(self, name: str, case: Case, seconds: float, threads: int) -> Run:
        who = f"{PEERS[name].title}, threads {threads}"
        return self._measure(who, case, lambda: run_peer(name, case, seconds, threads))

    def _measure(self, who: str, case: Case, measured: Callable[[], Run]) -> Run:
        self._bar.update(self._task, description=f"{case}  {who}")
        run = measured()
        self._bar.advance(self._task)
        self._say(f"{case}  {who}: {run.speed:,.0f} steps/s, start-up {run.startup_seconds:.1f} s")
        return run

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def table(case: str, peers: Mapping[str, Mapping[str, Any]]) -> Table:
    """A case's rows: the peers by speed, then those that were not measured, with the reasons under the table."""
    result = Table(
        "peer", title=f"{case.replace('x', ' environments × ')} steps", box=box.SIMPLE_HEAD, caption_justify="left"
    )
    for column in ("steps/s", "ours", "ours / peer", "start-up s", "threads"):
        result.add_column(column, justify="right", no_wrap=True)
    measured = [(name, row) for name, row in peers.items() if "failed" not in row]
    for name, row in sorted(measured, key=lambda each: -each[1]["steps_per_second"]["median"]):
        low, ratio, high = (_ratio(row["ratio"][each]) for each in ("min", "median", "max"))
        result.add_row(
            f"{PEERS[name].title} {next(iter(row['versions'].values()))}",
            f"{row['steps_per_second']['median']:,.0f}",
            f"{row['ours_steps_per_second']['median']:,.0f}",
            f"{ratio} ({low} to {high})",
            f"{row['startup_seconds']['median']:.1f}",
            str(row["threads"]),
        )
    failed = [name for name, row in peers.items() if "failed" in row]
    for name in failed:
        result.add_row(PEERS[name].title, "see below")
    result.caption = Text("\n".join(f"{PEERS[name].title} {peers[name]['failed']}" for name in failed))
    return result


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def machine() -> dict[str, Any]:
    """What the figures hold for: processor, cores, system, and how busy it was with others (load over a minute)."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else []
    return {
        "date": datetime.date.today().isoformat(),
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"peers: {message}. Options: python -m benchmarks.peers --help\n")
        raise SystemExit(2)


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"wanted some of {','.join(PEERS)}; got {unknown[0]!r}")
    return list(dict.fromkeys(names))


def _cases(text: str) -> list[Case]:
    sizes = [re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", each) for each in text.split(",")]
    cases = [Case(int(size[1]), int(size[2])) for size in sizes if size]
    if len(cases) < len(sizes) or any(case.batch % recipes.MINIBATCHES for case in cases):
        wanted = f"wanted environments x steps, a multiple of {recipes.MINIBATCHES}, such as 8x128,256x64"
        raise argparse.ArgumentTypeError(f"{wanted}; got {text!r}")
    return cases


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < 1e6:
            raise argparse.ArgumentTypeError(f"wanted a number above 0; got {text!r}")
        return value

    return number


def _file(text: str) -> Path:
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"wanted a file in a folder that exists; got {text!r}")
    return path


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line's options; a mistake is one line and exit code 2."""
    description = "The same PPO recipe on this product and on its peers, alternating."
    parser = _Parser(prog="python -m benchmarks.peers", description=description, allow_abbrev=False)
    parser.add_argument("--peers", type=_names, default=list(PEERS), help=f"some of {','.join(PEERS)} (all)")
    parser.add_argument("--cases", type=_cases, default="8x128,256x64", help="environments x steps (%(default)s)")
    ours = "what our training steps: cartpole, the native one, or gymnasium, through the adapter (%(default)s)"
    parser.add_argument("--env", choices=("cartpole", "gymnasium"), default="cartpole", help=ours)
    parser.add_argument("--rounds", type=_positive(int), default=3, help="runs of each peer (%(default)s)")
    parser.add_argument("--seconds", type=_positive(float), default=5.0, help="measured of a run (%(default)s)")
    parser.add_argument("--json", type=_file, help="write all numbers to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    console = Console()
    about = machine()
    try:
        cases = Comparison(options, console).run()
    except PeerError as error:
        sys.exit(f"peers: our own training failed: {error}")
    except KeyboardInterrupt:
        sys.stderr.write("peers: stopped by Ctrl-C; nothing was written\n")
        raise SystemExit(130) from None
    console.print(f"{about['date']}, {about['processor']}, {about['cores']} cores", highlight=False)
    for case, peers in cases.items():
        console.print(table(case, peers))
    if options.json:
        options.json.write_text(json.dumps({"machine": about, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
