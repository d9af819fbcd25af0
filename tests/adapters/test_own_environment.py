"""docs/environments.md, its native part, followed word for word in a copy of the checkout with nothing else in it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
# The page's commands in one process, for speed: torch is imported once.
FOLLOW = """
import runpy, sys
for line in sys.argv[1:]:
    stage, *overrides = line.removeprefix("python -m ").split()
    sys.argv = [stage, *overrides, "tracking.enabled=false", "device=cpu"]
    runpy.run_module(stage, run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout after the page's section."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("conf", "envs", "kernels", "pipeline"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "environments.md").read_text()
    section = page.split("## A native environment in ten minutes\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.S)
    files = re.findall(r"`((?:envs|conf/env)/docking\.\w+)`", section)
    *contents, (_, commands) = blocks
    assert [kind for kind, _ in contents] == ["cpp", "python", "yaml"]
    for path, (_, text) in zip(files, contents, strict=True):
        assert not (copy / path).exists()
        (copy / path).write_text(text)
    lines = commands.strip().splitlines()
    assert [line.split()[2] for line in lines] == [
        f"pipeline.{stage}" for stage in ("validate", "train", "evaluate", "replay")
    ]
    done = subprocess.run([sys.executable, "-c", FOLLOW, *lines], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


def test_it_passes_every_check(followed: Path) -> None:
    found = json.loads((followed / "runs/docking/validation/validation.json").read_text())
    assert {check["name"]: check["verdict"] for check in found["checks"] if check["verdict"] != "pass"} == {}


def test_it_is_learned(followed: Path) -> None:
    metrics = json.loads((followed / "runs/docking/held-out/metrics.json").read_text())
    assert metrics["env"] == "docking"
    assert metrics["initial_return_mean"] < 0.0
    assert metrics["return_mean"] > 5.0
    assert metrics["improved_fraction"] > 0.9


def test_it_is_seen(followed: Path) -> None:
    folder = followed / "runs/docking/episode"
    with Image.open(folder / "episode.gif") as picture:
        assert picture.n_frames == len((folder / "episode.csv").read_text().splitlines()) - 2
        assert 320 <= picture.width <= 600
