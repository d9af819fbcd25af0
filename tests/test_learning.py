"""Learning is tested by learning: in seconds CartPole is solved, on several seeds, and others are well begun.

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


def selection_returns(seed: int, folder: Path, *overrides: str) -> tuple[float, float]:
    """The mean returns of a training's initial and final policy on the selection split."""
    quiet = ("device=cpu", "device.threads=1", "tracking.enabled=false", "evaluate.split=selection")
    config = configuration.load([f"seed={seed}", *quiet, "evaluate.episodes=50", *overrides])
    train.run(dataclasses.replace(config, out=str(folder / "train")))
    evaluate.run(dataclasses.replace(config, checkpoint=str(folder / "train"), out=str(folder / "evaluate")))
    metrics = json.loads((folder / "evaluate" / "metrics.json").read_text())
    return metrics["initial_return_mean"], metrics["return_mean"]


# Untrained, seed 4's policy stays up for 117 steps and seed 8's for all 500.
@pytest.mark.parametrize(
    ("seed", "path"),
    [*((seed, "fused=true") for seed in (1, 2, 3, 5, 6)), (1, "fused=false"), (2, "fused=false")],
)
def test_cartpole(seed: int, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    before, after = selection_returns(seed, tmp_path, *BUDGET, f"device.{path}")
    assert before < 100
    assert after >= 475


# With fewer steps it is chance that some seeds are there; of ten seeds all were. Acrobot's seed 1 swings up untrained.
@pytest.mark.parametrize("seed", [2, 3, 5])
@pytest.mark.parametrize(
    ("name", "steps", "bar"),
    [
        ("acrobot", 131072, -100),  # from -500
        ("mountain_car_continuous", 196608, 50),  # from 0, which standing still earns
        ("pendulum", 81920, -300),  # from -1300
    ],
)
def test_a_part_of_a_training(
    name: str, steps: int, bar: float, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    before, after = selection_returns(seed, tmp_path, f"env={name}", f"ppo.total_steps={steps}")
    assert before < bar <= after


def test_planted_no_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is one that a policy that does not learn misses."""
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert selection_returns(1, tmp_path, "ppo.total_steps=8192", "ppo.learning_rate=1e-9")[1] < 100
