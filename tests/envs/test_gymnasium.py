"""Native environments against Gymnasium's, by putting the same states into both."""

import gymnasium
import numpy as np
import pytest
import torch

import envs
from envs.vector import empty_output

CPU = torch.device("cpu")
STATES = 12_000
GYMNASIUM = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1"}
# Beyond every threshold, so that each end and each clip is met often. CartPole: x, velocity, angle, angular velocity.
WIDTHS = {"cartpole": (2.6, 3.0, 0.25, 3.0), "pendulum": (np.pi, 8.0)}
THRESHOLDS = {"cartpole": {0: 2.4, 2: np.radians(12.0)}, "pendulum": {}}  # component of the state: where it ends


def random_states(name: str, count: int, source: np.random.RandomState) -> np.ndarray:
    """(count, S) float32."""
    widths = np.array(WIDTHS[name])
    return source.uniform(-widths, widths, (count, len(widths))).astype(np.float32)


def random_actions(name: str, count: int, source: np.random.RandomState) -> np.ndarray:
    """(count,) int32, or (count, 1) float32 of which half lie outside of the bounds."""
    if name == "cartpole":
        return source.randint(0, 2, count).astype(np.int32)
    return source.uniform(-4.0, 4.0, (count, 1)).astype(np.float32)


class Oracle:
    """Gymnasium's environment, set to a state before each step."""

    def __init__(self, name: str) -> None:
        self.env = gymnasium.make(GYMNASIUM[name], disable_env_checker=True)
        self.env.reset(seed=0)
        self.discrete = name == "cartpole"

    def set(self, state: np.ndarray, elapsed: int) -> None:
        self.env.unwrapped.state = state
        self.env.unwrapped.steps_beyond_terminated = None
        self.env._elapsed_steps = elapsed

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        return self.env.step(int(action) if self.discrete else action)[:4]


def outcomes(name: str, states: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> tuple[np.ndarray, ...]:
    """Observation (N, D), reward, terminated, truncated, next state (N, S) by Gymnasium, in the states' precision."""
    oracle, rows = Oracle(name), []
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


@pytest.mark.parametrize("name", envs.names())
def test_step_matches_gymnasium(name: str) -> None:
    source = np.random.RandomState(1)
    states, actions = random_states(name, STATES, source), random_actions(name, STATES, source)
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
    for component, threshold in THRESHOLDS[name].items():
        undecided |= np.abs(np.abs(exact[4][:, component]) - threshold) < 4 * np.spacing(np.float32(threshold))
    print(f"{name}: {STATES} states, {undecided.sum()} within rounding of a threshold, {exact[2].sum()} terminated")
    assert undecided.sum() < STATES / 1000
    np.testing.assert_array_equal(out.terminated.numpy()[~undecided], exact[2][~undecided])
    np.testing.assert_array_equal(out.truncated.numpy(), exact[3])
    assert 0.4 < exact[3].mean() < 0.6
    assert not THRESHOLDS[name] or 0.2 < exact[2].mean() < 0.8


@pytest.mark.parametrize("name", envs.names())
def test_rollouts_match_gymnasium(name: str) -> None:
    """Whole episodes with the same actions. Both systems amplify rounding; Gymnasium in float32 shows how much."""
    steps, count = {"cartpole": 60, "pendulum": 200}[name], 20
    env = envs.make(envs.spec(name), count, 3, CPU)
    out = empty_output(env.spec, count, CPU)
    env.reset(out.observation)
    oracles, plain = [Oracle(name) for _ in range(count)], [Oracle(name) for _ in range(count)]
    for i, state in enumerate(env.state()["state"].numpy().T):
        oracles[i].set(state.astype(np.float64), 0)
        plain[i].set(state.copy(), 0)

    source, playing, error, rounding = np.random.RandomState(2), np.ones(count, dtype=bool), 0.0, 0.0
    for step in range(steps):
        actions = random_actions(name, count, source)
        env.step(torch.from_numpy(actions), out)
        for i in np.flatnonzero(playing):
            observation, _, *flags = oracles[i].step(actions[i])
            state = plain[i].env.unwrapped.state.astype(np.float32)
            plain[i].set(state, step)
            rounding = max(rounding, float(np.abs(plain[i].step(actions[i])[0] - observation).max()))
            error = max(error, float(np.abs(out.final_observation[i].numpy() - observation).max()))
            assert [bool(out.terminated[i]), bool(out.truncated[i])] == flags, f"environment {i}, step {step}"
            playing[i] = not any(flags)
    print(f"{name}: largest error in {count} episodes {error:.2e}, of plain float32 {rounding:.2e}")
    assert error < 4 * rounding
    assert not playing.all()


@pytest.mark.parametrize("name", envs.names())
def test_starting_states_are_gymnasiums(name: str) -> None:
    """The same box, filled evenly: mean and spread of each component as of a uniform distribution."""
    count = 20_000
    width = {"cartpole": np.full(4, 0.05), "pendulum": np.array([np.pi, 1.0])}[name]
    env = envs.make(envs.spec(name), count, 5, CPU)
    env.reset(torch.empty(count, env.spec.observation_size))
    scaled = env.state()["state"].numpy() / width[:, None]
    assert np.abs(scaled).max() <= 1.0 + 1e-6
    assert np.abs(scaled.mean(1)).max() < 5 / np.sqrt(3 * count)
    np.testing.assert_allclose((scaled**2).mean(1), 1 / 3, atol=5 * np.sqrt(4 / 45 / count))
    assert np.abs(np.corrcoef(scaled) - np.eye(len(width))).max() < 5 / np.sqrt(count)


@pytest.mark.parametrize("name", envs.names())
def test_metadata_is_gymnasiums(name: str) -> None:
    env, spec = gymnasium.make(GYMNASIUM[name]), envs.spec(name)
    np.testing.assert_allclose(spec.observation_low, env.observation_space.low, rtol=1e-6)
    np.testing.assert_allclose(spec.observation_high, env.observation_space.high, rtol=1e-6)
    assert spec.max_episode_steps == env.spec.max_episode_steps
    if isinstance(spec.action, envs.Discrete):
        assert spec.action.n == env.action_space.n
    else:
        np.testing.assert_array_equal(
            [spec.action.low, spec.action.high], [env.action_space.low, env.action_space.high]
        )
