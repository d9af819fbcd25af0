"""An iteration's numbers."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import reference
import torch
from compare import poisoned
from conftest import Plant
from torch import Tensor

from kernels.launcher import Kernel
from kernels.summary import NUMBERS, ROLLOUT_SUMS, SUMMARY, SUMS, partitions, summary

pytestmark = pytest.mark.usefixtures("quick_builds")


@dataclass(frozen=True)
class Iteration:
    """M samples of a rollout and K minibatches, in the order of `summary`'s arguments."""

    observation: Tensor
    reward: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    terminated: Tensor
    truncated: Tensor
    episode_return: Tensor
    episode_length: Tensor
    metrics: Tensor
    norms: Tensor


def iteration(M: int = 3000, K: int = 7, seed: int = 0) -> Iteration:
    g = torch.Generator().manual_seed(seed)
    reward, log_prob, advantage = (torch.randn(M, generator=g) for _ in range(3))
    target = 5.0 + 2.0 * torch.randn(M, generator=g)
    value = torch.cat([target + torch.randn(M, generator=g), torch.randn(11, generator=g)])
    terminated, truncated = ((torch.rand(M, generator=g) < 0.1).to(torch.uint8) for _ in range(2))
    episode_return = 30.0 * torch.randn(M, generator=g)
    episode_length = torch.randint(1, 500, (M,), generator=g, dtype=torch.int64).int()
    metrics, norms = torch.randn(K, 5, generator=g), torch.rand(K, generator=g)
    ends = (terminated, truncated, episode_return, episode_length)
    return Iteration(
        torch.randn(4 * M + 3, generator=g), reward, log_prob, value, advantage, target, *ends, metrics, norms
    )


def run(data: Iteration) -> dict[str, float]:
    W, M = data.metrics.shape[1], len(data.reward)
    numbers = poisoned(len(NUMBERS) + W, dtype=torch.float64)
    summary(*vars(data).values(), poisoned(partitions(M), SUMS, dtype=torch.float64), numbers)
    return dict(zip((*NUMBERS, *range(W)), numbers.tolist(), strict=True))


def check(data: Iteration) -> None:
    got, wanted = run(data), reference.summary(*(x.numpy() for x in vars(data).values()))
    assert list(got.values()) == pytest.approx(wanted, rel=1e-12, abs=1e-12, nan_ok=True)


def usual() -> None:
    check(iteration())


@pytest.mark.parametrize("M", [1, 2, 7, 33, 1000, 70_000])
@pytest.mark.parametrize("K", [1, 7])
def test_reference(M: int, K: int) -> None:
    check(iteration(M, K, seed=M))


def test_four_samples_by_hand() -> None:
    """Two episodes, of returns 10 and 20 and lengths 3 and 5; of the targets' variance the critic leaves a quarter."""
    data = replace(
        iteration(4, 2),
        target=torch.tensor([0.0, 4.0, 0.0, 4.0]),
        value=torch.tensor([1.0, 3.0, 1.0, 3.0, float("inf")]),
        terminated=torch.tensor([1, 0, 0, 1], dtype=torch.uint8),
        truncated=torch.tensor([0, 0, 0, 1], dtype=torch.uint8),
        episode_return=torch.tensor([10.0, 99.0, 99.0, 20.0]),
        episode_length=torch.tensor([3, 99, 99, 5], dtype=torch.int32),
        metrics=torch.tensor([[1.0], [2.0]]),
        norms=torch.tensor([3.0, 4.0]),
    )
    assert list(run(data).values()) == [2.0, 15.0, 4.0, 0.75, 1.0, 3.5, 1.5]


def test_without_an_ended_episode_the_means_are_nan() -> None:
    data = iteration()
    none = torch.zeros_like(data.terminated)
    got = run(replace(data, terminated=none, truncated=none))
    assert got["episodes"] == 0
    assert math.isnan(got["episode_return_mean"])
    assert math.isnan(got["episode_length_mean"])
    assert math.isfinite(got["explained_variance"])


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6, 3e30])
def test_targets_that_never_change_explain_nothing(constant: float) -> None:
    data = iteration()
    assert math.isnan(run(replace(data, target=torch.full_like(data.target, constant)))["explained_variance"])


