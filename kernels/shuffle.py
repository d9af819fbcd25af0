"""The order of samples in an epoch."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

SHUFFLE = Kernel(
    "shuffle",
    [
        Out("index", "int32", ("n",)),
        In("iteration", "int32", (1,)),
        Size("n"),
        Scalar("epoch", "uint32"),
        Scalar("run_seed", "uint64"),
    ],
    blocks=lambda size: -(-size["n"] // 4096),
)


def shuffle(index: Tensor, iteration: Tensor, epoch: int, run_seed: int) -> None:
    """Writes a permutation of 0 .. n-1 that depends on (run_seed, iteration, epoch) alone.

    A keyed bijection (Feistel network with cycle walking): each place is computed by itself.

    Args:
        index: (n,) int32, written.
        iteration: (1,) int32, the training iteration.
        epoch: the pass over the iteration's batch.

    Raises:
        ValueError: an array is not as stated.
    """
    SHUFFLE(index, iteration, epoch, run_seed)
