"""The yardstick's chains: they do all the work that is counted, so that it cannot show too high a peak."""

from typing import Any

import pytest
import torch
from compare import assert_close
from conftest import Plant

from kernels.fma_peak import BLOCK, FMA_PEAK, fma_peak


def closed_form(x: Any, factor: Any, offset: Any, rounds: int) -> Any:
    """x after `rounds` times factor * x + offset, as a geometric series."""
    power = factor**rounds
    return (power * x + offset * ((1 - power) / (1 - factor)),)


def check(n: int = BLOCK + 77, rounds: int = 5) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n))
    after = x.clone()
    fma_peak(after, rounds, 0.75, 0.5)
    assert_close((after,), lambda x, factor, offset: closed_form(x, factor, offset, rounds), x, 0.75, 0.5)


@pytest.mark.parametrize("n", [1, 33, 96, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_reference(n: int, rounds: int) -> None:
    check(n, rounds)


def test_one_rounding_by_hand() -> None:
    """(1 + 2^-12)^2 - 1 - 2^-11 is 2^-24; a product that is rounded on its own would leave 0."""
    x = torch.full((BLOCK + 1,), 1 + 2.0**-12)
    fma_peak(x, 1, 1 + 2.0**-12, -1 - 2.0**-11)
    assert x.tolist() == [2.0**-24] * (BLOCK + 1)


FAULTS = {
    "a chain is left out": ("c < CHAINS; c++) next(", "c < CHAINS - 1; c++) next("),
    "a round is left out": (
        "for (int r = 0; r < rounds; r++)\n            UNROLL",
        "for (int r = 1; r < rounds; r++)\n            UNROLL",
    ),
    "the last floats stay": ("BLOCK_FOR(i, share.begin + groups * GROUP", "BLOCK_FOR(i, share.end"),
    "the offset is left out": ("(x, factor, offset)", "(x, factor, 0.0f)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(FMA_PEAK, *FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check()


def test_a_separate_product_is_found(plant: Plant) -> None:
    plant(FMA_PEAK, "fused_multiply_add(x, factor, offset)", "x * factor + offset")
    with pytest.raises(AssertionError):
        test_one_rounding_by_hand()
