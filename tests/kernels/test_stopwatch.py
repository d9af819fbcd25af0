"""Time by phase: none of it is lost, and it divides as it is told to."""

import time

import pytest
import torch
from conftest import Plant
from torch import Tensor

from kernels.stopwatch import STOPWATCH, stopwatch


def told(shares: list[list[int]], phase: int = 1, other: int = 2) -> tuple[list[int], int]:
    """What two calls add to three phases, and the time between the two, by their own clock."""
    spent, last = torch.zeros(3, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    array = torch.tensor(shares)
    stopwatch(array, spent, last, 0, 0)
    before, first = spent.clone(), last.clone()
    time.sleep(1e-3)
    stopwatch(array, spent, last, phase, other)
    return (spent - before).tolist(), int(last - first)


def check_shares() -> None:
    shares = [[n % 3, n % 5] for n in range(100)]
    spent, passed = told(shares)
    share = sum(o for _, o in shares) / sum(p + o for p, o in shares)
    assert passed >= 10**6  # the sleep
    assert spent == [0, passed - int(passed * share), int(passed * share)]


def test_divided() -> None:
    check_shares()


def test_whole() -> None:
    spent, passed = told([[1, 0]])
    assert spent == [0, passed, 0]
    spent, passed = told([[0, 0]])  # a processor without a counter
    assert spent == [0, passed, 0]
    spent, passed = told([[1, 2]], phase=1, other=1)
    assert spent == [0, passed, 0]


def test_adds_up() -> None:
    """Over many calls, the parts are the time from the first to the last."""
    spent, last = torch.zeros(3, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    shares: Tensor = torch.tensor([[1, 3]])
    stopwatch(shares, spent, last, 0, 0)
    begun = int(last)
    spent.zero_()
    for n in range(50):
        stopwatch(shares, spent, last, n % 3, (n + 1) % 3)
    assert int(spent.sum()) == int(last) - begun


FAULTS = {
    "the last rows are left out": ("s < S; s += LANES", "s < S - 1; s += LANES"),
    "the last lanes are left out": ("lane < LANES; lane++", "lane < LANES - 1; lane++"),
    "counted twice": ("passed - part", "passed"),
    "never since the last call": ("last[0] = now;", ""),
    "exchanged": ("(others / (own + others))", "(own / (own + others))"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(STOPWATCH, *FAULTS[fault])
    with pytest.raises(AssertionError):
        check_shares()
