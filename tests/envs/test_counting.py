"""The autoreset contract, spelled out in full by an environment that counts its steps.

Three environments observe how many steps their episode has had, and earn as much. Action 1 ends an episode by death,
the fourth step by the time limit, so that it is known what every array must hold.
"""

from pathlib import Path

import pytest
import torch

from envs.spec import Discrete, EnvSpec
from envs.vector import NativeVectorEnv, VectorEnv, empty_output
from kernels import env as kernels

CPU = torch.device("cpu")
HEADER = """
#pragma once
#include "environment.cuh"

struct Environment {
    static DEVICE_MEMBER void reset(const Draws&, float* state) { state[0] = 0.0f; }
    static DEVICE_MEMBER void step(const Draws&, const ActionElement* action, float* state, float& reward,
                                   bool& terminated) {
        state[0] += 1.0f;
        reward = state[0];
        terminated = action[0] == 1;
    }
    static DEVICE_MEMBER void observe(const float* state, float* observation) { observation[0] = state[0]; }
};
"""
LIMIT = 4
# Five steps of three environments: the first dies on step 2, the second only meets the limit, the third dies on the
# very step of the limit.
ACTIONS = [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
WANTED = {
    "observation": [[1, 1, 1], [0, 2, 2], [1, 3, 3], [2, 0, 0], [3, 1, 1]],
    "reward": [[1, 1, 1], [2, 2, 2], [1, 3, 3], [2, 4, 4], [3, 1, 1]],
    "terminated": [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]],
    "truncated": [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]],
    "final_observation": [[1, 1, 1], [2, 2, 2], [1, 3, 3], [2, 4, 4], [3, 1, 1]],
    "episode_return": [[1, 1, 1], [3, 3, 3], [1, 6, 6], [3, 10, 10], [6, 1, 1]],
    "episode_length": [[1, 1, 1], [2, 2, 2], [1, 3, 3], [2, 4, 4], [3, 1, 1]],
}
INDEX = [[0, 0, 0], [1, 0, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]]  # the episode that each is in after the step


def counting(folder: Path, limit: int) -> EnvSpec:
    header = folder / "counting.h"
    header.write_text(HEADER)
    return EnvSpec("counting", 0, (0.0,), (float(limit),), Discrete(2), limit, 1, (1.0, float(limit)), header)


def five_steps(env: VectorEnv) -> tuple[dict[str, list[list[float]]], list[list[int]]]:
    """What five steps of three environments wrote, and the episodes' indices after each."""
    out = empty_output(env.spec, 3, CPU)
    env.reset(out.observation)
    assert out.observation.tolist() == [[0], [0], [0]]
    found: dict[str, list[list[float]]] = {name: [] for name in WANTED}
    index = []
    for actions in ACTIONS:
        for values in out:  # poison, of which nothing may be left
            values.view(torch.uint8).fill_(255)
        env.step(torch.tensor(actions, dtype=torch.int32), out)
        for name, values in out._asdict().items():
            found[name].append(values.flatten().tolist())
        index.append(env.state()["episode_index"].tolist())
    return found, index


def test_five_steps_in_full(tmp_path: Path) -> None:
    found, index = five_steps(NativeVectorEnv(counting(tmp_path, LIMIT), 3, 1, CPU))
    for name, wanted in WANTED.items():
        assert found[name] == wanted, name
    assert index == INDEX


def test_another_limit_is_another_table(tmp_path: Path) -> None:
    found, _ = five_steps(NativeVectorEnv(counting(tmp_path, 5), 3, 1, CPU))
    assert found["truncated"] == [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert found["terminated"] == WANTED["terminated"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("truncated[n] = length >= max_episode_steps", "truncated[n] = length > max_episode_steps"),
        ("truncated[n] = length >= max_episode_steps", "truncated[n] = length >= max_episode_steps && !dead"),
        ("terminated[n] = dead;", "terminated[n] = dead || length >= max_episode_steps;"),
        ("if (!terminated[first] && !truncated[first]) continue;", "if (!terminated[first]) continue;"),
        ("episode_return[n] = 0.0f;", ""),
        ("episode_length[n] = 0;", ""),
        ("state, observation);", "state, final_observation);"),
        ("(unsigned long long)episode_index[first] + 1;", "(unsigned long long)episode_index[first];"),
        ("const float total = episode_return[n] + earned;", "const float total = episode_return[n];"),
    ],
)
def test_planted_faults(right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each breaks the contract in one place of the step kernel."""
    kernel = kernels.ENV_STEP_DISCRETE
    text = kernel.path.read_text()
    assert text.count(right) == 1
    (tmp_path / kernel.path.name).write_text(text.replace(right, wrong))
    monkeypatch.setattr(kernel, "path", tmp_path / kernel.path.name)
    for cache in ("_functions", "_plans"):
        monkeypatch.setattr(kernel, cache, {})
    found, index = five_steps(NativeVectorEnv(counting(tmp_path, LIMIT), 3, 1, CPU))
    assert (found, index) != (WANTED, INDEX)
