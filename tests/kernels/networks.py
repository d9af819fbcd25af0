"""Small networks: the shapes that the fused kernels are compiled for, and flat parameters that fit them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from kernels.launcher import Constant
from kernels.mlp import MLP

LINE = 16  # floats of a cache line, on which each piece of the flat buffer begins
LOG_STD_RANGE = (-5, 2)


def network(
    hidden: tuple[int, ...],
    observation: int = 3,
    actions: Constant = 3,
    discrete: bool = True,
    relu: bool = False,
    shared: bool = False,
) -> MLP:
    """An MLP whose pieces lie in the flat buffer with a gap of more than a line between them."""
    bare = MLP(observation, hidden, relu, shared, (), actions, discrete, LOG_STD_RANGE)
    offsets, end = [], LINE
    for rows, columns in pieces(bare):
        offsets.append(end)
        end += -(-rows * columns // LINE) * LINE + LINE
    return replace(bare, offsets=tuple(offsets))


def choices(mlp: MLP) -> tuple[int, ...]:
    """The number of actions of each choice."""
    return mlp.actions if isinstance(mlp.actions, tuple) else (mlp.actions,)


def pieces(mlp: MLP) -> list[tuple[int, int]]:
    """Rows (inputs and bias) and columns of each piece, in the order of the offsets; log_std is one row."""
    widths = (mlp.observation, *mlp.hidden)
    layers = [(inputs + 1, outputs) for inputs, outputs in pairwise(widths)]
    heads = [(widths[-1] + 1, outputs) for outputs in (sum(choices(mlp)), 1)]
    critic = heads[1:] if mlp.shared else [*layers, heads[1]]
    return [*layers, heads[0], *critic, *([] if mlp.discrete else [(1, sum(choices(mlp)))])]


def flat_size(mlp: MLP) -> int:
    rows, columns = pieces(mlp)[-1]
    return mlp.offsets[-1] + rows * columns + LINE


def parameters(mlp: MLP, seed: int = 0) -> Tensor:
    """Flat parameters (n,) with outputs of about unit size; what is no parameter is NaN."""
    generator = torch.Generator().manual_seed(seed)
    flat = torch.full((flat_size(mlp),), float("nan"))
    for (rows, columns), offset in zip(pieces(mlp), mlp.offsets, strict=True):
        values = torch.randn(rows * columns, generator=generator) / rows**0.5
        flat[offset : offset + rows * columns] = values
    return flat


def packed(mlp: MLP, seed: int = 0) -> Tensor:
    """The parameters as the other kernels read them, (K,)."""
    result = torch.zeros(mlp.sizes[0])
    mlp.pack(parameters(mlp, seed), result)
    return result
