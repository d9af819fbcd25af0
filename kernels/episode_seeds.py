"""The seeds of training episodes in closed form."""

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


def episode_seeds(environment: Tensor, episode: Tensor, seed: Tensor, run_seed: int) -> None:
    """Writes the episode seed of each (environment, episode) of a training run: 62 bits of Philox, split bits 00.

    Args:
        environment: (N,) int32, the environment's index.
        episode: (N,) int64, the episode's number in that environment, from 0.
        seed: (N,) int64, written.

    Raises:
        ValueError: an array is not as stated.
    """
    EPISODE_SEEDS(environment, episode, seed, run_seed)
