"""Advantages: where an episode's value comes from, and where the recursion stops."""

import pytest
import reference
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor

from kernels.gae import GAE, gae

pytestmark = pytest.mark.usefixtures("quick_builds")


def rollout(T: int, N: int, seed: int) -> tuple[Tensor, ...]:
    """Rewards, values, final values and both flags; a third of the steps ends, some in both ways."""
    g = torch.Generator().manual_seed(seed)
    terminated, truncated = ((torch.rand(T, N, generator=g) < 0.2).to(torch.uint8) for _ in range(2))
    rewards, values, final_values = (torch.randn(T + k, N, generator=g) for k in (0, 1, 0))
    return rewards, values, final_values, terminated, truncated


def run(inputs: tuple[Tensor, ...], gamma: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    advantages, returns = poisoned(*inputs[0].shape), poisoned(*inputs[0].shape)
    gae(*inputs, advantages, returns, gamma, gae_lambda)
    return advantages, returns


def check(T: int = 33, N: int = 7, seed: int = 0) -> None:
    inputs = rollout(T, N, seed)
    assert_close(run(inputs, 0.99, 0.95), reference.gae, *inputs, 0.99, 0.95)


@pytest.mark.parametrize(("T", "N"), [(1, 1), (7, 1), (33, 257), (128, 8)])
def test_reference(T: int, N: int) -> None:
    check(T, N)


def test_three_steps_by_hand() -> None:
    """gamma = lambda = 1/2; columns: no end, death at t=1, time limit at t=1, both at t=1, time limit at the last."""
    ones = torch.ones(3, 5)
    rewards = torch.tensor([1.0, 2.0, 3.0])[:, None] * ones
    values = torch.tensor([4.0, 8.0, 16.0, 32.0])[:, None] * torch.ones(4, 5)
    final_values = 100.0 * ones
    terminated = torch.tensor([[0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], dtype=torch.uint8)
    truncated = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]], dtype=torch.uint8)
    advantages, returns = run((rewards, values, final_values, terminated, truncated), 0.5, 0.5)
    # deltas without an end: 1 + 4 - 4 = 1, 2 + 8 - 8 = 2, 3 + 16 - 16 = 3; the recursion multiplies by 1/4
    last, middle = 3.0, 2.0 + 3.0 / 4
    assert advantages[:, 0].tolist() == [1 + middle / 4, middle, last]
    # death: delta = 2 + 0 - 8 = -6, and nothing follows
    assert advantages[:, 1].tolist() == [1 - 6 / 4, -6.0, last]
    # time limit: delta = 2 + 100 / 2 - 8 = 44, and nothing follows
    assert advantages[:, 2].tolist() == [1 + 44 / 4, 44.0, last]
    # both on one step: a death
    assert advantages[:, 3].tolist() == [1 - 6 / 4, -6.0, last]
    # time limit on the rollout's last step: delta = 3 + 100 / 2 - 16 = 37
    assert advantages[:, 4].tolist() == [1 + (2 + 37 / 4) / 4, 2 + 37 / 4, 37.0]
    assert torch.equal(returns, advantages + values[:3])


def test_with_lambda_1_the_return_is_the_discounted_sum_of_rewards() -> None:
    rewards, values, final_values, _, _ = rollout(20, 3, seed=1)
    never = torch.zeros(20, 3, dtype=torch.uint8)
    _, returns = run((rewards, values, final_values, never, never), 0.9, 1.0)
    discounts = 0.9 ** torch.arange(20, dtype=torch.float64)
    wanted = (discounts[:, None] * rewards).sum(0) + 0.9**20 * values[20]
    assert torch.allclose(returns[0].double(), wanted, rtol=1e-5, atol=1e-5)


def test_final_values_are_read_only_at_time_limits() -> None:
    rewards, values, final_values, terminated, truncated = rollout(33, 7, seed=2)
    unread = final_values.masked_fill((truncated == 0) | (terminated == 1), float("nan"))
    assert not run((rewards, values, unread, terminated, truncated), 0.99, 0.95)[0].isnan().any()


BOOTSTRAP = "terminated[i] ? 0.0f : truncated[i] ? final_values[i] : values[i + N]"
FAULTS = {
    "a time limit is a death": (BOOTSTRAP, "ended ? 0.0f : values[i + N]"),
    "a death bootstraps": (BOOTSTRAP, "truncated[i] ? final_values[i] : values[i + N]"),
    "the recursion runs across a time limit": ("(ended ? 0.0f : gamma", "(terminated[i] ? 0.0f : gamma"),
    "the recursion runs across a death": ("(ended ? 0.0f : gamma", "(truncated[i] ? 0.0f : gamma"),
    "bootstrap from the state before the end": ("? final_values[i] :", "? values[i] :"),
    "bootstrap from the observation after the reset": ("? final_values[i] :", "? values[i + N] :"),
    "the time limit wins over the death": (
        BOOTSTRAP,
        "truncated[i] ? final_values[i] : terminated[i] ? 0.0f : values[i + N]",
    ),
    "flags off by one": ("terminated[i] || truncated[i]", "i >= N && (terminated[i - N] || truncated[i - N])"),
    "the last step gets no advantage": ("advantages[i] = advantage;", "advantages[i] = t == T - 1 ? 0.0f : advantage;"),
    "a time limit drops its reward": ("delta = rewards[i] +", "delta = (truncated[i] ? 0.0f : rewards[i]) +"),
    "a time limit drops its whole delta": ("delta + (", "(truncated[i] ? 0.0f : delta) + ("),
    "lambda is not used": ("gamma * gae_lambda *", "gamma *"),
    "wrong by a thousandth of a percent": ("advantage = delta +", "advantage = 1.00001f * delta +"),
    "the return has no value": ("advantage + values[i];", "advantage;"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(GAE, *FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check()
