"""What a precision of the matrix products costs where a ratio must be 1: in the first minibatch of the first epoch."""

from pathlib import Path

import pytest
import torch
from test_ppo import log_prob_and_entropy
from torch import Tensor
from training import small

import envs
from kernels.errors import UserError
from kernels.ppo_loss import METRICS
from pipeline import config as configuration
from pipeline.assembly import Training, assemble
from pipeline.general import General
from pipeline.policy import Head
from pipeline.profile import Clock

CPU = torch.device("cpu")
# The general path asks for N rows in the rollout and for B in the update, and a library adds up either as it likes.
RATIO_BOUNDS = {"float32": 2e-6, "bf16": 0.02}
# Of an answer, between the precisions: 8 bits of a factor, some layers.
LEAST, MOST = 1e-4, 0.05


def begin(matmul: str, name: str = "cartpole", *more: str) -> Training:
    config = small(Path(), f"env={name}", f"device.matmul={matmul}", "ppo.num_envs=24", "ppo.total_steps=768", *more)
    training = assemble(config, envs.spec(name, 20), CPU, Clock(CPU))
    training.flat.parameters.mul_(3.0)  # so that the first policy is not the same everywhere
    return training


def ratios(training: Training) -> Tensor:
    """Of the first minibatch's samples, by the policy that played them."""
    ppo = training.ppo
    ppo.collect()
    index = torch.randperm(ppo.config.batch_size, generator=torch.Generator().manual_seed(1))[:96]

    class Model:
        @staticmethod
        def distribution(observation: Tensor) -> Tensor:
            found: Tensor = ppo.path.network.distribution(observation)  # type: ignore[attr-defined]
            assert found.dtype == torch.float32
            return found.double()

    seen, action, old = ppo.rollout.seen[index], ppo.rollout.recorded[0][index], ppo.rollout.recorded[1][index]
    assert old.dtype == torch.float32
    log_prob, _ = log_prob_and_entropy(Model(), seen, action)  # type: ignore[arg-type]
    return (log_prob - old.double()).exp()


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
@pytest.mark.parametrize("matmul", RATIO_BOUNDS)
def test_the_first_ratio(matmul: str, name: str) -> None:
    found = ratios(begin(matmul, name, "device.fused=false"))
    assert (found - 1).abs().max() <= RATIO_BOUNDS[matmul]


def test_the_first_ratio_is_one_on_the_fast_path() -> None:
    ppo = begin("float32").ppo
    ppo.iterate()
    first = dict(zip(METRICS, ppo._metrics[0].tolist(), strict=True))
    assert (first["approx_kl"], first["clip_fraction"]) == (0.0, 0.0)
    assert ppo._metrics[1, METRICS.index("approx_kl")] > 0


def check_answers() -> None:
    """bf16 is another answer, near the one in float32, and not itself rounded to 8 bits."""
    exact, rough = begin("float32", "cartpole", "device.fused=false"), begin("bf16")
    assert rough.path.startswith("general path (device.matmul=bf16)")
    seen = torch.randn(200, 4, generator=torch.Generator().manual_seed(2))
    for question in ("distribution", "value"):
        wanted, found = (getattr(each.ppo.path.network, question)(seen) for each in (exact, rough))  # type: ignore[attr-defined]
        assert found.dtype == torch.float32
        assert LEAST < (found - wanted).abs().max() / wanted.abs().max() < MOST
        assert (found != found.bfloat16().float()).any()


def test_answers_are_float32() -> None:
    check_answers()


def test_planted_rounded_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Head, "forward", torch.nn.Linear.forward)
    with pytest.raises(AssertionError):
        check_answers()


def test_trains_in_bf16() -> None:
    training = begin("bf16")
    assert isinstance(training.ppo.path, General)
    before = training.flat.parameters.clone()
    metrics = training.ppo.iterate()
    rollout = training.ppo.rollout
    assert {each.dtype for each in (rollout.log_probs, rollout.values, rollout.advantages, before)} == {torch.float32}
    assert (training.flat.parameters != before).any()
    assert metrics["policy_loss"] == metrics["policy_loss"]


def test_it_is_part_of_what_a_training_follows_from() -> None:
    one, other = (small(Path(), f"device.matmul={each}") for each in ("float32", "bf16"))
    assert configuration.sha256(one) != configuration.sha256(other)
    assert configuration.decisive(other)["matmul"] == "bf16"


def test_tf32_is_cudas() -> None:
    with pytest.raises(UserError, match=r"device\.matmul: wanted float32 or bf16 on cpu; got 'tf32'"):
        begin("tf32")