def test_a_perfect_critic_explains_all_and_a_constant_one_nothing() -> None:
    data = iteration()
    assert run(replace(data, value=data.target.clone()))["explained_variance"] == 1.0
    flat = torch.full_like(data.target, 3.0)
    assert run(replace(data, value=flat))["explained_variance"] == pytest.approx(0.0, abs=1e-12)


def not_finite() -> None:
    """Wherever it stands, each NaN and each infinity counts once."""
    clean = iteration()
    assert run(clean)["not_finite"] == 0
    for name in ("observation", "reward", "log_prob", "value", "advantage"):
        array = getattr(clean, name).clone()
        array[[0, len(array) // 2, len(array) - 1]] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        assert run(replace(clean, **{name: array}))["not_finite"] == 3, name


def test_what_is_not_finite_is_counted() -> None:
    not_finite()


def far_from_zero() -> None:
    """A variance that is small beside the mean's square keeps its digits."""
    data = iteration()
    target = 1e4 + torch.randn(len(data.target), generator=torch.Generator().manual_seed(1))
    check(replace(data, target=target, value=target + 0.25 * torch.randn(len(target))))


def test_targets_far_from_zero() -> None:
    far_from_zero()


def fillers() -> None:
    """Rows of length 0 are no samples: the numbers are those of the rollout without them."""
    data, living = iteration(), torch.rand(3000, generator=torch.Generator().manual_seed(2)) < 0.6
    living[0] = True
    M = len(living)
    short = {name: array[:M] for name, array in vars(data).items() if name not in ("observation", "metrics", "norms")}
    mixed = replace(data, **{**short, "episode_length": short["episode_length"] * living.int()})
    alone = replace(data, **{name: array[living] for name, array in short.items()})
    assert list(run(mixed).values()) == pytest.approx(list(run(alone).values()), rel=1e-9)


def test_filler_rows_are_no_samples() -> None:
    fillers()


FAULTS: dict[str, tuple[Kernel, str, str, Any]] = {
    "deaths are no ends": (ROLLOUT_SUMS, "terminated[i] || truncated[i]", "truncated[i]", usual),
    "every step's return counts": (ROLLOUT_SUMS, "ended ? (double)episode_return[i] : 0.0", "episode_return[i]", usual),
    "the values' variance": (ROLLOUT_SUMS, "double t = (double)target[i]", "double t = (double)value[i]", usual),
    "the last values are not seen": (ROLLOUT_SUMS, "valued = block_share(V)", "valued = block_share(M)", not_finite),
    "rewards are not looked at": (ROLLOUT_SUMS, "not_finite(reward[i]) + ", "", not_finite),
    "infinity is finite": (ROLLOUT_SUMS, "x - x == 0.0f", "x == x", not_finite),
    "float32": (ROLLOUT_SUMS, "double sum[SUMS] = {}", "float sum[SUMS] = {}", usual),
    "a lane is left out": (ROLLOUT_SUMS, "lane = 0; lane < LANES", "lane = 1; lane < LANES", usual),
    "fillers are samples": (ROLLOUT_SUMS, "episode_length[i] == 0", "false", fillers),
    "a partition is left out": (SUMMARY, "p < P", "p < P - 1", usual),
    "explained variance upside down": (SUMMARY, "1.0 - error / target", "1.0 - target / error", usual),
    "second moments for variances": (SUMMARY, "- sum[ERROR] / m * (sum[ERROR] / m)", "", usual),
    "metrics of the first minibatch": (SUMMARY, "metrics[k * W + w]", "metrics[w]", usual),
    "the norms' sum": (SUMMARY, "norm / (double)K", "norm", usual),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    kernel, right, wrong, check_ = FAULTS[fault]
    plant(kernel, right, wrong)
    with pytest.raises(AssertionError):
        check_()


def test_numpy_agrees_with_the_reference() -> None:
    """The reference's explained variance, by another formula."""
    data = iteration()
    residual = (data.target - data.value[: len(data.target)]).double().numpy()
    wanted = 1 - np.var(residual) / np.var(data.target.double().numpy())
    assert run(data)["explained_variance"] == pytest.approx(wanted, rel=1e-6)
