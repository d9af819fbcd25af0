"""The PPO loss: its metrics, its gradient, and on which side it clips."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import reference
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor
from torch.distributions import Categorical, Normal

from kernels.ppo_loss import CATEGORICAL, GAUSSIAN, METRICS, SUM, ppo_loss

pytestmark = pytest.mark.usefixtures("quick_builds")

COEFFICIENTS = (0.2, 0.01, 0.7)  # clip, entropy, value


@dataclass(frozen=True)
class Minibatch:
    """B samples of a rollout of M, in the order of the kernel's arguments."""

    parameters: Tensor
    value: Tensor
    index: Tensor
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    shift: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(vars(self).values())


def minibatch(B: int, A: int, gaussian: bool, seed: int = 0) -> Minibatch:
    """Samples on both sides of the clip range, with advantages of both signs."""
    g = torch.Generator().manual_seed(seed)
    M = B + 100
    index = torch.randperm(M, generator=g)[:B].int()
    parameters = 0.5 * torch.randn(B, 2 * A if gaussian else A, generator=g)
    action = (
        torch.randn(M, A, generator=g) if gaussian else torch.randint(A, (M,), generator=g, dtype=torch.int64).int()
    )
    log_prob = log_prob_and_entropy(parameters, action[index.long()])[0]
    old_log_prob = torch.zeros(M)
    old_log_prob[index.long()] = log_prob + 0.25 * torch.randn(B, generator=g)
    value, advantage, returns = (torch.randn(size, generator=g) for size in (B, M, M))
    return Minibatch(parameters, value, index, action, old_log_prob, advantage, returns, torch.tensor([0.1, 1.3]))


def log_prob_and_entropy(parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """torch's, both (B)."""
    if not action.is_floating_point():
        categorical = Categorical(logits=parameters)
        return categorical.log_prob(action), categorical.entropy()
    mean, log_std = parameters.chunk(2, dim=-1)
    normal = Normal(mean, log_std.exp())
    return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)


