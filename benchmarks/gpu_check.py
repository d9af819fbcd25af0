"""All that a GPU can tell, in one command of under four minutes: `make gpu-check OUT=build/gpu-check`.

Tests marked `gpu`, compute-sanitizer over the smallest training where the tool exists, then the benchmark, whose table
comes last. OUT holds gpu.json, and each step's words. It needs the checkout, a CUDA image's torch, CuPy, NumPy, pytest
and safetensors, and what `make gpu-wheels` puts into build/gpu-wheels where there is a network.

Exits with 2 where there is no GPU, with 1 where a step failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / "build" / "gpu-wheels"
SECONDS = 235.0  # in all
SMALLEST = """
import torch
from benchmarks.gpu import Setting, begin
torch.set_num_threads(1)
ppo = begin(Setting("cartpole", 33, 9), torch.device("cuda"), "ppo.num_minibatches=3", "ppo.update_epochs=1").ppo
print(ppo.iterate(), ppo.path.name)
"""


@dataclass(frozen=True)
class Step:
    """A command, and the seconds that it may take at most."""

    name: str
    command: tuple[str, ...]
    seconds: float


def steps(out: Path, sanitizer: str | None) -> list[Step]:
    """What is run, in order; the benchmark takes what time is left."""
    python = sys.executable
    found = [Step("tests", (python, "-m", "pytest", "-m", "gpu", "-rs", "--maxfail=9", *map(str, gpu_tests())), 100.0)]
    if sanitizer:
        checked = (sanitizer, "--tool", "memcheck", "--error-exitcode", "1", python, "-c", SMALLEST)
        found.append(Step("sanitizer", checked, 60.0))
    return [*found, Step("benchmark", (python, "-m", "benchmarks.gpu", "--out", str(out)), SECONDS)]


def gpu_tests() -> list[Path]:
    """The files that hold tests marked `gpu`: no other file is imported, since it may want what is not there."""
    return sorted(path for path in (ROOT / "tests").rglob("test_gpu*.py") if "mark.gpu" in path.read_text())


def run(step: Step, seconds: float, out: Path) -> tuple[int, str]:
    """The exit status (124: out of time) and the words of a step, which are kept in `out`."""
    path = os.pathsep.join(filter(None, (str(ROOT), str(WHEELS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}
    if step.name == "benchmark":
        step = Step(step.name, (*step.command, "--seconds", f"{max(10.0, seconds - 30.0):.0f}"), seconds)
    else:
        environment.setdefault("LOCKSTEP_OPTIMIZATION", "-O1")  # the host's builds: the same bits, built sooner
    with (out / f"{step.name}.txt").open("w+") as file:
        try:
            status = subprocess.run(
                step.command,
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
        file.seek(0)
        return status, file.read()


def check(todo: Sequence[Step], out: Path, total: float = SECONDS) -> int:
    """Runs the steps within so many seconds; how many failed."""
    begun, failed = time.monotonic(), 0
    for step in todo:
        left = total - (time.monotonic() - begun)
        status, words = run(step, min(step.seconds, left), out)
        failed += status != 0
        took = time.monotonic() - begun
        print(f"gpu-check: {step.name}: {'passed' if not status else f'failed ({status})'}, after {took:.0f} s")
        print("\n".join(words.splitlines()[-30:]), flush=True)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu-check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-check")
    out: Path = parser.parse_args(arguments).out.resolve()
    try:
        import torch

        found = torch.cuda.is_available()
    except ImportError:
        found = False
    if not found:
        print("gpu-check: wanted a CUDA device that torch can use; found none. Run it on a machine with one")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    sanitizer = shutil.which("compute-sanitizer")
    if not sanitizer:
        print("gpu-check: compute-sanitizer: not found, left out")
    return 1 if check(steps(out, sanitizer), out) else 0


if __name__ == "__main__":
    sys.exit(main())
