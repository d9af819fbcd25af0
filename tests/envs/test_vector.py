"""The vector environment's contract: autoreset, seeds, and independence of neighbours, threads and earlier episodes."""

import dataclasses

import numpy as np
import pytest
import torch

import envs
from envs.validation import Plan, Trajectory, evaluation_seeds, random_actions, record
from envs.vector import StepOutput, empty_output
from kernels import compiler
from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError

CPU = torch.device("cpu")
STEPS = 200  # steps in which untrained play sees many ends
# Those whose observations do not repeat; the validator goes over the others (tests/envs/test_grids.py).
NAMES = [name for name in envs.names() if name not in ("gridmaze", "memory", "snake", "squared")]


def play(name: str, num_envs: int, run_seed: int = 1, limit: int | None = None, steps: int = STEPS) -> Trajectory:
    plan = Plan(envs.spec(name, limit), num_envs, steps, run_seed=9)
    return record(envs.make(plan.spec, num_envs, run_seed, CPU), random_actions(plan))


def assert_same(one: Trajectory, other: Trajectory) -> None:
    torch.testing.assert_close(one.first, other.first, rtol=0, atol=0)
    for name in StepOutput._fields:
        assert torch.equal(getattr(one.out, name), getattr(other.out, name)), name


@pytest.mark.parametrize("name", NAMES)
def test_same_step_autoreset(name: str) -> None:
    """Five steps of one environment whose episodes last two: the flags, the counters and both observations in full."""
    played = play(name, 1, limit=2, steps=10)
    out, seeds = played.out, played.episode_seed[:, 0]
    assert out.truncated[:5, 0].tolist() == [0, 1, 0, 1, 0]
    assert out.terminated[:5, 0].tolist() == [0, 0, 0, 0, 0]
    assert out.episode_length[:5, 0].tolist() == [1, 2, 1, 2, 1]
    assert played.episode_index[:6, 0].tolist() == [0, 0, 1, 1, 2, 2]
    reward = out.reward[:, 0]
    returns = [reward[0], reward[0] + reward[1], reward[2], reward[2] + reward[3], reward[4]]
    assert out.episode_return[:5, 0].tolist() == [float(value) for value in returns]
    for step in (0, 2, 4):  # nothing ended: one observation, written twice
        assert torch.equal(out.observation[step], out.final_observation[step])
    for step in (1, 3):  # an end: the old episode's last, and the first of the next
        env, first = envs.make(envs.spec(name), 1, 1, CPU), torch.empty(1, envs.spec(name).observation_size)
        env.reset(first, seeds[step + 1 : step + 2])
        assert torch.equal(out.observation[step], first)
        assert not torch.equal(out.observation[step], out.final_observation[step])


def test_a_death_on_the_step_of_the_limit_sets_both_flags() -> None:
    """All four combinations of the flags: pushed to one side the pole falls on the tenth step or so."""
    push = torch.ones(1, dtype=torch.int32)

    def flags(limit: int) -> tuple[int, int, int]:
        env = envs.make(envs.spec("cartpole", limit), 1, 1, CPU)
        out = empty_output(env.spec, 1, CPU)
        env.reset(out.observation)
        for step in range(1, 100):
            env.step(push, out)
            if out.terminated[0] or out.truncated[0]:
                return step, int(out.terminated[0]), int(out.truncated[0])
        raise AssertionError("the pole never fell")

    fell = flags(500)[0]
    assert flags(500) == (fell, 1, 0)
    assert flags(fell - 1) == (fell - 1, 0, 1)
    assert flags(fell) == (fell, 1, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_envs", [7, 300])
def test_many_equal_one_alone(name: str, num_envs: int) -> None:
    """Each episode of some environments again by itself, from its seed and its actions."""
    played = play(name, num_envs, limit=50)
    alone = envs.make(envs.spec(name, 50), 1, 1, CPU)
    for i in (0, num_envs // 2, num_envs - 1):
        start = 0
        for end in played.ended[:, i].nonzero()[:, 0].tolist():
            replay = record(alone, played.actions[start : end + 1, i : i + 1], played.episode_seed[start, i : i + 1])
            for field in ("final_observation", "reward", "terminated", "truncated", "episode_return", "episode_length"):
                again, once = getattr(replay.out, field)[:, 0], getattr(played.out, field)[start : end + 1, i]
                assert torch.equal(again, once), f"{field} of environment {i}, episode from step {start}"
            start = end + 1
        assert start > 0


@pytest.mark.parametrize("name", NAMES)
def test_threads_change_nothing(name: str) -> None:
    runs = []
    try:
        for threads in (1, 2, 3):
            compiler.set_threads(threads)
            runs.append(play(name, 500, limit=20, steps=50))
    finally:
        compiler.set_threads(1)
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


@pytest.mark.parametrize("name", NAMES)
def test_run_seeds_do_not_overlap(name: str) -> None:
    """Neighbouring run seeds share no episode, and neither do environments or the episodes of one environment."""
    count = 100
    environment = torch.arange(count, dtype=torch.int32).repeat(count)
    episode = torch.arange(count).repeat_interleave(count)
    drawn = torch.cat([episode_seeds(run_seed, environment, episode) for run_seed in (0, 1, 2, 3, 2**64 - 1)])
    assert len(drawn.unique()) == len(drawn)
    assert bool((drawn >> 62 == 0).all())
    starts = torch.cat([play(name, count, run_seed, steps=10).first for run_seed in (0, 1, 2)])
    assert len(starts.unique(dim=0)) == len(starts)


@pytest.mark.parametrize("name", NAMES)
def test_training_seeds_are_the_closed_form(name: str) -> None:
    played = play(name, 8, run_seed=5, limit=7)
    environment = torch.arange(8, dtype=torch.int32).repeat(STEPS + 1)
    expected = episode_seeds(5, environment, played.episode_index.flatten())
    assert torch.equal(played.episode_seed.flatten(), expected)
    assert int(played.episode_index.max()) >= STEPS // 7


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_seeds_are_played_as_given(name: str) -> None:
    env = envs.make(envs.spec(name), 50, 1, CPU)
    starts = []
    for split in (1, 2):
        first = torch.empty(50, env.spec.observation_size)
        env.reset(first, evaluation_seeds(split, 50))
        assert torch.equal(env.state()["episode_seed"], evaluation_seeds(split, 50))
        starts.append(first)
    first = torch.empty(50, env.spec.observation_size)
    env.reset(first)
    starts.append(first)
    assert len(torch.cat(starts).unique(dim=0)) == 150


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_on_where_it_was(name: str) -> None:
    plan = Plan(envs.spec(name, 30), 6, 80, 1)
    actions = random_actions(plan)
    env, other = envs.make(plan.spec, 6, 1, CPU), envs.make(plan.spec, 6, 1, CPU)
    out, again = empty_output(plan.spec, 6, CPU), empty_output(plan.spec, 6, CPU)
    env.reset(out.observation)
    other.reset(again.observation)
    for action in actions[:40]:
        env.step(action, out)
    other.load_state({name: tensor.clone() for name, tensor in env.state().items()})
    for action in actions[40:]:
        env.step(action, out)
        other.step(action, again)
        for field, one, two in zip(StepOutput._fields, out, again, strict=True):
            assert torch.equal(one, two), field


@pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1, -(2**31)])
def test_an_action_that_is_none_is_seen_and_stays_with_its_environment(wrong: int) -> None:
    right, out = play("cartpole", 3, steps=10), empty_output(envs.spec("cartpole"), 3, CPU)
    env = envs.make(envs.spec("cartpole"), 3, 1, CPU)
    env.reset(out.observation)
    action = right.actions[0].clone()
    action[1] = wrong
    env.step(action, out)
    assert bool(out.observation[1].isnan().all())
    assert bool(out.reward[1].isnan())
    assert (int(out.terminated[1]), int(out.truncated[1])) == (0, 0)
    for i in (0, 2):
        assert torch.equal(out.observation[i], right.out.observation[0, i])
    env.step(right.actions[1], out)
    assert bool(out.observation[1].isnan().all())


