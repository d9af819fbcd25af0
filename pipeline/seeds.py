"""Episode seeds: which split a seed belongs to, the evaluation seeds, and the proof that training met none of them.

A seed is 64 bits; its two top bits are its split, so that training and evaluation cannot meet by construction. Tensors
carry seeds as int64 bit patterns. A host environment is told 31 bits of its episode's seed, those two among them
(`kernels.episode_seeds.host_seeds`), so that what is proved of the seeds holds of what it is told.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError

SPLITS = ("train", "selection", "held_out")  # in the order of their two top bits
_SPLIT_SHIFT = 62


def split_of(seed: int) -> str:
    """The split of a seed, given as a signed or an unsigned 64-bit number; `invalid` for the unused top bits 11."""
    return (*SPLITS, "invalid")[(seed >> _SPLIT_SHIFT) & 3]


def evaluation_seeds(split: str, episodes: int) -> Tensor:
    """(episodes,) int64: the plain index 0, 1, 2, ... within the split, so that everyone plays the same episodes."""
    top = SPLITS.index(split) << _SPLIT_SHIFT
    return torch.arange(episodes, dtype=torch.int64) | (top - (1 << 64) if top >= 1 << 63 else top)


def closed_form(run_seed: int, episode_index: Tensor) -> dict[str, Any]:
    """What the manifest says of the training episodes: Philox over (run seed, environment, episode) in split train.

    Args:
        episode_index: (N,) int64, the episode that each environment (each world, where several agents share one) is in,
            counted from 0.
    """
    started = int(episode_index.sum()) + len(episode_index)
    return {"run_seed": run_seed, "split": "train", "environments": len(episode_index), "episodes": started}


def prove_training(run_seed: int, seeds: Mapping[str, Any], tensors: Mapping[str, Tensor], agents: int = 1) -> None:
    """Proves that a checkpoint's training episodes are those of its run seed, all of split train.

    Training seeds have the top bits 00 and the evaluation's have others, so that they cannot meet. What is left to
    check is that they are what they claim: the manifest's closed form, and the seeds in the environments' state.

    Args:
        run_seed: of the checkpoint's configuration.
        seeds: the manifest's closed form.
        tensors: the checkpoint's; `env.episode_seed` and `env.episode_index`, both (N,) int64, are read.
        agents: rows of a world.

    Raises:
        UserError: names the first seed that is where it must not be.
    """
    actual, index = tensors["env.episode_seed"], tensors["env.episode_index"]
    for key, want in closed_form(run_seed, index[::agents]).items():
        got = seeds.get(key) if isinstance(seeds, Mapping) else None
        if got != want:
            raise UserError(
                f"seeds: expected the checkpoint's training episodes to have {key} {want!r}; its manifest has {got!r}. "
                "Do not evaluate a policy on what it was trained on; train it again"
            )
    wanted = episode_seeds(run_seed, torch.arange(len(actual), dtype=torch.int32) // agents, index)
    for i, (got, want) in enumerate(zip(actual.tolist(), wanted.tolist(), strict=True)):
        if split_of(got) != "train":
            raise UserError(
                f"seeds: expected training episodes of split 'train'; found environment {i} of the checkpoint on "
                f"{_text(got)}, which is of split {split_of(got)!r}. Train it again"
            )
        if got != want:
            raise UserError(
                f"seeds: expected environment {i} of the checkpoint at seed {_text(want)}, by run seed {run_seed} and "
                f"episode {int(index[i])}; found {_text(got)}. Train it again"
            )


def prove_split(episode_seeds: Tensor, split: str) -> None:
    """Proves that evaluation seeds, (episodes,) int64, are of `split`. UserError: names the first that is not."""
    for seed in episode_seeds.tolist():
        if split == "train" or split_of(seed) != split:
            raise UserError(
                f"seeds: wanted evaluation episodes of {split!r}; found {_text(seed)} of {split_of(seed)!r}"
            )


def _text(seed: int) -> str:
    return f"0x{seed & (1 << 64) - 1:016x}"
