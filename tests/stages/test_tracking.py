"""Tracking: what reaches MLflow, what must not, and that training neither waits for it nor fails with it.

Most tests run the writer in this process, on copies of one database: MLflow's import and a new database take seconds.
"""

import io
import json
import math
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import python

from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import provenance, tracking
from pipeline.sweep import Sweep

ROOT = Path(__file__).resolve().parents[2]
FORK = multiprocessing.get_context("fork")
METRICS = {
    "env": "cartpole", "run_seed": 1, "split": "held_out", "episodes": 100, "deterministic": True,
    "checkpoint_sha256": "a" * 64, "step": 4096, "return_mean": 498.5, "improvement_mean": 470.0,
}  # fmt: skip


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ.update(tracking.QUIET)  # MLflow reads it when it is imported; the writer process gets it so too
    path = tmp_path_factory.mktemp("tracking") / "empty.db"
    tracking._create_database(f"sqlite:///{path}")
    return path


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default store, in a folder that stands for the user's checkout."""
    for name in ("MLFLOW_TRACKING_URI", tracking.SWEEP, tracking.SWEEP_JOB):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path / "mlflow.db"


class InProcessWriter:
    """Collects what a stage sends and, when it is closed, gives it to the writer's loop in this process."""

    def __init__(self, tracking_config: Any, wait: bool = False) -> None:
        self.lines: list[str] = []
        self.answers: list[str | None] = []
        self.send("store", uri=tracking.store_uri(tracking_config.uri), experiment="lockstep", quiet=wait)

    def send(self, kind: str, **message: Any) -> None:
        self.lines.append(json.dumps({"kind": kind, **message}) + "\n")

    def answer(self) -> str | None:
        self.close()  # for a sweep: what was sent so far makes the parent's row, and the end of the pipe ends it
        return self.answers[-1]

    def close(self) -> None:
        self.code = tracking.write(io.StringIO("".join(self.lines)), self.answers.append)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, database: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, database)
    monkeypatch.setattr(tracking, "_Writer", InProcessWriter)


@pytest.fixture
def config() -> configuration.Config:
    return configuration.load(["device=cpu", "ppo.learning_rate=0.001", "out=unused"])


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(database)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def table(database: Path, name: str, run: str | None = None) -> dict[str, Any]:
    where = f"WHERE run_uuid = '{run}'" if run else ""
    return dict(rows(database, f"SELECT key, value FROM {name} {where}"))


def runs(database: Path) -> list[tuple[str, str, str]]:
    """(id, name, status), oldest first."""
    return rows(database, "SELECT run_uuid, name, status FROM runs ORDER BY start_time, rowid")


def train(config: configuration.Config, checkpoint: str = "a" * 64, iterations: int = 3) -> None:
    run = tracking.start(config, {"git_commit": "c" * 40, "git_dirty": "false"})
    for i in range(1, iterations + 1):
        run.curve(1024 * i, {"episode_return_mean": 20.0 * i, "approx_kl": 0.01, "episodes": 5, "wall_s": 0.5 * i})
    run.finish(tags={"checkpoint_sha256": checkpoint}, metrics={"env_step": 1.0, "wall": 2.0})


# ---------------------------------------------------------------------------------------------------------------------
# A row
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_process")
def test_a_row_says_what_was_trained_and_how_it_went(config: configuration.Config, database: Path) -> None:
    train(config)
    assert [(name, status) for _, name, status in runs(database)] == [("cartpole seed=1", "FINISHED")]
    parameters, tags = table(database, "params"), table(database, "tags")
    assert parameters["ppo.learning_rate"] == "0.001"
    assert parameters["policy.hidden"] == "64, 64"
    assert not [key for key in parameters if key.startswith(("tracking", "out", "evaluate"))]
    assert tags["config_sha256"] == configuration.sha256(config)
    wanted = {"checkpoint_sha256": "a" * 64, "run_seed": "1", "git_dirty": "false", "splits": "train", "stage": "train"}
    assert wanted.items() <= tags.items()
    assert "restored" not in tags
    curve = rows(database, "SELECT step, value FROM metrics WHERE key = 'rollout/episode_return_mean' ORDER BY step")
    assert curve == [(1024, 20.0), (2048, 40.0), (3072, 60.0)]
    latest = table(database, "latest_metrics")
    assert (latest["time/env_step_s"], latest["time/wall_s"], latest["update/nonfinite"]) == (1.0, 2.0, 0.0)
    assert {name.split("/")[0] for name in latest} == {"rollout", "update", "time"}
    assert next(database.parent.glob("mlruns/*/artifacts/config.json")).is_file()


