"""Normalization of a minibatch's advantages."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Size

ADVANTAGE_SHIFT = Kernel(
    "advantage_shift",
    [In("advantage", "float32", ("M",)), In("index", "int32", ("B",)), Out("shift", "float32", (2,)), Size("B")],
    blocks=lambda size: 1,
    threads=32,
)


def advantage_shift(advantage: Tensor, index: Tensor, shift: Tensor) -> None:
    """Writes what normalizes the advantages of a minibatch: their mean and 1 / (standard deviation + 1e-8).

    The deviation divides by B - 1. A minibatch of one sample is not normalized: (0, 1).

    Args:
        advantage: (M,) float32, of the whole rollout.
        index: (B,) int32, the minibatch's rows.
        shift: (2,) float32, written.

    Raises:
        ValueError: an array is not as stated.
    """
    ADVANTAGE_SHIFT(advantage, index, shift)
