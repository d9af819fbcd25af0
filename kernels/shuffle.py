"""The order of samples in an epoch."""

from torch import Tensor

from kernels.launcher import Kernel, Out, Scalar, Size

SHUFFLE = Kernel(
    "shuffle",
    [
        Out("index", "int32", ("n",)),
        Size("n"),
        Scalar("update", "uint32"),
        Scalar("epoch", "uint32"),
        Scalar("run_seed", "uint64"),
    ],
    blocks=lambda size: -(-size["n"] // 4096),
)


def shuffle(index: Tensor, update: int, epoch: int, run_seed: int) -> None:
    """Writes a permutation of 0 .. n-1 that depends on (run_seed, update, epoch) alone.

    A keyed bijection (Feistel network with cycle walking): each place is computed by itself.

    Args:
        index: (n,) int32, written.
        update: the training iteration.
        epoch: the pass over the iteration's batch.

    Raises:
        ValueError: the array is not as stated.
    """
    SHUFFLE(index, update, epoch, run_seed)
