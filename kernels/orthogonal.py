"""Orthogonal initialization of a layer's weights."""

from torch import Tensor

from kernels.launcher import Kernel, Out, Scalar, Size

ORTHOGONAL = Kernel(
    "orthogonal",
    [
        Out("weight", "float32", ("I", "O")),
        Size("I"),
        Size("O"),
        Scalar("gain", "float32"),
        Scalar("layer", "uint32"),
        Scalar("run_seed", "uint64"),
    ],
    blocks=lambda size: 1,
)


def orthogonal(weight: Tensor, gain: float, layer: int, run_seed: int) -> None:
    """Writes a random matrix whose rows or columns, whichever are fewer, are orthonormal times `gain`.

    Source: Saxe et al., arXiv:1312.6120. The same (layer, run_seed) gives the same bits on every machine.

    Args:
        weight: (I, O) float32, written.
        layer: the layer's number, which tells its draws from the other layers'.

    Raises:
        ValueError: the array is not as stated.
    """
    ORTHOGONAL(weight, gain, layer, run_seed)
