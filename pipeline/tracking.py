"""MLflow: one row for each training run, written by a process of its own.

MLflow is imported only in a writer process, which a stage starts and feeds with JSON lines through a pipe. Importing
MLflow takes seconds of CPU that hold the interpreter's lock: from a thread of the training process, that stretched an
iteration of 40 ms to 2.5 s. The writer also outlives a training that is killed, and marks its row as failed. A store
that stops answering costs one line of warning, never the training.

Nothing that is read from MLflow enters an artifact: what comes back through the pipe is whether the store opened.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import getpass
import hashlib
import importlib.util
import json
import math
import os
import queue
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from filelock import FileLock

from kernels.errors import UserError
from pipeline.profile import PHASES

if TYPE_CHECKING:
    from pipeline.config import Config, TrackingConfig

T = TypeVar("T")

CHECKOUT = Path(__file__).resolve().parent.parent

# What comes before the slash is the metric's section: MLflow shows a group of charts for each.
SECTIONS = {
    "rollout": ("episode_return_mean", "episode_length_mean", "episodes"),
    "loss": ("policy_loss", "value_loss", "entropy"),
    "update": ("approx_kl", "clip_fraction", "clip_fraction_after", "explained_variance", "grad_norm", "learning_rate"),
    "time": ("steps_per_second", "wall_s"),
}
METRIC_NAMES = {
    **{name: f"{section}/{name}" for section, names in SECTIONS.items() for name in names},
    **{phase: f"time/{phase}_s" for phase in (*PHASES, "wall")},
}
NONFINITE = "update/nonfinite"  # how many values were NaN or infinite, and so left out

# Parts of the configuration that do not describe the training.
NOT_PARAMETERS = ("tracking", "validate", "evaluate", "out", "checkpoint", "seeds")

# Set by pipeline/sweep.py in the jobs of a sweep.
SWEEP = "LOCKSTEP_SWEEP"  # run id of the parent, or UNTRACKED
SWEEP_JOB = "LOCKSTEP_SWEEP_JOB"  # overrides of this job
UNTRACKED = "untracked"

QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "GIT_PYTHON_REFRESH": "quiet",
    "PYTHONWARNINGS": "ignore",
}
KIND = {"mlflow.experimentKind": "custom_model_development"}  # not MLflow's GenAI pages
BATCH = 1000  # most metrics that MLflow takes in one call
FLUSH_S = 2.0
RETRY_S = 30.0  # between calls to a store that stopped answering
NICE = 15  # a thirtieth of a busy core, while the training goes on
FINISH_S = 300.0  # the writer ends by itself, on a busy machine late
WARNED = 3  # exit code of a writer that has said what was wrong


# ----------------------------------------------------------------------------------------------------------------------
# What the stages use
# ----------------------------------------------------------------------------------------------------------------------


def start(config: Config, provenance: Mapping[str, str]) -> Run:
    """A row for one training run, below its sweep's where there is one; `NullRun` for tracking.enabled=false.

    With SQLite this returns at once (the path is checked, the writer does the rest); other stores are waited for.
    `provenance` becomes tags.

    Raises:
        UserError: tracking.uri is no store that can be used, or MLflow is not installed.
    """
    if not config.tracking.enabled:
        return NullRun()
    writer = _Writer(config.tracking)  # first, so that its import of MLflow runs beside all that follows
    from pipeline import config as configuration  # imports Hydra, which the writer has no use for

    job = os.environ.get(SWEEP_JOB, "")
    parent = os.environ.get(SWEEP, UNTRACKED)
    parameters = training_parameters(config)
    tags = {
        **provenance,
        **_source("pipeline.train", provenance.get("git_commit", "")),
        "stage": "train",
        "environment": config.env.title,
        "run_seed": str(config.seed),
        "config_sha256": configuration.sha256(config),
        "splits": "train",
    }
    if parent != UNTRACKED:
        tags |= {"mlflow.parentRunId": parent, "overrides": " ".join(job.splitlines())}
    writer.send(
        "run",
        name=_short(job) or f"{config.env.title} seed={config.seed}",
        time=_now_ms(),
        tags=tags,
        parameters=flatten(parameters),
        seeds={"split": "train", "run_seed": config.seed, "environments": config.ppo.num_envs},
        config=json.dumps(parameters, indent=2, sort_keys=True),
    )
    return Run(writer)


def in_sweep() -> bool:
    """Whether this process runs a job of a sweep, which then evaluates itself on the `selection` split."""
    return SWEEP in os.environ


class Run:
    """One row of MLflow's table. Used as a context manager, a block that raises ends it as FAILED."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._step = 0
        self._nonfinite = 0
        self._open = True

    def curve(self, step: int, metrics: Mapping[str, float]) -> None:
        """One iteration's metrics at `step` environment steps, named as in curve.csv, profile.json, or `section/name`.

        Takes microseconds. NaN and infinity are left out and counted in `update/nonfinite`, but for the means over the
        episodes of an iteration in which none ended.
        """
        self._step = step
        if metrics.get("episodes") == 0:
            metrics = {name: value for name, value in metrics.items() if not name.startswith("episode_")}
        values = {METRIC_NAMES.get(name, name): float(value) for name, value in metrics.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        if len(finite) < len(values):
            self._nonfinite += len(values) - len(finite)
            finite[NONFINITE] = self._nonfinite
        self._writer.send("metrics", step=step, time=_now_ms(), values=finite)

    def evaluation(self, metrics: Mapping[str, Any], split: str) -> None:
        """Results of an evaluation (as in metrics.json) into this row: what a job of a sweep does with its own."""
        self.curve(self._step, _evaluation_metrics(metrics, split))
        self._writer.send("evaluated", split=split, seeds=_evaluation_seeds(metrics, split))

    def finish(self, *, tags: Mapping[str, str], metrics: Mapping[str, float], status: str = "FINISHED") -> None:
        """Write what is left, end the row and wait for the writer. `status`: FINISHED, FAILED or KILLED."""
        if self._open:
            self._open = False
            self.curve(self._step, metrics)
            if self._step:  # a sweep's row has no curve
                self.curve(self._step, {NONFINITE: self._nonfinite})
            self._writer.send("finish", tags=dict(tags), status=status)
            self._writer.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.finish(tags={}, metrics={}, status="KILLED" if issubclass(kind, KeyboardInterrupt) else "FAILED")


class NullRun(Run):
    """Takes everything and keeps nothing."""

    def __init__(self) -> None:
        pass

    def curve(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def evaluation(self, metrics: Mapping[str, Any], split: str) -> None:
        pass

    def finish(self, *, tags: Mapping[str, str], metrics: Mapping[str, float], status: str = "FINISHED") -> None:
        pass


class Evaluation:
    """Opens the store while an evaluation still plays its episodes, so that `attach` need not wait for the import.

    Raises:
        UserError: as `start`.
    """

    def __init__(self, config: Config) -> None:
        self._writer = _Writer(config.tracking) if config.tracking.enabled else None

    def attach(
        self,
        checkpoint_sha256: str,
        run_seed: int,
        metrics: Mapping[str, Any],
        split: str,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Put `metrics` (as in metrics.json) into the newest row with this checkpoint and run seed.

        A training that DVC restored from its cache has no row here: then one is made and marked `restored`, with the
        checkpoint's configuration as its `parameters`.
        """
        if self._writer is None:
            return
        environment = str(metrics.get("env", ""))
        self._writer.send(
            "attach",
            checkpoint_sha256=checkpoint_sha256,
            run_seed=str(run_seed),
            split=split,
            seeds=_evaluation_seeds(metrics, split),
            step=int(metrics.get("step", 0)),
            time=_now_ms(),
            values={name: value for name, value in _evaluation_metrics(metrics, split).items() if math.isfinite(value)},
            name=f"{environment} seed={run_seed} restored".strip(),
            tags={"stage": "train", "environment": environment, **_source("pipeline.evaluate", "")},
            parameters=flatten(parameters or {}),
        )
        self._writer.close()


def start_sweep(tracking: TrackingConfig, overrides: list[str]) -> tuple[str, Run]:
    """The parent row of a sweep and its run id. Waits for the store, so that the jobs find the row.

    Raises:
        UserError: as `start`.
    """
    name = "sweep " + " ".join(_short(override) for override in overrides)
    tags = {"stage": "sweep", "overrides": " ".join(overrides), **_source("pipeline.train", "")}
    writer = _Writer(tracking, wait=True)
    writer.send("run", name=name[:250], time=_now_ms(), tags=tags, parameters={})
    run_id = writer.answer()
    if run_id is None:
        raise UserError("tracking: wanted a parent row for the sweep; got none. Set tracking.enabled=false to go on")
    return run_id, Run(writer)


def training_parameters(config: Config) -> dict[str, Any]:
    """The configuration without the parts that do not describe the training."""
    return {key: value for key, value in dataclasses.asdict(config).items() if key not in NOT_PARAMETERS}


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """`{"ppo": {"gamma": 0.99}}` as `{"ppo.gamma": "0.99"}`."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return flat


def _evaluation_metrics(metrics: Mapping[str, Any], split: str) -> dict[str, float]:
    numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return {f"eval/{split}_{name}": float(value) for name, value in numbers.items() if name not in ("run_seed", "step")}


def _evaluation_seeds(metrics: Mapping[str, Any], split: str) -> dict[str, Any]:
    return {"split": split, "first": 0, "count": metrics.get("episodes")}


def _source(name: str, commit: str) -> dict[str, str]:
    """Tags that fill MLflow's own columns."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id may have no name
        user = str(os.getuid())
    tags = {"mlflow.source.name": name, "mlflow.source.type": "LOCAL", "mlflow.user": user}
    return {**tags, "mlflow.source.git.commit": commit} if commit else tags


def _short(overrides: str) -> str:
    """Overrides, one a line, as one line without their keys' groups: `ppo.gamma=0.9` as `gamma=0.9`."""
    pairs = (override.partition("=") for override in overrides.splitlines())
    return " ".join(key.rpartition(".")[2] + equals + value for key, equals, value in pairs)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# ----------------------------------------------------------------------------------------------------------------------
# Where the rows go
# ----------------------------------------------------------------------------------------------------------------------


def home() -> Path:
    """The user's own checkout: DVC runs some experiments in temporary clones, and names the original in $DVC_ROOT."""
    return Path(os.environ.get("DVC_ROOT") or CHECKOUT).resolve()


def store_uri(uri: str | None) -> str:
    """The store's address: `uri`, else $MLFLOW_TRACKING_URI, else the SQLite file `mlflow.db` of `home()`.

    A relative SQLite path counts from `home()`.

    Raises:
        UserError: it is none of SQLite in an existing, writable folder, a database server, an MLflow server.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home() / 'mlflow.db'}"
    scheme = uri.partition(":")[0].split("+")[0]
    if scheme in ("http", "https", "postgresql", "mysql", "mssql") and urlsplit(uri).netloc:
        return uri
    if scheme != "sqlite" or not uri.startswith("sqlite:///") or uri == "sqlite:///":
        raise UserError(
            "tracking.uri: wanted sqlite:///<path>, http(s)://<server>, postgresql://, mysql:// or mssql://; "
            f"got {uri!r}. Leave it null for mlflow.db in the checkout"
        )
    path = home() / uri.removeprefix("sqlite:///")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"tracking.uri: wanted a writable folder; got {path.parent}. Create it or correct the path")
    if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
        raise UserError(f"tracking.uri: wanted a writable SQLite file; got {path}. Correct path or permissions")
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise UserError(f"tracking.uri: wanted an SQLite file; got {path}, which is none. Correct the path")
    return f"sqlite:///{path}"


def artifact_folder(uri: str) -> Path | None:
    """Where the artifacts of an SQLite store lie: beside it. None for stores that have a place of their own."""
    return _database(uri).parent / "mlruns" if uri.startswith("sqlite:///") else None


def _database(uri: str) -> Path:
    return Path(uri.removeprefix("sqlite:///"))


# ----------------------------------------------------------------------------------------------------------------------
# The pipe to the writer
# ----------------------------------------------------------------------------------------------------------------------


class _Writer:
    """The writer process, seen from the stage. `send` never raises and never waits for the store.

    Raises:
        UserError: MLflow is not installed, or the store's address cannot be used.
    """

    def __init__(self, tracking: TrackingConfig, wait: bool = False) -> None:
        if importlib.util.find_spec("mlflow") is None:
            raise UserError(
                "tracking: wanted the package mlflow; it is not installed. "
                "Install it with `pip install 'mlflow>=3.17,<3.19'`, or set tracking.enabled=false"
            )
        uri = store_uri(tracking.uri)
        wait = wait or not uri.startswith("sqlite:")
        # A session of its own keeps Ctrl-C from the writer, which then still writes what it has.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.tracking", "writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=CHECKOUT,
            env={**os.environ, **QUIET},
            start_new_session=True,
        )
        self.send("store", uri=uri, experiment=tracking.experiment, quiet=wait)
        if wait and (refusal := self.answer()):
            self._process.wait()
            raise UserError(
                f"tracking.uri: wanted a store that answers; got {uri!r}: {refusal}. "
                "Start it, correct the address, or set tracking.enabled=false"
            )

    def send(self, kind: str, **message: Any) -> None:
        if self._process.stdin and not self._process.stdin.closed:
            try:
                self._process.stdin.write(json.dumps({"kind": kind, **message}).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                self._lost()

    def answer(self) -> str | None:
        """The writer's next answer; it ends a writer that could not open the store."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else "the writer process ended"
        return None if answer is None else str(answer)

    def close(self) -> None:
        """Tell the writer that nothing more comes, and wait until it has written."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            code = self._process.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        if code not in (0, WARNED):
            _warn(f"wanted the writer process to end well; it ended with code {code}. The row may be incomplete")

    def _lost(self) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()


def _warn(text: str) -> None:
    print(f"tracking: {text}", file=sys.stderr, flush=True)


# ----------------------------------------------------------------------------------------------------------------------
# The writer process
# ----------------------------------------------------------------------------------------------------------------------


def write(lines: IO[str], answer: Callable[[str | None], None]) -> int:
    """Read messages until `finish` or the end of the pipe; returns the exit code."""
    messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            messages.put(json.loads(line))
        messages.put(None)
        _give_way(0)  # the training waits now

    # Reads at once, also while MLflow is imported: a full pipe would stop the training.
    threading.Thread(target=read, daemon=True).start()
    first = messages.get()
    if first is None:
        return 0
    try:
        store = _Store(first["uri"], first["experiment"])
    except Exception as error:  # whatever MLflow, SQLAlchemy or a database driver raise
        if first["quiet"]:
            answer(_reason(error))
        else:
            _warn(f"{first['uri']} did not open: {_reason(error)}. The rest goes on; this row is missing")
        return WARNED
    if first["quiet"]:
        answer(None)

    pending: list[dict[str, Any]] = []  # messages not yet written, in order
    failed_at = -math.inf
    last = False
    while not last:
        deadline = time.monotonic() + FLUSH_S
        with contextlib.suppress(queue.Empty):
            while not last and (left := deadline - time.monotonic()) > 0:
                # The pipe ends without `finish` when the training was killed.
                message = messages.get(timeout=left) or {"kind": "finish", "tags": {}, "status": "FAILED"}
                pending.append(message)
                last = message["kind"] in ("finish", "attach")
                if message["kind"] == "run":
                    break
        if not last and time.monotonic() < failed_at + RETRY_S:
            continue
        opens = bool(pending) and pending[0]["kind"] == "run"
        try:
            while pending:
                del pending[: store.handle(pending)]
        except Exception as error:  # likewise
            if failed_at == -math.inf:
                _warn(f"{first['uri']} failed: {_reason(error)}. The rest goes on; this row may stay incomplete")
            failed_at = time.monotonic()
        if opens and first["quiet"]:
            answer(store.run_id)
    return 0 if failed_at == -math.inf else WARNED


def _reason(error: Exception) -> str:
    """An exception as part of one line: SQLAlchemy's and MLflow's run over many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")


class _Store:
    """An MLflow store with one experiment, and the row that this process writes."""

    run_id: str | None = None

    def __init__(self, uri: str, experiment: str) -> None:
        if uri.startswith("sqlite:"):
            # Two processes that create a database at once leave a ruined file.
            with FileLock(f"{_database(uri)}.lock"):
                _create_database(uri)
                self._connect(uri, experiment)
        else:
            self._connect(uri, experiment)

    def _connect(self, uri: str, experiment: str) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(uri, registry_uri=uri)
        found = self._client.get_experiment_by_name(experiment)
        if found is None:
            folder = artifact_folder(uri)
            try:
                self._experiment = self._client.create_experiment(experiment, folder.as_uri() if folder else None, KIND)
            except Exception:  # another process was first
                found = self._client.get_experiment_by_name(experiment)
                if found is None:
                    raise
        if found is not None:
            if found.lifecycle_stage != "active":
                raise UserError(
                    f"experiment {experiment!r} is deleted. Restore it or choose another tracking.experiment"
                )
            self._experiment = found.experiment_id

    def handle(self, pending: list[dict[str, Any]]) -> int:
        """Write the first message, or the first ones where they are metrics. Returns how many."""
        if pending[0]["kind"] == "metrics":
            count = size = 0
            while count < len(pending) and pending[count]["kind"] == "metrics":
                size += len(pending[count]["values"])
                if count and size > BATCH:
                    break
                count += 1
            self._log_metrics(pending[:count])
            return count
        message = dict(pending[0])
        handlers: dict[str, Callable[..., None]] = {
            "run": self._run,
            "evaluated": self._evaluated,
            "attach": self._attach,
            "finish": self._finish,
        }
        handlers[message.pop("kind")](**message)
        return 1

    def _run(
        self,
        name: str,
        time: int,
        tags: dict[str, str],
        parameters: dict[str, str],
        seeds: dict[str, Any] | None = None,
        config: str | None = None,
    ) -> None:
        from mlflow.entities import Param

        run = _retry(lambda: self._client.create_run(self._experiment, time, tags, name))
        self.run_id = run_id = run.info.run_id
        self._sweep = tags["stage"] == "sweep"
        values = [Param(key, value[:6000]) for key, value in parameters.items()]
        _retry(lambda: self._client.log_batch(run_id, params=values))
        if seeds is not None:
            self._log_seeds(run_id, seeds)
        if config is not None:
            _retry(lambda: self._client.log_text(run_id, config, "config.json"))

    def _log_metrics(self, messages: list[dict[str, Any]]) -> None:
        from mlflow.entities import Metric

        points = [
            Metric(name, value, message["time"], message["step"])
            for message in messages
            for name, value in message["values"].items()
        ]
        if self.run_id is not None and points:
            _retry(lambda: self._client.log_batch(str(self.run_id), metrics=points))

    def _log_seeds(self, run_id: str, seeds: dict[str, Any]) -> None:
        """The episode seeds in closed form, as MLflow's datasets, and their splits as a tag."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps(seeds, sort_keys=True)
        dataset = Dataset(f"{seeds['split']} seeds", hashlib.sha256(source.encode()).hexdigest()[:8], "seeds", source)
        tag = InputTag("mlflow.data.context", "training" if seeds["split"] == "train" else "evaluation")
        _retry(lambda: self._client.log_inputs(run_id, [DatasetInput(dataset, [tag])]))

    def _evaluated(self, split: str, seeds: dict[str, Any]) -> None:
        if self.run_id is not None:
            self._add_split(self.run_id, split)
            self._log_seeds(self.run_id, seeds)

    def _add_split(self, run_id: str, split: str) -> None:
        had = _retry(lambda: self._client.get_run(run_id)).data.tags.get("splits", "train").split(", ")
        _retry(lambda: self._client.set_tag(run_id, "splits", ", ".join(dict.fromkeys([*had, split]))))

    def _finish(self, tags: dict[str, str], status: str) -> None:
        from mlflow.entities import RunTag

        if self.run_id is None:
            return
        run_id = self.run_id
        if self._sweep:
            tags |= self._sum_up(run_id)
        _retry(lambda: self._client.log_batch(run_id, tags=[RunTag(key, str(value)) for key, value in tags.items()]))
        _retry(lambda: self._client.set_terminated(run_id, status))

    def _sum_up(self, run_id: str) -> dict[str, str]:
        """Log how many jobs a sweep had and the best of them on the `selection` split."""
        name = "eval/selection_return_mean"
        jobs = self._find(f"tags.`mlflow.parentRunId` = '{run_id}'", BATCH)
        finished = [job for job in jobs if job.info.status == "FINISHED"]
        summary = {"sweep/jobs": len(jobs), "sweep/finished": len(finished)}
        tags = {}
        evaluated = [job for job in finished if name in job.data.metrics]
        if best := max(evaluated, key=lambda job: job.data.metrics[name], default=None):
            summary["sweep/best_selection_return_mean"] = best.data.metrics[name]
            tags = {"best_job": best.info.run_name, "best_job_run_id": best.info.run_id}
            tags["mlflow.note.content"] = (
                f"{len(jobs)} jobs, {len(finished)} finished. Highest `{name}`: {best.data.metrics[name]:.6g} by "
                f"`{best.info.run_name}`. A choice made here is confirmed on the `held_out` split."
            )
        self._log_metrics([{"time": _now_ms(), "step": 0, "values": summary}])
        return tags

    def _attach(
        self,
        checkpoint_sha256: str,
        run_seed: str,
        split: str,
        seeds: dict[str, Any],
        step: int,
        time: int,
        values: dict[str, float],
        name: str,
        tags: dict[str, str],
        parameters: dict[str, str],
    ) -> None:
        identity = {"checkpoint_sha256": checkpoint_sha256, "run_seed": run_seed}
        found = self._find(" and ".join(f"tags.{key} = '{value}'" for key, value in identity.items()), 1)
        if found:
            self.run_id = found[0].info.run_id
        else:
            self._run(name, time, {**tags, **identity, "splits": "train", "restored": "true"}, parameters)
        self._log_metrics([{"time": time, "step": step, "values": values}])
        self._evaluated(split, seeds)
        if not found:
            self._finish({}, "FINISHED")

    def _find(self, condition: str, count: int) -> list[Any]:
        """Rows of the experiment, newest first."""
        experiments, order = [self._experiment], ["attributes.start_time DESC"]
        search = self._client.search_runs
        return list(_retry(lambda: search(experiments, condition, max_results=count, order_by=order)))


def _retry(call: Callable[[], T], attempts: int = 6) -> T:
    """`call()`, again after 0.1, 0.2, 0.4, ... s (up to twice that, by chance) when SQLite is busy.

    SQLite refuses at once, without its 20 s of patience, a transaction that read before another wrote.
    """
    from mlflow.exceptions import MlflowException

    for attempt in range(attempts):
        try:
            return call()
        except MlflowException as error:
            if attempt == attempts - 1 or error.error_code != "TEMPORARILY_UNAVAILABLE":
                raise
            time.sleep(0.1 * 2**attempt * (1 + random.random()))
    raise AssertionError("unreachable")


def _create_database(uri: str) -> None:
    """Make the SQLite file under another name and rename it, so that a process killed midway leaves none behind."""
    database = _database(uri)
    if database.exists() and database.stat().st_size:
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    new = database.with_name(f"{database.name}.new")
    new.unlink(missing_ok=True)
    store = SqlAlchemyStore(f"sqlite:///{new}", (artifact_folder(uri) or database.parent).as_uri())
    store.engine.dispose()
    with contextlib.closing(sqlite3.connect(new)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # readers and one writer at once; kept in the file
    new.replace(database)


# ----------------------------------------------------------------------------------------------------------------------
# Commands
# ----------------------------------------------------------------------------------------------------------------------


def show(uri: str | None, experiment: str, port: int | None) -> int:
    """Serve MLflow's UI on loopback until Ctrl-C, and print the address of the table of runs.

    Raises:
        UserError: MLflow is not installed, there is no database yet, or `port` is taken.
    """
    store = store_uri(uri)
    if store.startswith("http"):
        print(f"MLflow's server is already there: {store}")
        return 0
    folder = artifact_folder(store)
    if folder is not None and not _database(store).exists():
        raise UserError(f"ui: wanted {_database(store)}; there is no such database yet. Train first: `make repro`")
    number = _experiment_id(store, experiment)
    port = _free_port(port)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--uvicorn-opts", "--log-level warning"]
    if folder is not None:
        command += ["--default-artifact-root", folder.as_uri(), "--no-serve-artifacts"]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server must not outlive this process
    server = subprocess.Popen(command, env={**os.environ, **QUIET, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
    try:
        _wait_for(server, f"{address}/health")
        print(f"Runs: {address}/#/experiments/{number}/runs?workflowType=machine_learning", flush=True)
        print("End with Ctrl-C.", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


def _free_port(port: int | None) -> int:
    """`port`; without one 5000, MLflow's own, or any free one where that is taken."""
    for candidate in (port,) if port else (5000, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", candidate or 0))
            return int(probe.getsockname()[1])
    raise UserError(f"ui: wanted a free port; {port} is taken. Choose another --port or leave it out")


def _wait_for(server: subprocess.Popen[bytes], address: str) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=1):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise UserError(f"ui: wanted MLflow's server to answer at {address}; it did not. Its own messages above say why")


def _experiment_id(store: str, experiment: str) -> str:
    if not store.startswith("sqlite:"):
        return ""
    with contextlib.closing(sqlite3.connect(f"file:{_database(store)}?mode=ro", uri=True)) as connection:
        row = connection.execute("SELECT experiment_id FROM experiments WHERE name = ?", (experiment,)).fetchone()
    if row is None:
        raise UserError(f"ui: wanted the experiment {experiment!r}; {_database(store)} has no such. Train first")
    return str(row[0])


def _give_way(nice: int) -> None:
    """Training comes first where cores are few: importing MLflow takes seconds of one.

    Linux shares a processor by sessions before it looks at processes, and lets a session take its weight back.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.tracking", description="MLflow's side of the pipeline")
    commands = parser.add_subparsers(dest="command", required=True)
    ui = commands.add_parser("ui", help="serve MLflow's UI on loopback and print the address of the table of runs")
    ui.add_argument("--uri", help="the store, where it is not mlflow.db of the checkout")
    ui.add_argument("--experiment", default="lockstep")
    ui.add_argument("--port", type=int, help="5000, or a free one where that is taken")
    commands.add_parser("writer", help="used by the stages: write the messages of standard input to MLflow")
    options = parser.parse_args(arguments)
    if options.command == "writer":
        os.nice(5)
        _give_way(NICE)
        answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever MLflow prints must not look like an answer

        def answer(text: str | None) -> None:
            with contextlib.suppress(OSError):
                print(json.dumps(text), file=answers, flush=True)

        return write(sys.stdin, answer)
    try:
        return show(options.uri, options.experiment, options.port)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
