"""MuJoCo's tasks through the Gymnasium adapter: sound to the validator, and trained on for some iterations."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("mujoco")

import envs
from envs.validation import Plan
from kernels import compiler
from pipeline import checkpoint, provenance, train
from pipeline import validate as stage
from tests.training import small

CPU = torch.device("cpu")
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it is given no number


@pytest.mark.parametrize("id", TASKS)
def test_the_validator_finds_nothing(id: str) -> None:
    plan = Plan(envs.spec("gymnasium", 15, id=id, workers=0), 4, 20, 1)
    found = list(stage.check(lambda spec, *rest: envs.make(spec, *rest, CPU), plan))
    assert [check for check in found if check.verdict != "pass"] == []
    assert len(found) == 25


def test_a_task_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "collect", lambda device: {})
    monkeypatch.setattr(provenance, "write", lambda name, facts: None)
    torch.set_num_threads(1)
    compiler.set_threads(1)
    overrides = ("env=gymnasium", "env.id=HalfCheetah-v5", "env.workers=0", "env.normalize_observation=true")
    train.run(small(tmp_path / "run", *overrides, "env.normalize_reward=true"))
    manifest = checkpoint.load(tmp_path / "run").manifest
    assert (manifest["path"], manifest["step"], manifest["policy_version"]) == ("hosted", 192, 6)
    assert set(manifest["env_spec"]["versions"]) == {"gymnasium"}
