"""Mistakes put into the dynamics that Gymnasium has too, each seen beside it: the tolerance there is no blindfold."""

import dataclasses
import functools
from pathlib import Path

import pytest
import test_gymnasium

import envs

STATES = 3000
SHARES = {"acrobot": 0.6}  # of the box of states: few of them meet the rare ones whose rounding the tolerance follows
PRODUCT = envs.spec

STEP: dict[str, dict[str, tuple[str, str]]] = {
    "acrobot": {
        "gravity": ("gravity = 9.8f", "gravity = 9.81f"),
        "Euler's step": ("k1[k] + 2.0f * k2[k] + 2.0f * k3[k] + k4[k]", "6.0f * k1[k]"),
        "the other paper's acceleration": (" - coupling * (v1 * v1) * second.sin - phi2", " - phi2"),
        "one velocity's bound for both": ("clamp(state[2 + k], max_speed[k])", "clamp(state[2 + k], max_speed[0])"),
        "the last step is paid for": ("terminated ? 0.0f : -1.0f", "-1.0f"),
        "the goal is lower": ("height > 1.0f", "height > 0.9f"),
    },
    "cartpole": {
        "gravity": ("gravity, 9.8f", "gravity, 9.81f"),
        "a pole of its whole length": ("half_length, 0.5f", "half_length, 1.0f"),
        "the new velocity moves the cart": ("state[0] = x + tau * x_dot", "state[0] = x + tau * (x_dot + tau * x_acc)"),
        "one side of the track has no end": ("(state[0] < -x_threshold) |", ""),
        "falls later": ("theta_threshold = 0.20943951023931953f", "theta_threshold = 0.22f"),
    },
    "mountain_car": {
        "gravity": ("gravity, 0.0025f", "gravity, 0.00251f"),
        "the wall gives back": ("blend((moved <= min_position) & (velocity < 0.0f), 0.0f, velocity)", "velocity"),
        "rolling back through the goal ends": (" & (velocity >= 0.0f)", ""),
    },
    "mountain_car_continuous": {
        "power": ("power = 0.0015f", "power = 0.00151f"),
        "force is free": ("- 0.1f * (force * force)", ""),
        "the other car's goal": ("goal = 0.45f", "goal = 0.5f"),
    },
    "pendulum": {
        "gravity": ("gravity, 10.0f", "gravity, 9.81f"),
        "the reward of the state after": ("0.1f * (speed * speed)", "0.1f * (state[1] + 0.05f * torque) * speed"),
        "no bound of the velocity": ("max_speed = 8.0f", "max_speed = 99.0f"),
        "the old velocity turns it": ("wrap(angle + state[1] * dt)", "wrap(angle + speed * dt)"),
    },
}  # fmt: skip
START = {
    "acrobot": ("between(-0.1f, 0.1f,", "between(-0.1f, 0.11f,"),
    "cartpole": ("bits.word[k]", "bits.word[k & 2]"),
    "mountain_car": ("state[1] = 0.0f;", "state[1] = 0.001f;"),
    "mountain_car_continuous": ("between(-0.6f, -0.4f,", "between(-0.6f, -0.5f,"),
    "pendulum": ("between(-1.0f, 1.0f,", "between(-8.0f, 8.0f,"),
}


def plant(patch: pytest.MonkeyPatch, folder: Path, name: str, right: str, wrong: str) -> None:
    """For one test the environment is built from a copy of its header with a mistake."""
    header = PRODUCT(name).header
    text = header.read_text()
    if text.count(right) != 1:
        raise LookupError(f"{header.name}: {right!r} is there {text.count(right)} times")
    (folder / header.name).write_text(text.replace(right, wrong))
    change = functools.partial(dataclasses.replace, header=folder / header.name)
    patch.setattr(envs, "spec", lambda *arguments: change(PRODUCT(*arguments)))


@pytest.fixture(autouse=True)
def _fewer_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_gymnasium, "STATES", STATES)


@pytest.mark.parametrize("name", STEP)
def test_the_product_passes_with_as_few_states(name: str) -> None:
    test_gymnasium.test_step_matches_gymnasium(name, SHARES.get(name, 1.0))


@pytest.mark.parametrize(("name", "mistake"), [(name, mistake) for name in STEP for mistake in STEP[name]])
def test_a_mistake_in_the_step_is_found(
    name: str, mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, tmp_path, name, *STEP[name][mistake])
    with pytest.raises(AssertionError, match=r"error|Arrays are not equal"):
        test_gymnasium.test_step_matches_gymnasium(name, SHARES.get(name, 1.0))


@pytest.mark.parametrize("name", START)
def test_a_mistake_in_the_reset_is_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, name, *START[name])
    with pytest.raises(AssertionError):
        test_gymnasium.test_starting_states_are_gymnasiums(name)


def test_no_environment_is_left_out() -> None:
    assert list(STEP) == list(START) == list(test_gymnasium.CASES)
    elsewhere = {
        "breakout",
        "cartpole_masked",
        "gridmaze",
        "memory",
        "snake",
        "squared",
    }  # test_breakout.py, test_grids.py
    assert {*STEP, *elsewhere} == set(envs.names())
