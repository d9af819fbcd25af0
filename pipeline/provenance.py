"""Where a result came from: commit, versions, machine, times. For MLflow and build/provenance/, never artifacts/."""

import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from kernels import compiler
from kernels.errors import UserError

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch", "numpy", "scipy", "gymnasium", "mujoco", "envpool", "hydra-core", "dvc", "mlflow", "cupy-cuda12x",
    "cupy-cuda13x", "safetensors",
)  # fmt: skip
# Written by the pipeline itself, so that a change there does not say that the sources differ from the commit.
OUTPUTS = ("dvc.lock", "artifacts")
UNKNOWN = "unknown"


def collect(device: str) -> dict[str, str]:
    """The facts, as flat text; what cannot be found out is `unknown`. `device` is torch's name of it: cpu, cuda:0."""
    return {
        **git_state(CHECKOUT),
        **_versions(),
        "dvc_lock_sha256": _sha256(CHECKOUT / "dvc.lock"),
        **_experiment(),
        "python": platform.python_version(),
        "compiler": _compiler(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "device": device,
        "device_name": _device_name(device),
        "system": platform.platform(),
        "host": socket.gethostname(),
        "started": _now(),
    }


def write(name: str, facts: Mapping[str, str]) -> None:
    """Write `facts` and the time of writing to build/provenance/<name>.json."""
    path = CHECKOUT / "build" / "provenance" / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**facts, "finished": _now()}, indent=2, sort_keys=True) + "\n")
    except OSError as error:  # a checkout that only others may write to is no reason to end a training
        print(f"provenance: not kept in {path}: {error.strerror}", file=sys.stderr)


def sources_sha256() -> str:
    """SHA-256 of the product's sources, file by file: a training goes on only with those that it began with."""
    root = Path(__file__).resolve().parent.parent
    names = sorted(path for folder in ("kernels", "envs", "pipeline") for path in (root / folder).glob("*.*"))
    contents = (f"{path.relative_to(root)}\0".encode() + path.read_bytes() for path in names if path.is_file())
    return hashlib.sha256(b"\0".join(contents)).hexdigest()


def git_state(folder: Path) -> dict[str, str]:
    """`git_commit`, and `git_dirty`: true where anything but the pipeline's own outputs differs from the commit."""
    commit = _run(["git", "-C", str(folder), "rev-parse", "HEAD"])
    status = _run(
        ["git", "-C", str(folder), "status", "--porcelain", "--", ".", *(f":(exclude){path}" for path in OUTPUTS)]
    )
    dirty = UNKNOWN if status is None else "true" if status else "false"
    return {"git_commit": commit or UNKNOWN, "git_dirty": dirty}


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _experiment() -> dict[str, str]:
    """The DVC experiment of this stage. Its commit may lie in a temporary clone, so its baseline is told too."""
    names = {"dvc_experiment": "DVC_EXP_NAME", "dvc_baseline": "DVC_EXP_BASELINE_REV"}
    return {key: os.environ[variable] for key, variable in names.items() if os.environ.get(variable)}


def _compiler() -> str:
    try:
        command = compiler.find_compiler()
    except UserError:
        return UNKNOWN
    return ((_run([*command, "--version"]) or "").splitlines() or [UNKNOWN])[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Hardware")))
    return next(named, platform.processor() or platform.machine())


def _device_name(device: str) -> str:
    if not device.startswith("cuda"):
        return _processor()
    import torch  # loaded by now in a stage that uses the device

    return str(torch.cuda.get_device_name(device))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else UNKNOWN


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
