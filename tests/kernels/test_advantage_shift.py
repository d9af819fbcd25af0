"""Normalization of minibatches' advantages."""

import pytest
import reference
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor

from kernels.advantage_shift import ADVANTAGE_SHIFT, advantage_shift

pytestmark = pytest.mark.usefixtures("quick_builds")


def run(advantage: Tensor, *indices: Tensor) -> Tensor:
    """(2) of one minibatch, (K, 2) of several."""
    shifts = poisoned(len(indices), 2)
    advantage_shift(advantage, torch.stack(indices), shifts)
    return shifts if len(indices) > 1 else shifts[0]


def minibatch(B: int, seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(B + 10, generator=g) * 3.0 + 1.0, torch.randperm(B + 10, generator=g)[:B].int()


def check(B: int, seed: int = 0) -> None:
    advantage, index = minibatch(B, seed)
    assert_close([run(advantage, index)], reference.advantage_shift, advantage, index)


@pytest.mark.parametrize("B", [1, 2, 7, 33, 257, 4100])
def test_reference(B: int) -> None:
    check(B)


def test_several_minibatches_at_once() -> None:
    advantage, index = minibatch(33, seed=1)
    for K in (2, 7):
        indices = [index.roll(k)[:9].contiguous() for k in range(K)]
        assert torch.equal(run(advantage, *indices), torch.stack([run(advantage, i) for i in indices]))


def test_four_samples_by_hand() -> None:
    # of 1, 3, 5, 7: mean 4, deviations -3, -1, 1, 3, sum of squares 20, divided by 3
    shift = run(torch.tensor([1.0, 99.0, 3.0, 5.0, 7.0]), torch.tensor([4, 0, 2, 3], dtype=torch.int32))
    assert shift.tolist() == pytest.approx([4.0, (3 / 20) ** 0.5], rel=1e-6)


def test_one_sample_passes_as_it_is() -> None:
    assert run(torch.tensor([5.0]), torch.tensor([0], dtype=torch.int32)).tolist() == [0.0, 1.0]


def test_equal_advantages_stay_finite() -> None:
    shift = run(torch.full((9,), 2.0), torch.arange(9, dtype=torch.int32))
    assert (torch.full((9,), 2.0) - shift[0]).mul(shift[1]).tolist() == [0.0] * 9


def test_the_result_has_mean_0_and_deviation_1() -> None:
    advantage, index = minibatch(257, seed=3)
    shift = run(advantage, index)
    normalized = ((advantage - shift[0]) * shift[1])[index.long()].double()
    assert float(normalized.mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(normalized.std()) == pytest.approx(1.0, abs=1e-6)


FAULTS = {
    "the deviation divides by B": ("(float)(B - 1))", "(float)B)"),
    "the whole rollout, not the minibatch": ("advantage[index[first + b]]", "advantage[first + b]"),
    "the second half is left out": ("b < count; b += LANES", "b < count / 2; b += LANES"),
    "variance in place of deviation": ("(square_root(sum / (float)(B - 1)) +", "(sum / (float)(B - 1) +"),
    "deviation from 0": ("- mean[0];", ";"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(ADVANTAGE_SHIFT, *FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check(33)


def test_a_minibatch_of_one_that_is_normalized_is_found(plant: Plant) -> None:
    plant(ADVANTAGE_SHIFT, "B > 1 ? ", "B > 0 ? ")
    with pytest.raises(AssertionError, match="outside"):
        check(1)