@pytest.mark.usefixtures("in_process")
def test_nan_and_infinity_are_left_out_and_counted(config: configuration.Config, database: Path) -> None:
    run = tracking.start(config, {})
    run.curve(
        1, {"approx_kl": math.nan, "value_loss": math.inf, "entropy": -math.inf, "policy_loss": 0.5, "episodes": 1}
    )
    run.curve(2, {"episode_return_mean": math.nan, "episodes": 0})  # no episode ended: nothing is wrong
    run.finish(tags={}, metrics={"other": math.nan})
    values = table(database, "metrics")
    assert values["update/nonfinite"] == 4.0
    assert values["loss/policy_loss"] == 0.5
    assert not {
        "update/approx_kl",
        "loss/value_loss",
        "loss/entropy",
        "time/other_s",
        "rollout/episode_return_mean",
    } & set(values)
    assert not rows(database, "SELECT * FROM metrics WHERE is_nan OR abs(value) > 1e300")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_a_block_that_raises_ends_its_row(
    config: configuration.Config, database: Path, error: type[BaseException], status: str
) -> None:
    with pytest.raises(error), tracking.start(config, {}):
        raise error
    assert runs(database)[0][2] == status


@pytest.mark.usefixtures("in_process")
def test_a_training_that_was_killed_leaves_its_curve_in_a_failed_row(
    config: configuration.Config, database: Path
) -> None:
    run = tracking.start(config, {})
    run.curve(1024, {"entropy": 0.5})
    run._writer.close()  # the pipe ends without a word
    assert runs(database)[0][2] == "FAILED"
    assert table(database, "metrics") == {"loss/entropy": 0.5}


@pytest.mark.usefixtures("in_process")
def test_a_long_curve_is_written_whole_in_batches(config: configuration.Config, database: Path) -> None:
    train(config, iterations=1200)
    assert rows(database, "SELECT count(*) FROM metrics WHERE key = 'update/approx_kl'") == [(1200,)]


def test_nothing_is_written_when_tracking_is_off(database: Path) -> None:
    off = configuration.load(["device=cpu", "tracking.enabled=false", "out=unused"])
    train(off)
    tracking.Evaluation(off).attach("a" * 64, 1, METRICS, "held_out")
    assert not list(database.parent.iterdir())


# ---------------------------------------------------------------------------------------------------------------------
# Evaluations find their row
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_process")
def test_an_evaluation_goes_to_the_newest_row_of_checkpoint_and_seed(
    config: configuration.Config, database: Path
) -> None:
    other_seed = configuration.load(["device=cpu", "seed=2", "out=unused"])
    for trained, checkpoint in ((config, "a"), (config, "a"), (config, "b"), (other_seed, "a")):
        train(trained, checkpoint * 64)
        time.sleep(0.002)  # rows are ordered by milliseconds
    tracking.Evaluation(config).attach("a" * 64, 1, METRICS, "held_out")
    attached = {run for (run,) in rows(database, "SELECT run_uuid FROM metrics WHERE key LIKE 'eval/%'")}
    assert attached == {runs(database)[1][0]}
    values = table(database, "latest_metrics", runs(database)[1][0])
    assert {name: value for name, value in values.items() if name.startswith("eval/")} == {
        "eval/held_out_return_mean": 498.5,
        "eval/held_out_improvement_mean": 470.0,
        "eval/held_out_episodes": 100.0,
    }
    assert table(database, "tags", runs(database)[1][0])["splits"] == "train, held_out"
    assert runs(database)[1][2] == "FINISHED"


@pytest.mark.usefixtures("in_process")
def test_a_checkpoint_without_a_row_gets_one_that_says_so(config: configuration.Config, database: Path) -> None:
    tracking.Evaluation(config).attach("d" * 64, 5, METRICS, "held_out", {"ppo": {"gamma": 0.9}})
    ((run, _, status),) = runs(database)
    tags = table(database, "tags")
    assert (status, tags["restored"], tags["checkpoint_sha256"], tags["run_seed"]) == (
        "FINISHED",
        "true",
        "d" * 64,
        "5",
    )
    assert table(database, "params") == {"ppo.gamma": "0.9"}
    assert table(database, "metrics", run)["eval/held_out_return_mean"] == 498.5
    tracking.Evaluation(config).attach("d" * 64, 5, METRICS, "held_out")  # the second time it is there
    assert len(runs(database)) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Where rows go
# ---------------------------------------------------------------------------------------------------------------------


