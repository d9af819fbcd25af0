"""Philox4x32-10: the authors' known answers, and that the words look random."""

import numpy as np
import pytest
import reference
import scipy.stats
import torch
from conftest import Plant

from kernels.philox_words import PHILOX_WORDS, philox_words

# counter, key, words: the known-answer vectors of the authors' Random123 library
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def run(counter: np.ndarray, key: int) -> np.ndarray:
    """Words (N, 4) of counters (N, 4), both unsigned."""
    words = np.empty(counter.shape, np.uint32)
    counter = counter.astype(np.uint32)
    philox_words(torch.from_numpy(counter.view(np.int32)), torch.from_numpy(words.view(np.int32)), key)
    return words


def check_known_answers() -> None:
    for counter, (low, high), words in KNOWN:
        assert tuple(run(np.array([counter]), high << 32 | low)[0].tolist()) == words


def test_known_answers() -> None:
    check_known_answers()


@pytest.mark.parametrize("n", [1, 7, 33, 4099])
def test_reference(n: int) -> None:
    counter = np.random.default_rng(n).integers(0, 2**32, (n, 4), dtype=np.uint64)
    for key in (0, 1, 2**32, 2**64 - 1):
        assert (run(counter, key) == reference.philox(counter, key)).all()


def test_words_are_uniform_and_bits_are_balanced() -> None:
    words = run(reference.counters(range(50_000), 0, 0, 0), key=1)
    for k in range(4):
        assert scipy.stats.chisquare(np.bincount(words[:, k] >> 24, minlength=256)).pvalue > 1e-3
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(axis=0)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(200_000)


@pytest.mark.parametrize("word", range(4))
def test_neighbouring_counters_and_keys_are_independent(word: int) -> None:
    """Adjacent values of any counter word, and adjacent keys, give words that agree in half of their bits."""
    counter = reference.counters(range(20_000), 5, 6, 7)
    moved = counter.copy()
    moved[:, word] += 1
    for other in (run(moved, 9), run(counter, 10), run(counter, 9 + 2**32)):
        agreeing = np.unpackbits((run(counter, 9) ^ other).view(np.uint8)).mean()
        assert abs(agreeing - 0.5) < 5 * 0.5 / np.sqrt(20_000 * 128)


FAULTS = {
    "nine rounds": ("round < 10", "round < 9"),
    "half of the key": ("(unsigned)(key >> 32)", "0u"),
    "the key stays": ("k1 += 0xBB67AE85u", "k1 += 0u"),
    "words exchanged": ("high0 ^ c3 ^ k1", "high1 ^ c3 ^ k1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(PHILOX_WORDS, *FAULTS[fault])
    with pytest.raises(AssertionError):
        check_known_answers()
