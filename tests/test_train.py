"""The stage `train`: the same bytes however it ran and was stopped, what its files hold, and what it refuses."""

import csv
import dataclasses
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from training import NAMES, REPRODUCED, ROOT, SMALL, Pair, command, contents, faulty, plant_in_kernel, small

import envs
from kernels import mlp
from kernels.errors import UserError
from pipeline import checkpoint, fused, general, optimizer, policy, ppo, profile, provenance
from pipeline import config as configuration
from pipeline import mlp as networks
from pipeline import train as product

REQUIRED_CURVE = [
    "step", "episode_return_mean", "approx_kl", "clip_fraction", "value_loss", "policy_loss", "entropy",
    "explained_variance", "grad_norm", "learning_rate",
]  # fmt: skip
FILES = {*REPRODUCED, "timing.csv", "profile.json"}
PHASES = ["env_step", "transfer", "rollout_forward", "advantage", "minibatch_update", "logging", "other"]


@pytest.fixture(autouse=True)
def _provenance_elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training that nothing disturbed."""
    folder = tmp_path_factory.mktemp("trained") / "seed-1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder.parent)
        product.run(small(folder))
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------------------------------------------------------------
# The same bytes
# ---------------------------------------------------------------------------------------------------------------------


def check_threads(folder: Path, path: str, *overrides: str) -> None:
    found = []
    for number, threads in enumerate((1, 2, 7, 2)):
        out = folder / str(number)
        product.run(small(out, *overrides, f"device.threads={threads}"))
        found.append(contents(out))
        assert checkpoint.load(out).manifest["path"] == path
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_no_byte_of_the_general_path(name: str, tmp_path: Path) -> None:
    """Enough environments and samples that every kernel has several blocks to share out."""
    size = ("ppo.num_envs=300", "ppo.num_steps=4", "ppo.total_steps=2400", "policy.hidden=[96,96]")
    check_threads(tmp_path, "general", f"env={name}", *size, "device.fused=false")


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_no_byte_of_odd_shapes(name: str, tmp_path: Path) -> None:
    """Environments, samples and partitions that no tile, vector or thread count divides."""
    size = ("ppo.num_envs=7", "ppo.num_steps=33", "ppo.num_minibatches=3", "ppo.total_steps=693")
    check_threads(tmp_path, "fused", f"env={name}", *size)


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_threads_change_no_byte_of_many_blocks(name: str, tmp_path: Path) -> None:
    size = ("ppo.num_envs=300", "ppo.num_steps=16", "ppo.total_steps=14400", "policy.hidden=[64,64]")
    check_threads(tmp_path, "fused", f"env={name}", *size)


PATHS = [
    ((), "fused", "fused path on cpu"),
    (("device.fused=false",), "general", "general path (device.fused=false) on cpu"),
    (("policy.hidden=[8,8,8,8,8]",), "general", "general path (5 hidden layers (at most 3)) on cpu"),
    (("policy.hidden=[300,8]",), "general", "general path (hidden layers of [300, 8] (8 to 256 wide)) on cpu"),
    (("policy.hidden=[7]",), "general", "general path (hidden layers of [7] (8 to 256 wide)) on cpu"),
]


@pytest.mark.parametrize(("overrides", "path", "told"), PATHS, ids=[each[2] for each in PATHS])
def test_the_path_is_told(
    overrides: tuple[str, ...], path: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the log with the reason where it is not the fast one; the manifest names it."""
    product.run(small(tmp_path, *overrides))
    assert f"train: cartpole, seed 1, {told}, 192 steps\n" in capsys.readouterr().out
    manifest = checkpoint.load(tmp_path).manifest
    assert manifest["path"] == path
    assert manifest["config"]["fused"] == ("device.fused=false" not in overrides)


def test_the_paths_begin_alike_and_learn_in_bits_of_their_own(trained: Path, tmp_path: Path) -> None:
    product.run(small(tmp_path, "device.fused=false"))
    one, other = (checkpoint.load(folder).manifest for folder in (trained, tmp_path))
    assert one["initial_params_sha256"] == other["initial_params_sha256"]
    assert one["params_sha256"] != other["params_sha256"]


