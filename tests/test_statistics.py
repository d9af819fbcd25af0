"""The intervals cover what they claim, and only because they resample seeds."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from pipeline import statistics

TRIALS = 400
EPISODES = 40


def draw(generator: np.random.Generator, seeds: int) -> list[np.ndarray]:
    """Episode returns with true mean 0: seeds differ (standard deviation 1) and so do their episodes (1.5)."""
    centers = generator.normal(0.0, 1.0, size=seeds)
    return [generator.normal(center, 1.5, size=EPISODES) for center in centers]


def coverage(bounds: Callable[[list[np.ndarray]], tuple[float, float]], seeds: int) -> float:
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(TRIALS):
        low, high = bounds(draw(generator, seeds))
        hits += low <= 0.0 <= high
    return hits / TRIALS


def product(samples: list[np.ndarray]) -> tuple[float, float]:
    found = statistics.interval(samples)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def pooled(samples: list[np.ndarray]) -> tuple[float, float]:
    """The fault: the episodes of all seeds thrown together and resampled as one."""
    means = statistics.hierarchical_means([np.concatenate(samples)], 300, np.random.default_rng(0))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 300)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_student_t_covers_what_it_claims(seeds: int) -> None:
    assert 0.92 <= coverage(product, seeds) <= 0.98


def test_hierarchical_bootstrap_covers_about_ninety_percent_at_ten_seeds() -> None:
    assert 0.86 <= coverage(product, 10) <= 0.96


@pytest.mark.parametrize("seeds", [3, 10])
def test_pooled_episodes_cover_far_too_little(seeds: int) -> None:
    assert coverage(pooled, seeds) < 0.6


def test_resampling_draws_seeds_first() -> None:
    """Two seeds without any spread inside: a hierarchical mean is one of three values, a pooled one almost never."""
    samples = [np.zeros(100), np.ones(100)]
    means = statistics.hierarchical_means(samples, 2_000, np.random.default_rng(0))
    assert set(np.unique(means)) == {0.0, 0.5, 1.0}
    assert np.mean(means == 0.5) == pytest.approx(0.5, abs=0.05)


def test_resampling_draws_episodes_within_their_seed() -> None:
    """Seeds that are all alike leave only the spread of episodes: standard deviation s / sqrt(S * E)."""
    episodes = np.random.default_rng(1).normal(size=50)
    means = statistics.hierarchical_means([episodes] * 4, 4_000, np.random.default_rng(0))
    assert means.std() == pytest.approx(episodes.std() / np.sqrt(4 * 50), rel=0.06)


def test_chunks_change_only_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = draw(np.random.default_rng(3), 10)
    whole = statistics.hierarchical_means(samples, 200, np.random.default_rng(0))
    monkeypatch.setattr(statistics, "CHUNK", EPISODES * 7)
    np.testing.assert_array_equal(statistics.hierarchical_means(samples, 200, np.random.default_rng(0)), whole)


def test_student_t_by_hand_and_by_scipy() -> None:
    """Means 1, 2, 3: s = 1, t(2, 0.975) = 4.302653, half-width 4.302653 / sqrt(3) = 2.484138."""
    found = statistics.interval([np.array([1.0]), np.array([1.0, 3.0]), np.array([3.0])])
    assert (found.n, found.method, found.mean) == (3, "student_t", 2.0)
    assert found.low == pytest.approx(2.0 - 2.484138, abs=1e-6)
    assert found.high == pytest.approx(2.0 + 2.484138, abs=1e-6)
    means = np.array([4.0, -1.0, 2.5, 9.0, 0.0])
    expected = scipy.stats.t.interval(0.9, 4, means.mean(), scipy.stats.sem(means))
    assert statistics.student_t(means, 0.9) == pytest.approx(expected)


def test_one_seed_has_no_interval() -> None:
    found = statistics.interval([np.array([1.0, 2.0])])
    assert (found.mean, found.low, found.high, found.n, found.method) == (1.5, None, None, 1, "none")


def test_ten_seeds_are_resampled_and_repeat_exactly() -> None:
    samples = draw(np.random.default_rng(5), 10)
    assert statistics.interval(samples).method == "hierarchical_bootstrap"
    assert statistics.interval(samples) == statistics.interval(samples)
    assert statistics.interval(samples[:9]).method == "student_t"


@pytest.mark.parametrize("samples", [[], [np.array([])], [np.array([1.0]), np.array([])]])
def test_nothing_to_summarize_is_refused(samples: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        statistics.interval(samples)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 101])
def test_interquartile_mean_is_the_trimmed_mean(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    assert statistics.interquartile_mean(values) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_curves_meet_on_the_part_they_share() -> None:
    x = [np.array([0.0, 10.0]), np.array([4.0, 6.0, 8.0])]
    y = [np.array([0.0, 100.0]), np.array([1.0, 3.0, 1.0])]
    grid, values = statistics.on_grid(x, y, points=5)
    np.testing.assert_allclose(grid, [4, 5, 6, 7, 8])
    np.testing.assert_allclose(values, [[40, 50, 60, 70, 80], [1, 2, 3, 2, 1]])


def test_curves_that_share_nothing_give_an_empty_grid() -> None:
    grid, values = statistics.on_grid([np.array([0.0, 1.0]), np.array([2.0])], [np.zeros(2), np.zeros(1)], points=5)
    assert (grid.shape, values.shape) == ((0,), (2, 0))
