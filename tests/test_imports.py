"""The house's rules: which way imports point, who may import what, and how long the training iteration may grow."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("kernels", "envs", "pipeline", "benchmarks", "tests")  # each may import itself and those before it
STAGES = ("compose", "validate", "train", "evaluate", "report")
# The only places that may import these.
KEEPERS = {
    "cupy": ("kernels/",),
    "cupy_backends": ("kernels/",),
    "envpool": ("envs/",),
    "gymnasium": ("envs/",),
    "mlflow": ("pipeline/tracking.py",),
    "hydra": ("pipeline/config.py", *(f"pipeline/{stage}.py" for stage in STAGES)),
}


def imports(source: str) -> Iterator[str]:
    """Every module that a source imports, at any depth: `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "importlib.import_module"):
            yield from (each.value for each in node.args[:1] if isinstance(each, ast.Constant))


def violations(path: str, source: str) -> list[str]:
    """What a file's imports break, one line each."""
    layer = path.split("/")[0]
    found = []
    for name in imports(source):
        top, *rest = name.split(".")
        if top == "":
            found.append(f"{path}: wanted absolute imports; got {name}")
        if top in LAYERS[LAYERS.index(layer) + 1 :] and layer != "benchmarks":
            found.append(f"{path}: {layer} must not import {top}; got {name}")
        if path.startswith("pipeline/") and top == "pipeline" and rest and rest[0] in STAGES:
            found.append(f"{path}: wanted no stage imported by the pipeline; got {name}")
        if layer in LAYERS[:3] and top in KEEPERS and not path.startswith(KEEPERS[top]):
            found.append(f"{path}: only {', '.join(KEEPERS[top])} may import {top}; got {name}")
    return sorted(set(found))


def _files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("path", _files())
def test_imports_point_one_way(path: str) -> None:
    assert violations(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernels/gae.py", "import envs.spec"),
        ("envs/vector.py", "def f():\n    from pipeline import config"),
        ("pipeline/train.py", "from pipeline import evaluate"),
        ("pipeline/ppo.py", "import pipeline.train"),
        ("pipeline/ppo.py", "import cupy"),
        ("envs/vector.py", "from cupy import ndarray"),
        ("pipeline/train.py", "import mlflow.tracking"),
        ("pipeline/ppo.py", "import hydra"),
        ("pipeline/evaluation.py", "from gymnasium import spaces"),
        ("kernels/env.py", "import gymnasium"),
        ("pipeline/ppo.py", 'importlib.import_module("mlflow")'),
        ("pipeline/ppo.py", "from .policy import build"),
        ("pipeline/ppo.py", "from tests import reference"),
    ],
)
def test_a_planted_import_is_found(path: str, source: str) -> None:
    assert violations(path, source)


def test_a_training_iteration_is_read_in_under_300_lines() -> None:
    lines = len((ROOT / "pipeline/ppo.py").read_text().splitlines())
    assert lines < 300, f"pipeline/ppo.py: wanted fewer than 300 lines; got {lines}"