def test_another_seed_gives_other_bytes(trained: Path, tmp_path: Path) -> None:
    product.run(small(tmp_path, "seed=2"))
    one, two = contents(trained), contents(tmp_path)
    for name in REPRODUCED:
        assert one[name] != two[name], name
    manifests = [json.loads(each["checkpoint.json"]) for each in (one, two)]
    assert manifests[0]["initial_params_sha256"] != manifests[1]["initial_params_sha256"]
    seeds = [set(checkpoint.load(folder).tensors["env.episode_seed"].tolist()) for folder in (trained, tmp_path)]
    assert not seeds[0] & seeds[1]


def test_the_command_writes_the_same_and_overwrites_nothing(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = (*SMALL, "device.threads=2", f"out={out}")
    done = command("train", tmp_path, *line)
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(out) == contents(trained)
    before = contents(out, tuple(FILES))
    again = command("train", tmp_path, *line)
    assert again.returncode == 2
    assert again.stderr == (
        f"train: out: wanted a folder without results; {out} holds checkpoint.json already. Choose another "
        "out=<folder>, or remove that one first\n"
    )
    assert contents(out, tuple(FILES)) == before
    assert {path.name for path in out.iterdir()} == FILES


# ---------------------------------------------------------------------------------------------------------------------
# Stopped and started again
# ---------------------------------------------------------------------------------------------------------------------

# Six iterations write five unfinished trainings (flushes and renames 1 to 5), then curve, timing, profile, tensors and
# manifest (6 to 10).
INSTANTS = [
    ("iteration", 1), ("iteration", 4), ("iteration", 6), ("flush", 1), ("flush", 2), ("flush", 5), ("flush", 6),
    ("flush", 8), ("flush", 9), ("flush", 10), ("rename", 1), ("rename", 5), ("rename", 7), ("rename", 9),
    ("rename", 10), ("milliseconds", 100), ("milliseconds", 300),
]  # fmt: skip


def unfinished(out: Path) -> list[Path]:
    """The unfinished trainings in a folder, and what half writes of them have left."""
    return [*out.glob("partial-*"), *out.glob(".partial-*")]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each instant, as SIGKILL left it."""
    folder = tmp_path_factory.mktemp("killed")
    plan = [(point, count, str(folder / f"{point}-{count}")) for point, count in INSTANTS]
    plan += [(*plan[0][:2], plan[0][2]), ("flush", 3, plan[0][2])]  # the first one is killed three times
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    script = f"import training; training.kill_at({plan!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("point", "count"), INSTANTS)
def test_41_killed_and_started_again(
    point: str, count: int, killed: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checkpoint.load(trained).manifest["path"] == "fused"
    monkeypatch.setattr(product, "PARTIAL_SECONDS", -1.0)
    out = killed / f"{point}-{count}"
    wanted = contents(trained)
    for name in REPRODUCED:  # never half a file under its own name
        if (out / name).exists():
            assert (out / name).read_bytes() == wanted[name]
    if (out / checkpoint.MANIFEST).exists():
        assert (point, count) == ("rename", 10) or point == "milliseconds"
        with pytest.raises(UserError, match=r"holds checkpoint\.json already"):
            product.run(small(out))
    else:
        product.run(small(out))
        assert not unfinished(out)
    assert contents(out) == wanted
    assert [row["step"] for row in rows(out / "timing.csv")] == [row["step"] for row in rows(out / "curve.csv")]
    walls = [float(row["wall_s"]) for row in rows(out / "timing.csv")]
    assert walls == sorted(walls)


def interrupt(module: ModuleType, out: Path, after: int, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
    """Ctrl-C in the iteration behind the `after`-th."""
    iterate = ppo.PPO.iterate

    def stop(self: ppo.PPO, ahead: bool = False) -> dict[str, float]:
        if self.iteration == after:
            raise KeyboardInterrupt
        return iterate(self)

    with monkeypatch.context() as patch:
        patch.setattr(ppo.PPO, "iterate", stop)
        with pytest.raises(SystemExit) as stopped:
            module.run(small(out, *overrides))
    assert stopped.value.code == 130


def check_resume(
    module: ModuleType, out: Path, trained: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str
) -> None:
    interrupt(module, out, 3, monkeypatch, *overrides)
    assert not (out / checkpoint.MANIFEST).exists()
    module.run(small(out, *overrides))
    assert contents(out) == contents(trained)


def test_41_interrupted_and_started_again(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(product, "PARTIAL_SECONDS", -1.0)
    check_resume(product, tmp_path, trained, monkeypatch)
    said = capsys.readouterr()
    assert said.err.startswith("train: stopped by Ctrl-C at step 96; the same command with out=")
    assert said.err.count("\n") == 1
    assert "going on from step 96" in said.out


@pytest.mark.parametrize("override", ["device.fused=false", "ppo.optimizer=muon", "policy.shared=true"])
def test_41_likewise_on_other_paths(override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "PARTIAL_SECONDS", -1.0)
    product.run(small(tmp_path / "whole", override))
    check_resume(product, tmp_path / "stopped", tmp_path / "whole", monkeypatch, override)


_OFTEN = ("PARTIAL_SECONDS = 10.0", "PARTIAL_SECONDS = -1.0")


@pytest.mark.parametrize(
    "pair",
    [
        ("        ppo.load_state(tensors, iteration)\n", "        ppo.iteration = iteration\n"),
        ('        flat.parameters.copy_(tensors["parameters"])\n', ""),
        ('return Log(log["curve"], timing, log["seconds"]), tensors', "return Log(), tensors"),
        ('{"parameters": flat.parameters, **ppo.state()}\n    files', '{"parameters": flat.parameters}\n    files'),
    ],
    ids=["state", "parameters", "curve", "saved without state"],
)
def test_planted_41(pair: Pair, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError, UserError)):
        check_resume(faulty(product, _OFTEN, pair), tmp_path, trained, monkeypatch)


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unfinished training, stopped after three of its six iterations."""
    monkeypatch.setattr(product, "PARTIAL_SECONDS", -1.0)
    interrupt(product, tmp_path / "stopped", 3, monkeypatch)
    (path,) = unfinished(tmp_path / "stopped")
    return path


def refused(module: ModuleType, config: configuration.Config) -> str:
    """The line that a training is refused with; it must change nothing in its folder."""
    out = Path(config.out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError) as error:
        module.run(config)
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "override", ["seed=2", "ppo.learning_rate=0.1", "env.max_episode_steps=21", "ppo.total_steps=384"]
)
def test_another_configuration_begins_anew_and_leaves_the_unfinished_training(
    partial: Path, tmp_path: Path, override: str
) -> None:
    check_anew(product, partial, tmp_path / "alone", override)


