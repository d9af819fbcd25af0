"""How fast a processor multiplies and adds: the yardstick of everything else."""

from torch import Tensor

from kernels.launcher import Kernel, Out, Scalar, Size

BLOCK = 6144  # floats of a block: whole groups of chains for every width of a vector
FMA_PEAK = Kernel(
    "fma_peak",
    [
        Out("x", "float32", ("n",)),
        Size("n"),
        Scalar("rounds", "int32"),
        Scalar("factor", "float32"),
        Scalar("offset", "float32"),
    ],
    blocks=lambda size: -(-size["n"] // BLOCK),
)


def fma_peak(x: Tensor, rounds: int, factor: float, offset: float) -> None:
    """Replaces each of x `rounds` times by x * factor + offset, rounded once: 2 * n * rounds operations.

    They run at the processor's peak where n is a multiple of `BLOCK`.

    Args:
        x: (n,) float32, updated.

    Raises:
        ValueError: x is not as stated.
    """
    FMA_PEAK(x, rounds, factor, offset)
