"""Learning is tested by learning: every training seed solves CartPole within seconds, and is on its way in others.

What the values of conf/env reach in full is measured by benchmarks/learning.py.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from pipeline import config as configuration
from pipeline import evaluate, provenance, train

# Shorter of sight than conf/ppo/default.yaml and with more passes: enough in a seventh of its steps.
BUDGET = ("ppo.total_steps=40960", "ppo.update_epochs=8", "ppo.gamma=0.98", "ppo.gae_lambda=0.9")


def selection_return(seed: int, folder: Path, *overrides: str) -> float:
    """The mean return of a training's policy on the selection split."""
    quiet = ("device=cpu", "device.threads=1", "tracking.enabled=false", "evaluate.split=selection")
    config = configuration.load([f"seed={seed}", *quiet, "evaluate.episodes=50", *overrides])
    train.run(dataclasses.replace(config, out=str(folder / "train")))
    evaluate.run(dataclasses.replace(config, checkpoint=str(folder / "train"), out=str(folder / "evaluate")))
    metrics = json.loads((folder / "evaluate" / "metrics.json").read_text())
    assert metrics["initial_return_mean"] < 100
    return float(metrics["return_mean"])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_cartpole(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert selection_return(seed, tmp_path, *BUDGET) >= 475


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("name", "steps", "bar"),
    [
        ("acrobot", 65536, -150),  # from -500
        ("pendulum", 81920, -600),  # from -1200
    ],
)
def test_a_third_of_a_training(
    name: str, steps: int, bar: float, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert selection_return(seed, tmp_path, f"env={name}", f"ppo.total_steps={steps}") >= bar


def test_planted_no_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is one that a policy that does not learn misses."""
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert selection_return(1, tmp_path, "ppo.total_steps=8192", "ppo.learning_rate=1e-9") < 100