def check_anew(module: ModuleType, partial: Path, alone: Path, override: str) -> None:
    before = partial.read_bytes()
    module.run(small(partial.parent, override))
    assert partial.read_bytes() == before
    product.run(small(alone, override))
    assert contents(partial.parent) == contents(alone)


def check_damaged(module: ModuleType, partial: Path) -> None:
    whole = partial.read_bytes()
    draw = random.Random(1)
    places = [0, 7, 8, 9, len(whole) // 2, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(30))]
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(7)]) + whole[at + 1 :] for at in places]
    for damaged in [*flipped, whole[:-1], whole[:100], b"", b"{}", b"\0" * 64]:
        partial.write_bytes(damaged)
        text = refused(module, small(partial.parent))
        assert text.startswith(f"out: wanted an unfinished training in {partial}; it is damaged (")
        assert text.endswith("Remove it")


def test_a_damaged_unfinished_training_is_refused(partial: Path) -> None:
    check_damaged(product, partial)


def test_planted_damage_unseen(partial: Path) -> None:
    module = faulty(product, ("if (found := _partial_sha256(text, tensors)) != wanted:", "if not (found := wanted):"))
    with pytest.raises((AssertionError, KeyError, ValueError, RuntimeError, pytest.fail.Exception)):
        check_damaged(module, partial)


