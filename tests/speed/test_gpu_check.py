"""`make gpu-check` without a GPU: it says so; and its benchmark's code, on the CPU with tiny sizes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu, gpu_check
from benchmarks.gpu import Setting
from benchmarks.gpu_check import Step

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
TINY = Setting("cartpole", 8, 9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_without_a_gpu_it_says_so() -> None:
    line = ["make", "-s", "gpu-check", f"PYTHON={sys.executable}", "WHEELS="]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    wanted = "gpu-check: wanted a CUDA device that torch can use; found none. Run it on a machine with one\n"
    assert done.stdout == wanted


def test_the_steps(tmp_path: Path) -> None:
    found = gpu_check.steps(tmp_path, "compute-sanitizer")
    assert [step.name for step in found] == ["tests", "sanitizer", "benchmark"]
    assert [step.name for step in gpu_check.steps(tmp_path, None)] == ["tests", "benchmark"]
    files = {path.name for path in gpu_check.gpu_tests()}
    assert files == {"test_gpu.py", "test_gpu_training.py"}
    compile(gpu_check.SMALLEST, "smallest", "exec")


def test_a_step_that_fails_or_never_ends_costs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    todo = [
        Step("broken", (python, "-c", "print('why'); raise SystemExit(3)"), 30.0),
        Step("endless", ("sleep", "60"), 0.2),
        Step("sound", (python, "-c", "print('all is well')"), 30.0),
    ]
    assert gpu_check.check(todo, tmp_path) == 2
    text = capsys.readouterr().out
    for words in ("broken: failed (3)", "why", "endless: failed (124)", "sound: passed", "all is well"):
        assert words in text
    assert (tmp_path / "broken.txt").read_text() == "why\n"


def test_a_row() -> None:
    row = gpu.measure(TINY, CPU, 0.05)
    json.dumps(row)
    assert row["path"].startswith("fused")
    assert row["steps_per_second"] == pytest.approx(8 * gpu.STEPS / row["iteration_ms"] * 1e3)
    assert sum(row["phases_ms"].values()) <= 1.05 * row["iteration_ms"]
    assert 0 < row["fma_share"] < 1
    assert row["memory_share"] > 0
    assert gpu.table([row]).row_count == 1


def test_the_bytes_by_hand() -> None:
    """CartPole, N = 8, T = 64: 8 * 64 samples of 4 floats seen and 4 more at an end, and thirteen numbers beside."""
    training = gpu.begin(TINY, CPU, "ppo.update_epochs=2", "ppo.num_minibatches=4")
    samples, floats = 8 * 64, 4
    written = 4 * (samples * (4 + 4 + 11) + 8 * (4 + 1)) + 2 * samples
    epoch = 4 * samples * (4 + 4)
    parameters = floats * len(training.flat.parameters)
    assert gpu.least_bytes(training, training.ppo.config) == 2 * written + 2 * epoch + 6 * 8 * parameters


def test_rows_that_fail_or_come_too_late_are_named() -> None:
    def row(setting: Setting, device: torch.device, seconds: float) -> dict[str, object]:
        if setting.env == "breakout":
            raise RuntimeError("no\nsuch thing")
        return {"env": setting.env}

    settings = [Setting("breakout", 8, 8), TINY]
    rows, left_out = gpu.measure_all(settings, CPU, 10.0, row)
    assert rows == [{"env": "cartpole"}]
    assert left_out == ["breakout, 8 environments, hidden 8: RuntimeError: no such thing"]
    assert gpu.measure_all(settings, CPU, -1.0, row)[1][1] == "cartpole, 8 environments, hidden 9: no time left"


def test_the_whole_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "SETTINGS", [TINY])
    gpu.main(["--out", str(tmp_path), "--seconds", "0.4"])
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["env"] for row in content["rows"]] == ["cartpole"]
    assert capsys.readouterr().out.splitlines()[-2].split("│")[1].strip() == "cartpole"
