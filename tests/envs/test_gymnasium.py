"""Native environments against Gymnasium's, by putting the same states into both."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
import torch

import envs
from envs.vector import empty_output

CPU = torch.device("cpu")
STATES = 12_000


def acrobot_height(state: np.ndarray) -> np.ndarray:
    """Of the free end over the joint, m; states (N, S)."""
    return -np.cos(state[:, 0]) - np.cos(state[:, 0] + state[:, 1])


class Case(NamedTuple):
    """How an environment is put beside Gymnasium's."""

    gymnasium: str
    # Random states are drawn from this box: beyond every threshold, so that each end and each clip is met often.
    low: tuple[float, ...]
    high: tuple[float, ...]
    # What ends an episode: numbers that follow from states (N, S), each with its threshold.
    ends: tuple[tuple[Callable[[np.ndarray], np.ndarray], float], ...]
    start_low: tuple[float, ...]  # the box that episodes begin in
    start_high: tuple[float, ...]
    rollout: int  # steps within which random play meets an end, or the time limit that the rollouts are given


CASES = {
    "acrobot": Case(
        "Acrobot-v1",
        (-np.pi, -np.pi, -14.0, -30.0),
        (np.pi, np.pi, 14.0, 30.0),
        ((acrobot_height, 1.0),),
        (-0.1,) * 4,
        (0.1,) * 4,
        100,
    ),
    "cartpole": Case(  # position, velocity, angle, angular velocity
        "CartPole-v1",
        (-2.6, -3.0, -0.25, -3.0),
        (2.6, 3.0, 0.25, 3.0),
        ((lambda state: np.abs(state[:, 0]), 2.4), (lambda state: np.abs(state[:, 2]), np.radians(12.0))),
        (-0.05,) * 4,
        (0.05,) * 4,
        60,
    ),
    "mountain_car": Case(
        "MountainCar-v0",
        (-1.3, -0.08),
        (0.8, 0.08),
        ((lambda state: np.minimum(state[:, 0], state[:, 1] + 0.5), 0.5),),
        (-0.6, 0.0),
        (-0.4, 0.0),
        200,
    ),
    "mountain_car_continuous": Case(
        "MountainCarContinuous-v0",
        (-1.3, -0.08),
        (0.8, 0.08),
        ((lambda state: np.minimum(state[:, 0], state[:, 1] + 0.45), 0.45),),
        (-0.6, 0.0),
        (-0.4, 0.0),
        300,
    ),
    "pendulum": Case("Pendulum-v1", (-np.pi, -8.0), (np.pi, 8.0), (), (-np.pi, -1.0), (np.pi, 1.0), 200),
}


def random_states(name: str, count: int, source: np.random.RandomState, share: float = 1.0) -> np.ndarray:
    """(count, S) float32, from the box or a share of its width."""
    case = CASES[name]
    return share * source.uniform(case.low, case.high, (count, len(case.low))).astype(np.float32)


def random_actions(name: str, count: int, source: np.random.RandomState) -> np.ndarray:
    """(count,) int32, or (count, 1) float32 of which half lie outside of the bounds."""
    action = envs.spec(name).action
    if isinstance(action, envs.Discrete):
        return source.randint(0, action.n, count).astype(np.int32)
    return source.uniform(2 * np.array(action.low), 2 * np.array(action.high), (count, 1)).astype(np.float32)


class Oracle:
    """Gymnasium's environment, set to a state before each step."""

    def __init__(self, name: str, limit: int | None = None, single: bool = False) -> None:
        self.env = gymnasium.make(CASES[name].gymnasium, max_episode_steps=limit, disable_env_checker=True)
        self.env.reset(seed=0)
        self.action = envs.spec(name).action
        if single and name == "acrobot":  # its Runge-Kutta step is float64 whatever the state is
            derivative = self.env.unwrapped._dsdt
            self.env.unwrapped._dsdt = lambda state: derivative(state.astype(np.float32))

    def set(self, state: np.ndarray, elapsed: int) -> None:
        self.env.unwrapped.state = state
        self.env.unwrapped.steps_beyond_terminated = None
        self.env._elapsed_steps = elapsed

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        if isinstance(self.action, envs.Discrete):
            return self.env.step(int(action))[:4]
        # Gymnasium clips too, but MountainCarContinuous charges for the raw force.
        return self.env.step(np.clip(action, self.action.low, self.action.high).astype(action.dtype))[:4]


