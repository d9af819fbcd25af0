"""Seeds of training episodes: all different, all within the training split, all moved by the run seed."""

import numpy as np
import pytest
import reference
import scipy.stats
import torch
from conftest import Plant

from kernels.episode_seeds import EPISODE_SEEDS, episode_seeds


def run(environment: np.ndarray, episode: np.ndarray, run_seed: int) -> np.ndarray:
    """Seeds (N,) as unsigned 64 bits."""
    seed = episode_seeds(run_seed, torch.from_numpy(environment.astype(np.int32)), torch.from_numpy(episode))
    return seed.numpy().view(np.uint64)


def grid(environments: int, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    environment, episode = np.meshgrid(np.arange(environments), np.arange(episodes))
    return environment.ravel(), episode.ravel()


def check() -> None:
    """Sixteen adjacent run seeds, and two that differ in the upper half alone, share no episode; the split is 0."""
    run_seeds = [*range(16), 1 << 32, 3 << 32]
    seeds = np.concatenate([run(*grid(33, 100), run_seed) for run_seed in run_seeds])
    assert len(np.unique(seeds)) == len(seeds)
    assert (seeds >> np.uint64(62) == 0).all()
    assert scipy.stats.chisquare(np.bincount((seeds >> np.uint64(54)).astype(int), minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 7, 257])
def test_reference(n: int) -> None:
    generator = np.random.default_rng(n)
    environment, episode = generator.integers(0, 2**31, n), generator.integers(0, 2**62, n)
    for run_seed in (0, 1, 2**63 + 5):
        assert (run(environment, episode, run_seed) == reference.episode_seeds(environment, episode, run_seed)).all()


def test_by_hand() -> None:
    """Run seed 0, environment 0, episode 0: the first two words of the counter (0, 0, 4, 0), less the two top bits."""
    word = reference.philox(np.array([[0, 0, 4, 0]], np.uint64), 0)[0].tolist()
    assert run(np.zeros(1), np.zeros(1, np.int64), 0)[0] == (word[0] << 32 | word[1]) % 2**62


def test_no_two_episodes_share_a_seed() -> None:
    check()


FAULTS = {
    "the run seed is ignored": ("PURPOSE_EPISODE, (unsigned)(episode >> 32), run_seed", "PURPOSE_EPISODE, 0, 1"),
    "half of the run seed is ignored": ("(unsigned)(episode >> 32), run_seed)", "0, (unsigned)run_seed)"),
    "every environment has the same seed": ("philox(environment, (unsigned)episode", "philox(0, (unsigned)episode"),
    "every episode has the same seed": ("philox(environment, (unsigned)episode", "philox(environment, 0"),
    "the environment's index is added": (
        "philox(environment, (unsigned)episode",
        "philox(0, environment + (unsigned)episode",
    ),
    "the run seed is added": (
        "philox(environment, (unsigned)episode, PURPOSE_EPISODE, (unsigned)(episode >> 32), run_seed)",
        "philox(environment + (unsigned)run_seed, (unsigned)episode, PURPOSE_EPISODE, (unsigned)(episode >> 32), 0)",
    ),
    "the split's bits are left": (" & 0x3fffffffffffffffull", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(EPISODE_SEEDS, *FAULTS[fault])
    with pytest.raises(AssertionError):
        check()
