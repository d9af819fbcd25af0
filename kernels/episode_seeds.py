"""The seeds of training episodes in closed form."""

import torch
from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

EPISODE_SEEDS = Kernel(
    "episode_seeds",
    [
        In("environment", "int32", ("N",)),
        In("episode", "int64", ("N",)),
        Out("seed", "int64", ("N",)),
        Size("N"),
        Scalar("run_seed", "uint64"),
    ],
    blocks=lambda size: -(-size["N"] // 4096),
)


def episode_seeds(run_seed: int, environment: Tensor, episode: Tensor) -> Tensor:
    """The episode seed of each (environment, episode) of a training run: 62 bits of Philox, split bits 00.

    Args:
        run_seed: 64 bits.
        environment: (N,) int32, the environment's index.
        episode: (N,) int64, the episode's number in that environment, from 0.

    Returns:
        (N,) int64 bit patterns.

    Raises:
        ValueError: an array is not as stated.
    """
    seed = torch.empty_like(episode)
    EPISODE_SEEDS(environment, episode, seed, run_seed)
    return seed


def host_seeds(seed: Tensor) -> Tensor:
    """What a host environment, which takes 31 bits, is seeded with: the two top bits, the split, and the lowest 29.

    So splits stay apart, evaluation seeds stay the plain index, and those of training are 29 bits of Philox.

    Args:
        seed: (N,) int64 bit patterns.

    Returns:
        (N,) int64, 0 to 2^31 - 1.
    """
    return ((seed >> 62) & 3) << 29 | seed & ((1 << 29) - 1)
