"""Philox4x32-10 as an array function."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

PHILOX_WORDS = Kernel(
    "philox_words",
    [In("counter", "int32", ("N", 4)), Out("words", "int32", ("N", 4)), Size("N"), Scalar("key", "uint64")],
    blocks=lambda size: -(-size["N"] // 4096),
)


def philox_words(counter: Tensor, words: Tensor, key: int) -> None:
    """Writes the four random words of each counter. Source: Salmon et al., SC 2011.

    Args:
        counter: (N, 4) int32, the bit patterns of unsigned words.
        words: (N, 4) int32, written, bit patterns likewise.
        key: 64 bits.

    Raises:
        ValueError: an array is not as stated.
    """
    PHILOX_WORDS(counter, words, key)
