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