def test_planted_configuration_unseen(partial: Path, tmp_path: Path) -> None:
    name = 'f"partial-{configuration.sha256_of(identity)[:16]}.safetensors"'
    module = faulty(product, (f"return {name}", f"return {partial.name!r}"))
    with pytest.raises((AssertionError, FileNotFoundError)):
        check_anew(module, partial, tmp_path / "alone", "ppo.learning_rate=0.1")


def test_30_not_a_number_leaves_no_checkpoint(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment 1 answers with NaN in the fourth iteration."""
    monkeypatch.setattr(product, "PARTIAL_SECONDS", -1.0)
    now = "iteration[0] == 3 && t == 3 && n == 1"
    with monkeypatch.context() as patch:
        wrong = f"reward[i] = {now} ? as_float(0x7fc00000u) : r[agent];"
        plant_in_kernel(patch, tmp_path.parent, mlp.ROLLOUT["one"], "reward[i] = r[agent];", wrong)
        with pytest.raises(UserError) as error:
            product.run(small(tmp_path))
    assert str(error.value) == (
        "iteration 3: every value must be finite; found NaN or infinity in rewards of environment 1 at step 3 of the "
        "rollout. Check the environment's numbers, or train with a smaller ppo.learning_rate"
    )
    assert list(tmp_path.iterdir()) == unfinished(tmp_path)
    product.run(small(tmp_path))  # mended, it goes on from the last good iteration
    assert contents(tmp_path) == contents(trained)


# ---------------------------------------------------------------------------------------------------------------------
# What the files hold
# ---------------------------------------------------------------------------------------------------------------------


def test_files(trained: Path) -> None:
    assert {path.name for path in trained.iterdir()} == FILES
    for name in REPRODUCED:
        content = (trained / name).read_bytes()
        for secret in (str(trained), str(ROOT), socket.gethostname()):
            assert secret.encode() not in content, (name, secret)


def test_manifest(trained: Path) -> None:
    manifest = json.loads((trained / "checkpoint.json").read_text())
    config, spec = small(trained), envs.spec("cartpole", 20)
    assert (trained / "checkpoint.json").read_text() == json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    assert manifest["config"] == configuration.decisive(config)
    assert manifest["config_sha256"] == configuration.sha256(config)
    assert (manifest["env_spec"], manifest["env_spec_sha256"]) == (spec.fields(), spec.sha256())
    assert (manifest["step"], manifest["policy_version"]) == (192, 6)
    assert (manifest["path"], manifest["parent"], manifest["format"]) == ("fused", None, 1)
    tensors = checkpoint.load(trained).tensors
    started = int(tensors["env.episode_index"].sum()) + 4
    assert manifest["seeds"] == {"run_seed": 1, "split": "train", "environments": 4, "episodes": started}
    ended = sum(float(row["episodes"]) for row in rows(trained / "curve.csv"))
    assert started == ended + 4
    assert set(tensors) == {
        "parameters", "observation", "optimizer.first_moment", "optimizer.second_moment", "optimizer.powers",
        "env.state", "env.episode_seed", "env.episode_index", "env.episode_length", "env.episode_return",
    }  # fmt: skip


@pytest.mark.parametrize("path", ["fused", "general"])
def test_the_checkpoint_is_what_training_made(path: str, tmp_path: Path) -> None:
    """The loop written out once more, without the stage."""
    trained = tmp_path
    config = small(trained, f"device.fused={str(path == 'fused').lower()}")
    product.run(config)
    spec = envs.spec("cartpole", 20)
    actor_critic, flat = policy.build(spec, config.policy, 1, torch.device("cpu"))
    assert checkpoint.parameters_sha256(flat.parameters) == checkpoint.load(trained).manifest["initial_params_sha256"]
    adam = optimizer.Adam(flat, config.ppo.max_grad_norm, steps=4)
    env = envs.make(spec, 4, 1, torch.device("cpu"))
    runner: ppo.Path = general.General(actor_critic, flat, env, config.ppo, 1)
    if path == "fused":
        runner = fused.Fused(networks.shapes(actor_critic, flat, spec, config.policy), flat, env, config.ppo, 1)
    training = ppo.PPO(config.ppo, env, runner, adam, 1, profile.Clock(torch.device("cpu")))
    curve = rows(trained / "curve.csv")
    assert list(curve[0])[: len(REQUIRED_CURVE)] == REQUIRED_CURVE
    assert len(curve) == 6
    for number, row in enumerate(curve, start=1):
        metrics = {"step": 32 * number, **training.iterate()}
        assert row.keys() == metrics.keys()
        for name, value in metrics.items():
            assert row[name] == ("" if math.isnan(value) else repr(value)), name
    tensors = checkpoint.load(trained).tensors
    for name, tensor in {"parameters": flat.parameters, **training.state()}.items():
        assert torch.equal(tensors[name], tensor), name


def test_what_was_not_measured_is_empty(tmp_path: Path) -> None:
    product.run(small(tmp_path, "env=pendulum", "env.max_episode_steps=12"))
    curve = rows(tmp_path / "curve.csv")
    assert [row["episodes"] for row in curve] == ["0.0", "4.0", "4.0"] * 2
    assert [row["episode_return_mean"] == "" for row in curve] == [True, False, False] * 2


def test_times(trained: Path) -> None:
    timing = rows(trained / "timing.csv")
    assert list(timing[0]) == ["step", "wall_s"]
    assert [int(row["step"]) for row in timing] == [32, 64, 96, 128, 160, 192]
    walls = [float(row["wall_s"]) for row in timing]
    seconds = json.loads((trained / "profile.json").read_text())
    assert set(seconds) == {*PHASES, "wall", "steps_per_second"}
    assert math.fsum(seconds[name] for name in PHASES) == pytest.approx(seconds["wall"], abs=1e-9)
    assert all(seconds[name] >= 0 for name in PHASES)
    assert 0 < walls[0] <= walls[-1] <= seconds["wall"]
    assert seconds["steps_per_second"] == pytest.approx(192 / seconds["wall"])


def test_provenance_lies_outside(tmp_path: Path) -> None:
    product.run(small(tmp_path / "out"))
    written = provenance.CHECKOUT / "build" / "provenance" / "train-cartpole-seed-1.json"
    assert {"started", "finished", "host", "git_commit"} <= json.loads(written.read_text()).keys()
    assert "/build/provenance/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_hash_is_of_what_decides(tmp_path: Path) -> None:
    one = small(tmp_path)

    def section(part: str, **changes: Any) -> configuration.Config:
        return dataclasses.replace(one, **{part: dataclasses.replace(getattr(one, part), **changes)})

    same = [
        small(tmp_path / "elsewhere"), section("device", threads=3), section("tracking", enabled=True),
        section("evaluate", episodes=7), section("validate", steps=77), dataclasses.replace(one, seeds=(4, 5)),
        dataclasses.replace(one, checkpoint="somewhere"),
    ]  # fmt: skip
    assert {configuration.sha256(config) for config in same} == {configuration.sha256(one)}
    numbers = {"num_minibatches": 4, "anneal_lr": False, "norm_adv": False, "gamma": 0.5, "gae_lambda": 0.5}
    numbers["optimizer"] = "muon"
    other = [section("ppo", **{key: numbers.get(key, 2 * value)}) for key, value in vars(one.ppo).items() if value]
    other += [section("policy", hidden=(8, 8)), section("policy", activation="relu")]
    other += [section("policy", log_std_init=1.0), section("policy", shared=True), section("device", fused=False)]
    other += [section("env", max_episode_steps=9), section("env", name="pendulum"), dataclasses.replace(one, seed=9)]
    hashes = {configuration.sha256(config) for config in other}
    assert len(hashes) == len(other)
    assert configuration.sha256(one) not in hashes


def test_an_out_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"^out: wanted a folder to write to; .*/file/out: Not a directory\. Give out"):
        product.run(small(tmp_path / "file" / "out"))
    assert (tmp_path / "file").read_text() == "mine"
    shutil.rmtree(tmp_path)
