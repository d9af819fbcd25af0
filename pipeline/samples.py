"""Which rows of a rollout an update learns from, and in which order: objects chosen before a training begins."""

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.shuffle import shuffle
from pipeline.config import PPOConfig
from pipeline.rollout import Rollout

Work = Callable[[], None]


class AllRows:
    """Every row: an epoch is a permutation of the rollout, cut into K minibatches of B."""

    def __init__(self, config: PPOConfig, run_seed: int, device: torch.device) -> None:
        self._run_seed = run_seed
        self._order = torch.empty(config.num_minibatches, config.minibatch_size, dtype=torch.int32, device=device)

    def prepared(self, work: Work, record: Callable[[Work], Work]) -> Work:
        """The update `work` as it is to be called: recorded, since it launches the same each time."""
        return record(work)

    def epoch(self, rollout: Rollout, iteration: Tensor, epoch: int) -> Tensor:
        """(K, B) int32, rows of the rollout's samples, by the next call overwritten."""
        shuffle(self._order.view(-1), iteration, epoch, self._run_seed)
        return self._order


class LivingRows(AllRows):
    """The rows of steps that an agent took: fillers are left out of the permutation before it is cut.

    Minibatches stay as large and become fewer: as many as are full, a different rest left out in each epoch; at least
    one, which is then as large as there are samples.
    """

    def prepared(self, work: Work, record: Callable[[Work], Work]) -> Work:
        return work  # how many minibatches there are differs from rollout to rollout

    def epoch(self, rollout: Rollout, iteration: Tensor, epoch: int) -> Tensor:
        order = super().epoch(rollout, iteration, epoch)
        taken = (rollout.episode_lengths.view(-1) > 0).index_select(0, order.view(-1))
        living, size = order.view(-1)[taken], order.shape[1]
        count = max(1, len(living) // size)
        return living[: count * size].view(count, -1)