def test_continuous_actions_are_clipped_and_nan_is_seen() -> None:
    def reward(torque: float) -> tuple[float, list[float]]:
        env = envs.make(envs.spec("pendulum"), 1, 1, CPU)
        out = empty_output(env.spec, 1, CPU)
        env.reset(out.observation)
        env.step(torch.tensor([[torque]]), out)
        return float(out.reward), out.observation[0].tolist()

    assert reward(2.0) == reward(7.0) == reward(np.inf) != reward(1.9)
    assert reward(-2.0) == reward(-7.0) == reward(-np.inf) != reward(-1.9)
    assert np.isnan(reward(np.nan)[0])
    assert np.isnan(reward(np.nan)[1]).all()


def test_wrong_arrays_are_refused_by_name() -> None:
    env = envs.make(envs.spec("cartpole"), 4, 1, CPU)
    out = empty_output(env.spec, 4, CPU)
    env.reset(out.observation)
    with pytest.raises(ValueError, match=r"action must be int32 \(4\)"):
        env.step(torch.zeros(4, dtype=torch.int64), out)
    with pytest.raises(ValueError, match=r"observation must be float32 \(4, 4\)"):
        env.step(torch.zeros(4, dtype=torch.int32), out._replace(observation=torch.empty(4, 3)))
    with pytest.raises(ValueError, match="episode_seeds must be int64"):
        env.reset(out.observation, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="load_state: state must be"):
        env.load_state({**env.state(), "state": torch.zeros(3, 4)})
    with pytest.raises(UserError, match="num_envs must be at least 1; got 0"):
        envs.make(envs.spec("cartpole"), 0, 1, CPU)


def test_unknown_names_and_limits_are_refused() -> None:
    with pytest.raises(UserError, match=r"one of acrobot, .*; got 'cartpol': did you mean cartpole"):
        envs.spec("cartpol")
    with pytest.raises(UserError, match="max_episode_steps must be at least 1; got 0"):
        envs.spec("cartpole", 0)


def test_the_hash_covers_every_field_and_the_dynamics(tmp_path) -> None:
    spec = envs.spec("cartpole")
    header = tmp_path / spec.header.name
    header.write_bytes(spec.header.read_bytes())
    assert dataclasses.replace(spec, header=header).sha256() == spec.sha256()  # the folder does not matter
    header.write_bytes(spec.header.read_bytes().replace(b"9.8f", b"9.9f"))
    changed = [
        dataclasses.replace(spec, header=header),
        dataclasses.replace(spec, max_episode_steps=499),
        dataclasses.replace(spec, action=envs.Discrete(3)),
        dataclasses.replace(spec, reward_range=(0.0, 1.0)),
        envs.spec("pendulum"),
    ]
    assert len({spec.sha256(), *(each.sha256() for each in changed)}) == 6
