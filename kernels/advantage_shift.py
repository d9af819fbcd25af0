"""Normalization of minibatches' advantages."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Size

ADVANTAGE_SHIFT = Kernel(
    "advantage_shift",
    [
        In("advantage", "float32", ("M",)),
        In("indices", "int32", ("K", "B")),
        Out("shifts", "float32", ("K", 2)),
        Size("B"),
    ],
    blocks=lambda size: size["K"],
    threads=512,
)


def advantage_shift(advantage: Tensor, indices: Tensor, shifts: Tensor) -> None:
    """Writes what normalizes the advantages of each minibatch: their mean and 1 / (standard deviation + 1e-8).

    The deviation divides by B - 1. A minibatch of one sample is not normalized: (0, 1).

    Args:
        advantage: (M,) float32, of the whole rollout.
        indices: (K, B) int32, the rows of K minibatches.
        shifts: (K, 2) float32, written.

    Raises:
        ValueError: an array is not as stated.
    """
    ADVANTAGE_SHIFT(advantage, indices, shifts)
