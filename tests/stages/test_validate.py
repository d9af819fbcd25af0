"""The stage `validate`: what it writes, and that a failing check stops it in one line."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from forked import python
from torch import Tensor

import envs
from envs.validation import CHECKS
from envs.vector import StepOutput
from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import validate
from pipeline.config import Config

ROOT = Path(__file__).resolve().parents[2]


def load(out: Path, *overrides: str) -> Config:
    quick = ("validate.num_envs=4", "validate.steps=40", "device=cpu")
    return dataclasses.replace(configuration.load([*quick, *overrides]), out=str(out))


# Not that one, of which a warning is due (tests/envs/test_validation.py).
@pytest.mark.parametrize("name", [name for name in envs.names() if name != "cartpole_masked"])
def test_verdicts_are_written(name: str, tmp_path: Path) -> None:
    validate.run(load(tmp_path / "a", f"env={name}"))
    written = (tmp_path / "a" / "validation.json").read_bytes()
    content = json.loads(written)
    assert content["environment"] == name
    assert content["passed"] is True
    assert len(content["env_spec_sha256"]) == 64
    assert [check["verdict"] for check in content["checks"]] == ["pass"] * len(CHECKS)
    assert content["warnings"] == 0
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["throughput.json", "validation.json"]
    validate.run(load(tmp_path / "b", f"env={name}"))
    assert (tmp_path / "b" / "validation.json").read_bytes() == written


def test_throughput_is_measured_apart(tmp_path: Path) -> None:
    validate.run(load(tmp_path))
    speed = json.loads((tmp_path / "throughput.json").read_text())
    assert speed["environments"] == 4
    assert speed["seconds"] >= 0.2
    assert speed["steps_per_second"] == speed["steps"] / speed["seconds"] > 0


class Idle(envs.NativeVectorEnv):
    """Both actions push to the left, which may be meant; what is no action stays none."""

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(torch.where(action == 1, 0, action), out)


def test_a_warning_is_written_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envs, "make", Idle)
    validate.run(load(tmp_path))
    content = json.loads((tmp_path / "validation.json").read_text())
    assert (content["passed"], content["warnings"]) == (True, 1)
    (warned,) = [check for check in content["checks"] if check["verdict"] == "warning"]
    assert warned["name"] == "timing"
    wanted, found = "actions 0 and 1 to differ", "the same play of 4 environments for 10 steps"
    place = {"element": "action", "environment": None, "step": None, "wanted": wanted, "found": found}
    assert warned["evidence"] == place
    printed = capsys.readouterr().out
    assert "21 passed, 1 warned" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_strict_makes_a_warning_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "make", Idle)
    with pytest.raises(UserError) as error:
        validate.run(load(tmp_path, "validate.strict=true"))
    found = "got the same play of 4 environments for 10 steps (a warning, and validate.strict=true)"
    assert str(error.value) == f"timing of cartpole: action: wanted actions 0 and 1 to differ; {found}"
    assert list(tmp_path.iterdir()) == []


def test_strict_lets_what_passes_pass(tmp_path: Path) -> None:
    validate.run(load(tmp_path, "validate.strict=true"))
    assert json.loads((tmp_path / "validation.json").read_text())["passed"] is True


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
    text = "wanted to be written; got still what the buffer held before (and 4 more)"
    assert str(error.value) == f"{place}: {text}"
    assert not (tmp_path / "validation.json").exists()  # nor the verdicts of an earlier, better day


def test_a_gymnasium_environment_is_validated(tmp_path: Path) -> None:
    overrides = ("env=gymnasium", "env.id=Acrobot-v1", "env.max_episode_steps=20", "env.workers=0")
    validate.run(load(tmp_path, *overrides))
    content = json.loads((tmp_path / "validation.json").read_text())
    assert (content["environment"], content["passed"], content["warnings"]) == ("Acrobot-v1", True, 1)
    assert [check["name"] for check in content["checks"]][:3] == ["returns", "spaces", "overwriting"]
    assert [check["name"] for check in content["checks"] if check["verdict"] == "warning"] == ["actions"]
    assert json.loads((tmp_path / "throughput.json").read_text())["steps_per_second"] > 0


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("PaysAnArray", "returns of {}: environment 0, step 1, reward: wanted one number; got an array of shape (1,)"),
        ("TakesNoSeed", "returns of {}: environment 0, step 0, reset: wanted no exception; got TypeError: "),
        ("RaisesInTheMidst", "exceptions of {}: step 3, step: wanted no exception; got ValueError: off the track ("),
        ("DeclaresOneTooMany", "actions of {}: environment 0, step 1, action: wanted 2 to be accepted, as declared;"),
    ],
)
def test_a_broken_class_is_named(kind: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "envs"))
    id = f"broken.hosted:{kind}"
    with pytest.raises(UserError) as error:
        validate.run(load(tmp_path, "env=gymnasium", f"env.id='{id}'", "env.max_episode_steps=20", "env.workers=0"))
    assert str(error.value).startswith(text.format(id))
    assert "\n" not in str(error.value)


def test_the_command_says_one_line_and_exits_with_2(tmp_path: Path) -> None:
    result = python(["-m", "pipeline.validate", f"out={tmp_path}", "validate.steps=3"], ROOT)
    assert result.returncode == 2
    assert result.stderr == "validate: validate.steps must be at least 10, to reach an end; got 3\n"
