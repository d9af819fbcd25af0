"""Tasks so small that the best return is computed by hand; by either path, PPO has to find it on three seeds.

Their dynamics stand in bandit.h, password.h and stochastic.h beside this file.
"""

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from envs.spec import Discrete, EnvSpec
from pipeline import config, evaluation, seeds
from pipeline.assembly import assemble
from pipeline.evaluation import Episodes
from pipeline.policy import Policy
from pipeline.profile import Clock

CPU = torch.device("cpu")
SEEDS = (1, 2, 3)
PATHS = ("fused", "general")
EPISODES = 4000


def task(name: str, observations: int, actions: int, rewards: tuple[float, float], limit: int) -> EnvSpec:
    low, high = (0.0,) * observations, (1.0,) * observations
    return EnvSpec(name, 0, low, high, Discrete(actions), limit, 1, rewards, Path(__file__).with_name(f"{name}.h"))


BANDIT = task("bandit", 1, 4, (0.0, 1.0), 1)
PASSWORD = task("password", 5, 3, (0.0, 1.0), 5)
STOCHASTIC = task("stochastic", 1, 2, (0.0, 4.0), 2)


def train(path: str, spec: EnvSpec, seed: int, steps: int, **values: float) -> Policy:
    """The policy after `steps` steps: undiscounted returns, since an episode is a few steps long."""
    torch.set_num_threads(1)  # as `train` does; with more, tensors this small are waited for
    base = config.load(["policy.hidden=[16]", f"seed={seed}", "device=cpu", f"device.fused={path == 'fused'}".lower()])
    settings = dataclasses.replace(base.ppo, total_steps=steps, num_steps=32, gamma=1.0, gae_lambda=1.0, **values)
    training = assemble(dataclasses.replace(base, ppo=settings), spec, CPU, Clock(CPU))
    assert training.ppo.path.name == path
    while not training.ppo.finished:
        training.ppo.iterate()
    return training.policy


def play(policy: Policy, spec: EnvSpec, deterministic: bool) -> Episodes:
    return evaluation.play(policy, spec, seeds.evaluation_seeds("held_out", EPISODES), deterministic, CPU)


@torch.no_grad()
def probabilities(policy: Policy) -> list[float]:
    """Of the actions, where there is one observation, (1.0,)."""
    logits = policy.distribution(torch.ones(1, 1))
    return [float(value) for value in logits.softmax(-1)[0]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_bandit(seed: int, path: str) -> None:
    """The third arm, which pays in 0.8 of the episodes."""
    policy = train(path, BANDIT, seed, 20480)
    assert probabilities(policy)[2] > 0.95
    played = play(policy, BANDIT, deterministic=True)
    assert abs(evaluation.mean(played.returns) - 0.8) < 4 * math.sqrt(0.8 * 0.2 / EPISODES)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_password(seed: int, path: str) -> None:
    """All five actions right: 1 in every episode, and near it while actions are still drawn."""
    policy = train(path, PASSWORD, seed, 40960, ent_coef=0.01)
    best = play(policy, PASSWORD, deterministic=True)
    assert (best.returns == 1.0).all()
    assert (best.lengths == 5).all()
    assert evaluation.mean(play(policy, PASSWORD, deterministic=False).returns) > 0.9


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_stochastic(seed: int, path: str) -> None:
    """Going on with probability 2/3: 4/3, of a variance of 20/9; either way alone earns 1 at most."""
    policy = train(path, STOCHASTIC, seed, 40960)
    going_on = probabilities(policy)[1]
    assert abs(going_on - 2 / 3) < 0.07
    assert 4 / 3 - (4 * going_on - 3 * going_on**2) < 0.015
    sampled = evaluation.mean(play(policy, STOCHASTIC, deterministic=False).returns)
    assert abs(sampled - 4 / 3) < 0.015 + 4 * math.sqrt(20 / 9 / EPISODES)
    assert evaluation.mean(play(policy, STOCHASTIC, deterministic=True).returns) == 1.0


@pytest.mark.parametrize("path", PATHS)
def test_planted_no_learning(path: str) -> None:
    """What a policy that does not learn earns is far from each best."""
    for spec, chance, best in ((BANDIT, 0.5, 0.8), (PASSWORD, 1 / 243, 1.0), (STOCHASTIC, 5 / 4, 4 / 3)):
        policy = train(path, spec, 1, 1024, learning_rate=1e-9)
        found = evaluation.mean(play(policy, spec, deterministic=False).returns)
        assert abs(found - chance) < 4 * math.sqrt(20 / 9 / EPISODES)
        assert spec is STOCHASTIC or found < best - 0.2
    assert abs(probabilities(policy)[1] - 2 / 3) > 0.1