def outcomes(name: str, states: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> tuple[np.ndarray, ...]:
    """Observation (N, D), reward, terminated, truncated, next state (N, S) by Gymnasium, in the states' precision."""
    oracle, rows = Oracle(name, single=states.dtype == np.float32), []
    for state, action, steps in zip(states, actions, elapsed, strict=True):
        oracle.set(state, int(steps))
        rows.append((*oracle.step(action), oracle.env.unwrapped.state))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def native_outcomes(name: str, states: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> envs.StepOutput:
    env = envs.make(envs.spec(name), len(states), 0, CPU)
    env.reset(torch.empty(len(states), env.spec.observation_size))
    lengths = torch.from_numpy(elapsed.astype(np.int32))
    env.load_state({**env.state(), "state": torch.from_numpy(states.T.copy()), "episode_length": lengths})
    out = empty_output(env.spec, len(states), CPU)
    env.step(torch.from_numpy(actions), out)
    return out


@pytest.mark.parametrize("share", [1.0, 0.2])
@pytest.mark.parametrize("name", CASES)
def test_step_matches_gymnasium(name: str, share: float) -> None:
    """In the whole box, and in its middle, where rounding is amplified little and so little is allowed."""
    source = np.random.RandomState(1)
    states, actions = random_states(name, STATES, source, share), random_actions(name, STATES, source)
    limit = envs.spec(name).max_episode_steps
    elapsed = np.where(source.random_sample(STATES) < 0.5, limit - 1, source.randint(0, limit - 1, STATES))
    exact = outcomes(name, states.astype(np.float64), actions.astype(np.float64), elapsed)
    plain = outcomes(name, states, actions, elapsed)  # Gymnasium's own arithmetic in NumPy's float32
    out = native_outcomes(name, states, actions, elapsed)

    for field, found, wanted, naive in (
        ("observation", out.final_observation, exact[0], plain[0]),
        ("reward", out.reward[:, None], exact[1][:, None], plain[1][:, None]),
    ):
        error = np.abs(found.numpy() - wanted).max(0)
        tolerance = 2 * np.abs(naive - wanted).max(0) + 4 * np.spacing(np.abs(wanted).max(0).astype(np.float32))
        assert (error <= tolerance).all(), f"{field}: error {error}, tolerance {tolerance}"
        print(f"{name} {field}: largest error {error.max():.2e}, tolerance {tolerance.max():.2e}")

    undecided = np.zeros(STATES, dtype=bool)
    for measure, threshold in CASES[name].ends:
        rounding = np.abs(measure(plain[4].astype(np.float64)) - measure(exact[4])).max()
        undecided |= np.abs(measure(exact[4]) - threshold) < 2 * rounding + 4 * np.spacing(np.float32(threshold))
    print(f"{name}: {STATES} states, {undecided.sum()} within rounding of a threshold, {exact[2].sum()} terminated")
    assert undecided.sum() < STATES / 1000
    np.testing.assert_array_equal(out.terminated.numpy()[~undecided], exact[2][~undecided])
    np.testing.assert_array_equal(out.truncated.numpy(), exact[3])
    assert 0.4 < exact[3].mean() < 0.6
    assert not CASES[name].ends or share < 1.0 or 0.05 < exact[2].mean() < 0.8


@pytest.mark.parametrize("name", CASES)
def test_rollouts_match_gymnasium(name: str) -> None:
    """Whole episodes with the same actions. Both systems amplify rounding; Gymnasium in float32 shows how much.

    Its MountainCarContinuous keeps a float32 state in either case, so that half an ulp a step is allowed beside.
    """
    steps, count = CASES[name].rollout, 20
    env = envs.make(envs.spec(name, steps), count, 3, CPU)
    out = empty_output(env.spec, count, CPU)
    env.reset(out.observation)
    oracles = [Oracle(name, steps) for _ in range(count)]
    plain = [Oracle(name, steps, single=True) for _ in range(count)]
    for i, state in enumerate(env.state()["state"].numpy().T):
        oracles[i].set(state.astype(np.float64), 0)
        plain[i].set(state.copy(), 0)

    source, playing, error, rounding = np.random.RandomState(2), np.ones(count, dtype=bool), 0.0, 0.0
    for step in range(steps):
        actions = random_actions(name, count, source)
        env.step(torch.from_numpy(actions), out)
        for i in np.flatnonzero(playing):
            observation, _, *flags = oracles[i].step(actions[i])
            state = np.array(plain[i].env.unwrapped.state, dtype=np.float32)
            plain[i].set(state, step)
            rounding = max(rounding, float(np.abs(plain[i].step(actions[i])[0] - observation).max()))
            error = max(error, float(np.abs(out.final_observation[i].numpy() - observation).max()))
            assert [bool(out.terminated[i]), bool(out.truncated[i])] == flags, f"environment {i}, step {step}"
            playing[i] = not any(flags)
    print(f"{name}: largest error in {count} episodes {error:.2e}, of plain float32 {rounding:.2e}")
    assert error < 4 * rounding + steps * 2.0**-24
    assert not playing.all()


@pytest.mark.parametrize("name", CASES)
def test_starting_states_are_gymnasiums(name: str) -> None:
    """The same box, filled evenly: mean and spread of each component as of a uniform distribution."""
    count = 20_000
    low, high = np.array(CASES[name].start_low), np.array(CASES[name].start_high)
    env = envs.make(envs.spec(name), count, 5, CPU)
    env.reset(torch.empty(count, env.spec.observation_size))
    state, drawn = env.state()["state"].numpy(), low < high
    np.testing.assert_array_equal(state[~drawn], np.broadcast_to(low[~drawn, None], state[~drawn].shape))
    scaled = ((2 * state.T - low - high)[:, drawn] / (high - low)[drawn]).T
    assert np.abs(scaled).max() <= 1.0 + 1e-6
    assert np.abs(scaled.mean(1)).max() < 5 / np.sqrt(3 * count)
    np.testing.assert_allclose((scaled**2).mean(1), 1 / 3, atol=5 * np.sqrt(4 / 45 / count))
    assert np.abs(np.corrcoef(scaled) - np.eye(len(scaled))).max() < 5 / np.sqrt(count)


@pytest.mark.parametrize("name", CASES)
def test_metadata_is_gymnasiums(name: str) -> None:
    env, spec = gymnasium.make(CASES[name].gymnasium), envs.spec(name)
    np.testing.assert_allclose(spec.observation_low, env.observation_space.low, rtol=1e-6)
    np.testing.assert_allclose(spec.observation_high, env.observation_space.high, rtol=1e-6)
    assert spec.max_episode_steps == env.spec.max_episode_steps
    if isinstance(spec.action, envs.Discrete):
        assert spec.action.n == env.action_space.n
    else:
        np.testing.assert_array_equal(
            [spec.action.low, spec.action.high], [env.action_space.low, env.action_space.high]
        )