def run(batch: Minibatch, coefficients: tuple[float, float, float] = COEFFICIENTS) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient by parameters and by value, and the metrics."""
    outputs = poisoned(*batch.parameters.shape), poisoned(len(batch.value)), poisoned(len(METRICS))
    clip_coef, ent_coef, vf_coef = coefficients
    ppo_loss(*batch.tensors(), *outputs, clip_coef=clip_coef, ent_coef=ent_coef, vf_coef=vf_coef)
    return outputs


def check(B: int, A: int, gaussian: bool, seed: int = 0) -> None:
    batch = minibatch(B, A, gaussian, seed)
    assert_close(run(batch), reference.ppo_loss, *batch.tensors(), *COEFFICIENTS)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize(("B", "A"), [(1, 2), (7, 3), (33, 1), (257, 4), (1024, 4)])
def test_reference(B: int, A: int, gaussian: bool) -> None:
    check(B, A, gaussian)


@pytest.mark.parametrize("gaussian", [False, True])
def test_gradient_is_that_of_torch_in_float64(gaussian: bool) -> None:
    batch = minibatch(257, 3, gaussian, seed=5)
    parameters, value, index, action, old, advantage, returns, shift = (
        t.double() if t.is_floating_point() else t.long() for t in batch.tensors()
    )
    parameters.requires_grad_()
    value.requires_grad_()
    clip_coef, ent_coef, vf_coef = COEFFICIENTS
    log_prob, entropy = log_prob_and_entropy(parameters, action[index])
    ratio, a = (log_prob - old[index]).exp(), (advantage[index] - shift[0]) * shift[1]
    policy_loss = -torch.min(ratio * a, ratio.clamp(1 - clip_coef, 1 + clip_coef) * a).mean()
    value_loss = 0.5 * ((value - returns[index]) ** 2).mean()
    (policy_loss - ent_coef * entropy.mean() + vf_coef * value_loss).backward()
    grad_parameters, grad_value, metrics = run(batch)
    assert torch.allclose(grad_parameters.double(), parameters.grad, rtol=1e-5, atol=1e-8)
    assert torch.allclose(grad_value.double(), value.grad, rtol=1e-5, atol=1e-8)
    kl = ((ratio - 1) - ratio.log()).mean()
    fraction = ((ratio - 1).abs() > clip_coef).double().mean()
    wanted = [float(m.detach()) for m in (policy_loss, value_loss, entropy.mean(), kl, fraction)]
    assert metrics.tolist() == pytest.approx(wanted, rel=1e-5)


def clipped_term(ratio: float, advantage: float, eps: float = 0.2) -> float:
    bounded = min(1 + eps, max(1 - eps, ratio))
    return min(ratio * advantage, bounded * advantage)


assert clipped_term(1.5, 1.0) == 1.2  # no extra credit above 1 + eps
assert clipped_term(0.5, -1.0) == -0.8  # no extra credit below 1 - eps
assert clipped_term(1.5, -1.0) == -1.5  # clipping does not erase a bad move


def single(ratio: float, advantage: float) -> Minibatch:
    """One sample of two equally likely actions whose probability was 1 / (2 ratio)."""
    return Minibatch(
        parameters=torch.zeros(1, 2),
        value=torch.zeros(1),
        index=torch.zeros(1, dtype=torch.int32),
        action=torch.zeros(1, dtype=torch.int32),
        old_log_prob=torch.tensor([0.5 / ratio]).log(),
        advantage=torch.tensor([advantage]),
        returns=torch.zeros(1),
        shift=torch.tensor([0.0, 1.0]),
    )


@pytest.mark.parametrize("ratio", [0.5, 0.81, 1.0, 1.19, 1.5])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_policy_loss_is_the_clipped_term(ratio: float, advantage: float) -> None:
    batch = single(ratio, advantage)
    grad_parameters, _, metrics = run(batch, (0.2, 0.0, 0.5))
    assert float(metrics[0]) == pytest.approx(-clipped_term(ratio, advantage), rel=1e-6)
    # d ratio / d logit is ratio * (1 - 1/2) for the action taken; where the term is clipped there is no gradient
    moves = clipped_term(ratio, advantage) == ratio * advantage
    slope = -ratio * advantage / 2 if moves else 0.0
    assert grad_parameters[0].tolist() == pytest.approx([slope, -slope], rel=1e-6, abs=0.0)
    assert float(metrics[4]) == (1.0 if abs(ratio - 1) > 0.2 else 0.0)


def test_value_loss_by_hand() -> None:
    """V = 3, R = 1: value loss 0.5 * 2^2 = 2; its gradient, times vf_coef 0.5, is 1."""
    batch = replace(single(1.0, 1.0), value=torch.tensor([3.0]), returns=torch.tensor([1.0]))
    _, grad_value, metrics = run(batch, (0.2, 0.0, 0.5))
    assert float(metrics[1]) == 2.0
    assert grad_value.tolist() == [1.0]


def test_entropy_gradient_moves_towards_the_uniform_policy() -> None:
    batch = replace(single(1.0, 0.0), parameters=torch.tensor([[1.0, -1.0]]))
    grad_parameters, _, _ = run(batch, (0.2, 0.1, 0.5))
    assert grad_parameters[0, 0] > 0 > grad_parameters[0, 1]  # descent lowers the likelier action's logit


def test_an_unchanged_policy_has_no_kl_and_clips_nothing() -> None:
    batch = minibatch(33, 4, gaussian=False)
    log_prob = log_prob_and_entropy(batch.parameters, batch.action[batch.index.long()])[0]
    old_log_prob = batch.old_log_prob.index_copy(0, batch.index.long(), log_prob)
    metrics = run(replace(batch, old_log_prob=old_log_prob))[2]
    assert metrics[3:].tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_rows_outside_the_minibatch_do_not_count() -> None:
    batch = minibatch(33, 4, gaussian=False)
    outside = torch.ones(133, dtype=torch.bool)
    outside[batch.index.long()] = False
    names = ("old_log_prob", "advantage", "returns")
    changes: dict[str, Any] = {name: getattr(batch, name).masked_fill(outside, float("nan")) for name in names}
    for one, other in zip(run(batch), run(replace(batch, **changes)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("P", [1, 7, 512])
def test_partials_are_summed(P: int) -> None:
    partials = torch.randn(P, 5, generator=torch.Generator().manual_seed(P))
    mean = poisoned(5)
    SUM(partials, mean, 700)
    assert_close([mean], lambda p: [p.sum(axis=0) / p.dtype.type(700)], partials)


FAULTS = {
    "value loss without its half": ("0.5f * error * error", "error * error"),
    "value loss halved twice": ("0.5f * error * error", "0.25f * error * error"),
    "value gradient halved twice": ("vf_coef * error * scale", "0.5f * vf_coef * error * scale"),
    "value gradient not halved": ("vf_coef * error * scale", "2.0f * vf_coef * error * scale"),
    "clip range 1 / (1 + eps)": ("low = 1.0f - clip_coef", "low = 1.0f / (1.0f + clip_coef)"),
    "clip range exp(eps)": ("high = 1.0f + clip_coef", "high = exp_(clip_coef)"),
    "only the upper side is clipped": ("clamp(ratio, low, high)", "clamp(ratio, 0.0f, high)"),
    "a ratio outside has no gradient, good move or bad": (
        "by_log_prob = select(cut,",
        "by_log_prob = select(bounded != ratio,",
    ),
    "a clipped ratio keeps its gradient": ("by_log_prob = select(cut,", "by_log_prob = select(false,"),
    "the larger surrogate": (
        "-select(cut, surrogate_clipped, surrogate)",
        "-select(cut, surrogate, surrogate_clipped)",
    ),
    "the policy goes downhill": ("-surrogate * scale)", "surrogate * scale)"),
    "entropy with the wrong sign": ("-ent_coef * scale", "ent_coef * scale"),
    "entropy's gradient is left out": ("-ent_coef * scale", "0.0f"),
    "advantages are not normalized": ("* advantage_shift[1]", ""),
    "the rollout's rows are not looked up": ("const int i = index[b];", "const int i = b;"),
    "the gradient of the sum": ("scale = 1.0f / (float)B", "scale = 1.0f"),
    "approximate KL: the noisy estimator": ("(ratio - 1.0f) - log_ratio", "-log_ratio"),
    "clip fraction of the upper side": ("(ratio < low) | (ratio > high)", "ratio > high"),
}
CATEGORICAL_FAULTS = {
    "categorical: entropy gradient without the entropy": (
        "(log_probs[first + a] + h)",
        "(log_probs[first + a] + 1.0f)",
    ),
    "categorical: no gradient for the actions not taken": ("(one_hot - p)", "(one_hot - one_hot * p)"),
}
GAUSSIAN_FAULTS = {
    "Gaussian: deviation's gradient": ("(z * z - 1.0f)", "(z * z)"),
    "Gaussian: mean's gradient per deviation": ("by_log_prob * z * inverse_std", "by_log_prob * z"),
    "Gaussian: the first dimension only": ("sum = sum + (-0.5f", "sum = (-0.5f"),
}


@pytest.mark.parametrize("fault", FAULTS | CATEGORICAL_FAULTS)
def test_categorical_fault_is_found(plant: Plant, fault: str) -> None:
    plant(CATEGORICAL, *(FAULTS | CATEGORICAL_FAULTS)[fault])
    with pytest.raises(AssertionError, match="outside"):
        check(257, 4, gaussian=False)


@pytest.mark.parametrize("fault", GAUSSIAN_FAULTS)
def test_gaussian_fault_is_found(plant: Plant, fault: str) -> None:
    plant(GAUSSIAN, *GAUSSIAN_FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check(257, 3, gaussian=True)


SUM_FAULTS = [("sum / (float)count", "sum / (float)P"), ("p < P; p++", "p < P - 1; p++"), ("p * K + k", "k * P + p")]


@pytest.mark.parametrize(("right", "wrong"), SUM_FAULTS)
def test_fault_in_the_sum_is_found(plant: Plant, right: str, wrong: str) -> None:
    plant(SUM, right, wrong)
    with pytest.raises(AssertionError, match="outside"):
        check(1024, 4, gaussian=False)