def test_the_default_is_the_users_own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracking.store_uri(None) == f"sqlite:///{tmp_path}/mlflow.db"  # DVC_ROOT: this may be a temporary clone
    assert tracking.store_uri("sqlite:///mine.db") == f"sqlite:///{tmp_path}/mine.db"
    monkeypatch.delenv("DVC_ROOT")
    assert tracking.store_uri(None) == f"sqlite:///{ROOT}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert tracking.store_uri(None) == "http://tracking:5000"


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///tmp/mlruns", "wanted sqlite:///<path>, http"),
        ("mlruns", "got 'mlruns'"),
        ("http:/host", "got 'http:/host'"),
        ("sqlite:///missing/mlflow.db", "wanted a writable folder"),
        ("sqlite:///text.db", "wanted an SQLite file"),
        ("sqlite:///folder", "wanted a writable SQLite file"),
    ],
)
def test_a_wrong_address_is_refused_in_one_line(uri: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough for its header")
    (tmp_path / "folder").mkdir()
    wrong = configuration.load(["device=cpu", f"tracking.uri='{uri}'", "out=unused"])
    with pytest.raises(UserError, match=r"tracking\.uri: ") as refused:
        tracking.start(wrong, {})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_server_that_does_not_answer_is_refused_in_one_line() -> None:
    """With the real writer process, which has to say so through its pipe."""
    wrong = configuration.load(["device=cpu", "tracking.uri=http://127.0.0.1:9", "out=unused"])
    with pytest.raises(
        UserError, match=r"tracking\.uri: wanted a store that answers; got 'http://127\.0\.0\.1:9'"
    ) as refused:
        tracking.start(wrong, {})
    assert "\n" not in str(refused.value)


def test_without_mlflow_one_line_says_what_to_do(config: configuration.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'mlflow.*tracking\.enabled=false"):
        tracking.start(config, {})


@pytest.mark.usefixtures("in_process")
def test_a_store_that_fails_midway_costs_one_line(
    config: configuration.Config, database: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking.time, "sleep", lambda seconds: None)  # between attempts
    written = tracking._Store.handle

    def handle(store: Any, pending: list[dict[str, Any]]) -> int:
        if pending[0]["kind"] == "metrics":
            connection = sqlite3.connect(database)
            connection.execute("DROP TABLE IF EXISTS latest_metrics")
            connection.close()
        return written(store, pending)

    monkeypatch.setattr(tracking._Store, "handle", handle)
    train(config)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"tracking: sqlite:///{database} failed: ")


# ---------------------------------------------------------------------------------------------------------------------
# Many processes
# ---------------------------------------------------------------------------------------------------------------------


def in_parallel(count: int, work: Callable[[int], None]) -> list[int | None]:
    """Exit codes of `count` forked processes that begin at one moment, MLflow imported before, so that they collide."""
    import mlflow.store.tracking.sqlalchemy_store
    import mlflow.tracking  # noqa: F401

    begin = time.time() + 0.3

    def child(index: int) -> None:
        time.sleep(max(0.0, begin - time.time()))
        work(index)

    processes = [FORK.Process(target=child, args=(index,)) for index in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    return [process.exitcode for process in processes]


def row(database: Path, name: str, metrics: int) -> None:
    messages: list[dict[str, Any]] = [
        {"kind": "store", "uri": f"sqlite:///{database}", "experiment": "lockstep", "quiet": False},
        {"kind": "run", "name": name, "time": 1, "tags": {"stage": "train"}, "parameters": {"a": "1"}},
    ]
    messages += [{"kind": "metrics", "step": i, "time": i, "values": {"loss/entropy": 1.0}} for i in range(metrics)]
    messages += [{"kind": "finish", "tags": {"checkpoint_sha256": name}, "status": "FINISHED"}]
    code = tracking.write(io.StringIO("".join(json.dumps(message) + "\n" for message in messages)), lambda text: None)
    sys.exit(code)


def test_twelve_processes_at_once_create_the_database_and_lose_nothing(database: Path) -> None:
    assert in_parallel(12, lambda index: row(database, f"run {index:02}", 300)) == [0] * 12
    assert sorted((name, status) for _, name, status in runs(database)) == [
        (f"run {index:02}", "FINISHED") for index in range(12)
    ]
    assert rows(database, "SELECT count(*) FROM metrics") == [(12 * 300,)]
    assert rows(database, "SELECT count(*) FROM experiments WHERE name = 'lockstep'") == [(1,)]
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]


# ---------------------------------------------------------------------------------------------------------------------
# Sweeps
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_process")
def test_the_jobs_of_a_sweep_are_children_of_one_row(
    config: configuration.Config, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The callback as Hydra calls it, on a copy in the jobs as a launcher with processes of its own makes them."""
    import pickle

    hydra = SimpleNamespace(overrides=SimpleNamespace(task=["seed=1,2", "ppo.total_steps=8192"]))
    callback = Sweep()
    assert not tracking.in_sweep()
    callback.on_multirun_start(SimpleNamespace(tracking=config.tracking, hydra=hydra))
    assert tracking.in_sweep()
    in_job = pickle.loads(pickle.dumps(callback))
    for seed, value in ((1, 30.0), (2, 40.0)):
        hydra.overrides.task = [f"seed={seed}", "ppo.total_steps=8192"]
        in_job.on_job_start(SimpleNamespace(hydra=hydra))
        run = tracking.start(configuration.load(["device=cpu", f"seed={seed}", "out=unused"]), {})
        run.curve(1024, {"entropy": 0.5})
        run.evaluation({**METRICS, "return_mean": value}, "selection")
        run.finish(tags={}, metrics={})
    parent = os.environ[tracking.SWEEP]
    # The parent's writer lives as long as the sweep; here it is played again, now with its end.
    monkeypatch.setattr(
        tracking._Store, "_run", lambda store, **_: setattr(store, "run_id", parent) or setattr(store, "_sweep", True)
    )
    callback.on_multirun_end(SimpleNamespace())
    assert not tracking.in_sweep()
    parents = rows(database, "SELECT run_uuid, value FROM tags WHERE key = 'mlflow.parentRunId'")
    assert [value for _, value in parents] == [parent] * 2
    assert [name for _, name, _ in runs(database)] == ["sweep seed=1,2 total_steps=8192", "seed=1", "seed=2"]
    summary = table(database, "latest_metrics", parent)
    assert (summary["sweep/jobs"], summary["sweep/finished"], summary["sweep/best_selection_return_mean"]) == (
        2,
        2,
        40.0,
    )
    assert table(database, "tags", parent)["best_job"] == "seed=2"
    child = table(database, "latest_metrics", parents[0][0])
    assert child["eval/selection_return_mean"] in (30.0, 40.0)
    assert table(database, "tags", parents[0][0])["splits"] == "train, selection"


# ---------------------------------------------------------------------------------------------------------------------
# Provenance
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., None]:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    for name in ("dvc.lock", "source.py"):
        (tmp_path / name).write_text("one")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return git


def test_the_dirty_flag_looks_past_what_the_pipeline_writes(checkout: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "dvc.lock").write_text("two")
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "new.json").write_text("{}")
    clean = provenance.git_state(tmp_path)
    assert (len(clean["git_commit"]), clean["git_dirty"]) == (40, "false")
    (tmp_path / "source.py").write_text("two")
    assert provenance.git_state(tmp_path)["git_dirty"] == "true"


def test_without_a_git_repository_the_facts_are_unknown(tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) == {"git_commit": "unknown", "git_dirty": "unknown"}


def test_the_facts_are_flat_text() -> None:
    facts = provenance.collect("cpu")
    assert {"git_commit", "git_dirty", "torch", "compiler", "processor", "device", "host", "started"} <= set(facts)
    assert all(isinstance(value, str) and value for value in facts.values())


# ---------------------------------------------------------------------------------------------------------------------
# The UI
# ---------------------------------------------------------------------------------------------------------------------


def test_the_ui_says_when_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert tracking.main(["ui"]) == 2
    assert (
        capsys.readouterr().err == f"ui: wanted {database}; there is no such database yet. Train first: `make repro`\n"
    )


# ---------------------------------------------------------------------------------------------------------------------
# The whole road
# ---------------------------------------------------------------------------------------------------------------------


def test_a_sweep_on_two_processes(tmp_path: Path, database: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, database)
    command = ["-m", "pipeline.train", "-m", "seed=1,2", "ppo.total_steps=2048", "ppo.num_envs=8"]
    command += ["ppo.num_steps=128", "device=cpu", "evaluate.episodes=4", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    command += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    done = python(command, ROOT)
    assert done.returncode == 0, done.stderr
    assert "tracking:" not in done.stderr
    parent, *children = runs(database)
    assert {status for _, _, status in (parent, *children)} == {"FINISHED"}
    assert sorted(name for _, name, _ in children) == ["seed=1", "seed=2"]
    for child, _, _ in children:
        assert table(database, "tags", child)["mlflow.parentRunId"] == parent[0]
        values = table(database, "latest_metrics", child)
        assert {"rollout/episode_return_mean", "eval/selection_return_mean", "time/env_step_s"} <= set(values)
    assert table(database, "latest_metrics", parent[0])["sweep/finished"] == 2
