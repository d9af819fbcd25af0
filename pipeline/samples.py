"""Which rows of a rollout an update learns from: a function chosen before a training begins."""

from torch import Tensor

from pipeline.rollout import Rollout


def all_rows(rollout: Rollout, order: Tensor) -> Tensor:
    """Every row: the shuffled order, K minibatches of B rows, (K, B) int32, as it is."""
    return order


def living_rows(rollout: Rollout, order: Tensor) -> Tensor:
    """The rows of steps that an agent took; fillers, whose episode has no length, are left out of the order.

    Minibatches stay as large and become fewer, as many as are full, so that the loss needs no mask; what is left over
    is another rest in each epoch. Where none is full there is one, as large as there are samples.
    """
    taken = (rollout.episode_lengths.view(-1) > 0).index_select(0, order.view(-1))
    living, size = order.view(-1)[taken], order.shape[1]
    count = max(1, len(living) // size)
    return living[: count * size].view(count, -1)
