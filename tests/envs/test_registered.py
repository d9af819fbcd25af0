"""Native environments in Gymnasium's registry, and their pictures."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import envs
from envs import picture, registered
from envs.vector import NativeVectorEnv, empty_output
from kernels.errors import UserError
from pipeline import seeds

CPU = torch.device("cpu")


def test_every_native_environment_of_one_agent_has_an_id() -> None:
    found = {each.kwargs["name"]: id for id, each in gymnasium.registry.items() if id.startswith("lockstep/")}
    assert list(found) == [name for name in envs.names() if envs.spec(name).agents == 1]
    assert found["gridmaze"] == "lockstep/GridMaze-v0"
    assert found["cartpole"] == "lockstep/CartPole-v1"
    assert found["breakout"] == "lockstep/Breakout-v0"
    assert found["mountain_car_continuous"] == "lockstep/MountainCarContinuous-v0"


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasiums_own_check(id: str) -> None:
    env = gymnasium.make(f"envs.registered:lockstep/{id}", render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.filterwarnings("error")
        warnings.filterwarnings("ignore", message=".*(Box observation space m|normalized space).*")
        check_env(env.unwrapped)


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_an_episode_is_ours_from_the_same_seed(name: str) -> None:
    spec = envs.spec(name)
    listed = seeds.evaluation_seeds("held_out", 3)
    ours, out = NativeVectorEnv(spec, 3, 1, CPU), empty_output(spec, 3, CPU)
    ours.reset(out.observation, listed)
    env = gymnasium.make(registered.identifier(spec))
    observation, _ = env.reset(seed=int(listed[2]) & 2**64 - 1)
    assert np.array_equal(observation, out.observation[2])
    env.action_space.seed(4)
    length = 0
    ended = False
    while not ended:
        action = env.action_space.sample()
        ours.step(torch.tensor(np.stack([action] * 3)).to(torch.int32 if spec.discrete else torch.float32), out)
        observation, reward, terminated, truncated, _ = env.step(action)
        assert np.array_equal(observation, out.final_observation[2])
        assert reward == out.reward[2]
        assert (terminated, truncated) == (bool(out.terminated[2]), bool(out.truncated[2]))
        ended, length = terminated or truncated, length + 1
    assert length == out.episode_length[2] > 5


def test_episodes_without_a_seed_follow_from_the_last_one() -> None:
    def firsts() -> list[np.ndarray]:
        env = gymnasium.make("lockstep/CartPole-v1")
        return [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]

    one, other = firsts(), firsts()
    assert np.array_equal(one, other)
    assert len({row.tobytes() for row in one}) == 3


def test_many_are_a_trainings_of_the_run_seed() -> None:
    spec = envs.spec("cartpole", 30)
    many = gymnasium.make_vec("lockstep/CartPole-v1", num_envs=4, max_episode_steps=30)
    ours, out = NativeVectorEnv(spec, 4, 7, CPU), empty_output(spec, 4, CPU)
    ours.reset(out.observation)
    assert np.array_equal(many.reset(seed=7)[0], out.observation)
    many.action_space.seed(1)
    deaths = limits = 0
    for _ in range(90):
        action = many.action_space.sample()
        ours.step(torch.tensor(action, dtype=torch.int32), out)
        observation, reward, terminated, truncated, infos = many.step(action)
        for found, wanted in ((observation, out.observation), (reward, out.reward)):
            assert np.array_equal(found, wanted)
        assert np.array_equal(terminated, out.terminated.bool())
        assert np.array_equal(truncated, out.truncated.bool())
        for each in (terminated | truncated).nonzero()[0]:
            assert np.array_equal(infos["final_obs"][each], out.final_observation[each])
        deaths, limits = deaths + terminated.sum(), limits + truncated.sum()
    assert deaths
    assert limits
    listed = seeds.evaluation_seeds("held_out", 4)
    ours.reset(out.observation, listed)
    assert np.array_equal(many.reset(seed=[each & 2**64 - 1 for each in listed.tolist()])[0], out.observation)


def test_ranges_of_parameters_are_drawn_here_too() -> None:
    ranges = {"half_length": {"train": [0.3, 0.7], "held_out": [0.8, 1.2]}}
    env = gymnasium.make("lockstep/CartPole-v1", parameters=ranges, render_mode="rgb_array")
    env.reset(seed=2**63)
    assert env.observation_space.contains(env.step(0)[0])
    assert 0.8 <= env.unwrapped._state[4] <= 1.2
    assert env.render().shape[2] == 3


# ---------------------------------------------------------------------------------------------------------------------
# Pictures
# ---------------------------------------------------------------------------------------------------------------------

WALL = [2.0**18 - 1.0] * 6


def seen(name: str, state: list[float]) -> np.ndarray:
    found = envs.render(envs.spec(name), np.array(state, np.float32))
    assert found.dtype == np.uint8
    assert found.shape[2:] == (3,)
    assert 320 <= found.shape[1] <= 600
    return found


def middle(pixels: np.ndarray, colour: str) -> tuple[float, float]:
    """Column and row in the middle of what has a colour."""
    wanted = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    rows, columns = (pixels == wanted).all(2).nonzero()
    assert len(rows) > 10
    return columns.mean(), rows.mean()


def test_what_is_drawn_is_where_it_is() -> None:
    def pole(state: list[float]) -> float:
        return middle(seen("cartpole", state), picture.ORANGE)[0]

    assert pole([0, 0, -0.2, 0]) < pole([0, 0, 0, 0]) < pole([0, 0, 0.2, 0]) < pole([1, 0, 0.2, 0])
    upright, left, down = (middle(seen("pendulum", [angle, 0]), picture.BLUE) for angle in (0.0, 0.5 * np.pi, np.pi))
    assert upright[1] < left[1] < down[1]
    assert left[0] < min(upright[0], down[0])
    for name in ("mountain_car", "mountain_car_continuous"):
        bottom, top = (middle(seen(name, [x, 0]), picture.BLUE) for x in (-np.pi / 6, 0.4))
        assert bottom[0] < top[0]
        assert bottom[1] > top[1]
    hanging, bent, straight_up = (middle(seen("acrobot", [*angles, 0, 0]), picture.ORANGE) for angles in ((0, 0), (0, 1.5), (3.14, 0)))  # fmt: skip  # noqa: E501
    assert hanging[0] < bent[0]
    assert straight_up[1] < bent[1] < hanging[1]
    game = [18.0, 18, 12, 0.5, -0.6, 5, 0]
    whole = seen("breakout", [*game, *WALL])
    for row in range(6):
        # The row's outermost brick on the right is gone.
        broken = seen("breakout", [*game, *WALL[:row], 2.0**17 - 1.0, *WALL[row + 1 :]])
        rows, columns = (whole != broken).any(2).nonzero()
        assert columns.min() > 0.9 * whole.shape[1]
        assert len(rows) > 100
    assert middle(seen("breakout", [10.0, *game[1:], *WALL]), "#e8ecef")[0] < middle(whole, "#e8ecef")[0]


def test_one_that_nobody_draws_is_told() -> None:
    with pytest.raises(UserError, match=r"render: wanted a native environment .*acrobot, .*; got FrozenLake"):
        envs.render(envs.spec("gymnasium", id="FrozenLake-v1"), np.zeros(0, np.float32))


@pytest.mark.parametrize("seed", [7, np.int64(7), [1, 2, 3], (1, 2, 3), np.array([1, 2, 3])], ids=repr)
def test_seeds_of_any_kind_are_taken(seed: int | list[int]) -> None:
    """None is passed over without a word: the same seed, the same first observations."""
    many = gymnasium.make_vec("lockstep/CartPole-v1", num_envs=3)
    first, again = many.reset(seed=seed)[0], many.reset(seed=seed)[0]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, many.reset()[0])
