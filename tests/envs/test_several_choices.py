"""Actions that are several choices at once: learned on both paths, validated, sampled and told apart."""

from pathlib import Path

import pytest
import torch
from test_sanity import CPU, PATHS, SEEDS, play, train

from envs.spec import EnvSpec, MultiDiscrete
from envs.validation import Plan, validate
from envs.vector import NativeVectorEnv, empty_output
from kernels.sample import sample_several
from pipeline import policy as policies

LIMIT = 8
DIALS = EnvSpec(
    "dials", 0, (0.0,) * 4, (1.0,) * 4, MultiDiscrete((3, 2)), LIMIT, 2, (0.0, 1.0), Path(__file__).with_name("dials.h")
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", SEEDS)
def test_both_choices_are_learned(path: str, seed: int) -> None:
    """A guess earns 5/12 a step, both choices learned 1, one of them at most 3/4."""
    policy = train(path, DIALS, seed, 24_576)
    assert play(policy, DIALS, True).returns.mean() > 0.95 * LIMIT


def test_the_environment_is_sound() -> None:
    checks = validate(lambda spec, count, seed: NativeVectorEnv(spec, count, seed, CPU), Plan(DIALS, 5, 40, 1))
    assert [check.name for check in checks if check.verdict != "pass"] == []


def test_a_choice_that_is_none_makes_the_environment_nan() -> None:
    env, out = NativeVectorEnv(DIALS, 3, 1, CPU), empty_output(DIALS, 3, CPU)
    env.reset(out.observation)
    env.step(torch.tensor([[2, 1], [3, 0], [0, -1]], dtype=torch.int32), out)
    assert out.reward.isnan().tolist() == [False, True, True]


def test_mode_takes_the_largest_of_each() -> None:
    action = torch.empty(2, 2, dtype=torch.int32)
    policies.mode(torch.tensor([[0.0, 2.0, 1.0, 5.0, 4.0], [9.0, 1.0, 1.0, 0.0, 0.5]]), action, (3, 2))
    assert action.tolist() == [[1, 0], [0, 1]]


def test_logits_must_be_as_many_as_the_choices_have_actions() -> None:
    outputs = (torch.empty(1, 2, dtype=torch.int32), torch.empty(1), torch.empty(1))
    with pytest.raises(ValueError, match="wanted 5 logits for choices of"):
        sample_several(torch.zeros(1, 4), *outputs, 0, 1, (3, 2))
