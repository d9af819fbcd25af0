"""Time by phase, told by the device."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

STOPWATCH = Kernel(
    "stopwatch",
    [
        In("shares", "int64", ("S", 2)),
        Out("spent", "int64", ("P",)),
        Out("last", "int64", (1,)),
        Size("S"),
        Scalar("phase", "int32"),
        Scalar("other", "int32"),
    ],
    blocks=lambda size: 1,
    threads=32,
)


def stopwatch(shares: Tensor, spent: Tensor, last: Tensor, phase: int, other: int) -> None:
    """Counts the time since the last call, on the same stream, as `phase`'s, a share of it as `other`'s.

    A launch of its own, so that it can stand between the launches of a recorded iteration.

    Args:
        shares: (S, 2) int64, of any unit: column sums divide the time into `phase` and `other`; all `phase` where the
            sums are 0.
        spent: (P,) int64, nanoseconds, added to.
        last: (1,) int64, the device's clock at the last call, in nanoseconds; written.
        phase, other: rows of `spent`, which may be the same.

    Raises:
        ValueError: an array is not as stated.
    """
    STOPWATCH(shares, spent, last, phase, other)
