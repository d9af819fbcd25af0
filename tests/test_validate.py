"""The stage `validate`: what it writes, and that a failing check stops it in one line."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor

import envs
from envs.validation import CHECKS
from envs.vector import StepOutput
from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import validate
from pipeline.config import Config

ROOT = Path(__file__).resolve().parents[1]


def load(out: Path, *overrides: str) -> Config:
    quick = ("validate.num_envs=4", "validate.steps=40", "device=cpu")
    return dataclasses.replace(configuration.load([*quick, *overrides]), out=str(out))


@pytest.mark.parametrize("name", envs.names())
def test_verdicts_are_written(name: str, tmp_path: Path) -> None:
    validate.run(load(tmp_path / "a", f"env={name}"))
    written = (tmp_path / "a" / "validation.json").read_bytes()
    content = json.loads(written)
    assert content["environment"] == name
    assert content["passed"] is True
    assert len(content["env_spec_sha256"]) == 64
    assert [check["verdict"] for check in content["checks"]] == ["pass"] * len(CHECKS)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["validation.json"]
    validate.run(load(tmp_path / "b", f"env={name}"))
    assert (tmp_path / "b" / "validation.json").read_bytes() == written


def test_a_failing_check_stops_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(envs.NativeVectorEnv):
        """The reward of the last environment is never written."""

        def step(self, action: Tensor, out: StepOutput) -> None:
            before = out.reward[-1].clone()
            super().step(action, out)
            out.reward[-1] = before

    config = load(tmp_path)
    validate.run(config)
    monkeypatch.setattr(envs, "make", Broken)
    with pytest.raises(UserError) as error:
        validate.run(config)
    place = "buffers of cartpole: environment 3, step 1, reward"
    assert str(error.value) == f"{place}: wanted to be written; got still what the buffer held before"
    assert not (tmp_path / "validation.json").exists()  # nor the verdicts of an earlier, better day


def test_the_command_says_one_line_and_exits_with_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.validate", f"out={tmp_path}", "validate.steps=3"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "validate: validate.steps must be at least 10, to reach an end; got 3\n"
