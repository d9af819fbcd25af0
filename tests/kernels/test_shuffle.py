"""The shuffle is a permutation, uniform on every size, and independent between epochs, iterations and runs."""

from collections.abc import Callable

import numpy as np
import pytest
import reference
import scipy.stats
import torch
from conftest import Plant

from kernels.shuffle import SHUFFLE, shuffle

# From k to (iteration, epoch, run seed): what changes from one shuffle to the next.
Key = Callable[[int], tuple[int, int, int]]
KEYS: dict[str, Key] = {
    "epoch": lambda k: (0, k, 1),
    "iteration": lambda k: (k, 0, 1),
    "run seed": lambda k: (0, 0, k),
    "upper half of the run seed": lambda k: (0, 0, k << 32),
    "as in training": lambda k: (k // 4, k % 4, 3),
}
SIZES = [*range(2, 17), 33, 64, 100, 257, 1000, 4096]
IMPROBABLE = 1e-5  # of about 500 p-values; the draws are fixed


def run(n: int, iteration: int, epoch: int, run_seed: int) -> np.ndarray:
    index = torch.full((n,), -1, dtype=torch.int32)
    shuffle(index, torch.tensor([iteration], dtype=torch.int32), epoch, run_seed)
    return index.numpy()


def shuffles(n: int, key: Key) -> np.ndarray:
    """Many shuffles (K, n)."""
    index, at = torch.empty(n, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    result = np.empty((max(100, min(3000, 300_000 // n)), n), np.int64)
    for k, row in enumerate(result):
        iteration, epoch, run_seed = key(k)
        at[0] = iteration
        shuffle(index, at, epoch, run_seed)
        row[:] = index.numpy()
    return result


def place_p_value(permutations: np.ndarray) -> float:
    """Does every value come to every place equally often? Chi-square over at most 32 x 32 bins."""
    K, n = permutations.shape
    bins = min(n, 32)
    of_bin = np.arange(n) * bins // n
    counts = np.bincount((of_bin * bins + of_bin[permutations]).ravel(), minlength=bins * bins).reshape(bins, bins)
    share = np.bincount(of_bin) / n
    expected = K * n * np.outer(share, share)
    # A permutation's places are not independent: its counts vary by n / (n - 1) more than independent ones.
    statistic = ((counts - expected) ** 2 / expected).sum() * (n - 1) / n
    return float(scipy.stats.chi2.sf(statistic, (bins - 1) ** 2))


def pair_p_value(permutations: np.ndarray, a: int, b: int) -> float:
    """Are the values at two places any two different ones, equally often? On large sizes: is their difference?"""
    K, n = permutations.shape
    one, other = permutations[:, a], permutations[:, b]
    if n > 16:
        bins = min(n - 1, 50)
        of_bin = np.arange(n - 1) * bins // (n - 1)
        counts = np.bincount(of_bin[(one - other) % n - 1], minlength=bins)
        expected = K * np.bincount(of_bin) / (n - 1)
    else:
        counts = np.bincount(one * n + other, minlength=n * n).reshape(n, n)[~np.eye(n, dtype=bool)]
        expected = np.full(len(counts), K / len(counts))
    return float(scipy.stats.chisquare(counts, expected).pvalue) if len(counts) > 1 else 1.0


def p_values(n: int, key: Key) -> dict[str, float]:
    permutations = shuffles(n, key)
    before_to_after = np.take_along_axis(permutations[1:], np.argsort(permutations[:-1], axis=1), axis=1)
    pairs = {(0, 1), (0, n // 2), (n - 2, n - 1)} if n > 2 else {(0, 1)}
    return {
        "place": place_p_value(permutations),
        "independence of the last": place_p_value(before_to_after),
        **{f"pair {a}, {b}": pair_p_value(permutations, a, b) for a, b in pairs},
    }


def check(sizes: list[int], key: Key) -> None:
    for n in sizes:
        found = p_values(n, key)
        assert min(found.values()) > IMPROBABLE, f"n = {n}: {found}"


@pytest.mark.parametrize("n", [1, 2, 7, 33, 257, 4097])
def test_reference(n: int) -> None:
    for key in ((0, 0, 0), (5, 3, 2**63 + 5)):
        assert run(n, *key).tolist() == reference.shuffle(n, *key)


def check_permutation(sizes: list[int]) -> None:
    for n in sizes:
        assert (np.sort(run(n, 1, 2, n)) == np.arange(n)).all()


def test_it_is_a_permutation() -> None:
    check_permutation([*range(1, 601), 1023, 1024, 1025, 2047, 3001, 4095, 4096, 16_384, 100_003])


@pytest.mark.parametrize("varying", KEYS)
def test_uniform_and_independent(varying: str) -> None:
    check(SIZES, KEYS[varying])


@pytest.mark.parametrize("n", [3, 4, 5])
def test_whole_permutations_are_equally_likely(n: int) -> None:
    permutations = shuffles(n, KEYS["as in training"])
    counts = np.bincount(np.unique(permutations @ n ** np.arange(n), return_inverse=True)[1])
    assert len(counts) == {3: 6, 4: 24, 5: 120}[n]
    assert scipy.stats.chisquare(counts).pvalue > IMPROBABLE


def test_the_order_depends_on_all_of_its_key() -> None:
    orders = [
        run(64, iteration, epoch, seed).tobytes()
        for iteration in (0, 1)
        for epoch in (0, 1)
        for seed in (0, 1, 1 << 32)
    ]
    assert len(set(orders)) == len(orders)


COUNTER = "philox(epoch * (MAX_ROUNDS / 4) + quad, (unsigned)iteration[0], PURPOSE_SHUFFLE, 0, run_seed)"
FAULTS = {
    "four rounds on every size": ("8 + 48 / bits < MAX_ROUNDS ? 8 + 48 / bits : MAX_ROUNDS", "4", "as in training"),
    "a rotation": (
        "y = (right << (unsigned)left_bits) | changed;",
        "y = (y + keys[round]) & ((1u << bits) - 1u);",
        "epoch",
    ),
    "one key for all rounds": ("keys[quad * 4 + word] = r.word[word]", "keys[quad * 4 + word] = r.word[0]", "epoch"),
    "every epoch alike": (COUNTER, COUNTER.replace("epoch *", "0 *"), "epoch"),
    "every iteration alike": (COUNTER, COUNTER.replace("iteration[0]", "0"), "iteration"),
    "every run alike": (COUNTER, COUNTER.replace("run_seed", "1"), "run seed"),
    "half of the run seed": (COUNTER, COUNTER.replace("run_seed", "(unsigned)run_seed"), "upper half of the run seed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    right, wrong, varying = FAULTS[fault]
    plant(SHUFFLE, right, wrong)
    with pytest.raises(AssertionError, match="n = "):
        check([3, 7, 16, 100], KEYS[varying])


def test_a_walk_that_wraps_is_no_permutation(plant: Plant) -> None:
    plant(SHUFFLE, "index[first + l] = (int)lane(x, l);", "index[first + l] = (int)(lane(x, l) * 7u % (unsigned)n);")
    with pytest.raises(AssertionError):
        check_permutation([21])
