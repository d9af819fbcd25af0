"""Sampling of actions."""

import torch
from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size


def _kernel(parameters: str, action_dtype: str, action_shape: tuple[str, ...]) -> Kernel:
    return Kernel(
        "sample",
        [
            In("parameters", "float32", ("N", parameters)),
            In("first", "int32", (1,)),
            Out("action", action_dtype, action_shape),
            Out("log_prob", "float32", ("N",)),
            Out("entropy", "float32", ("N",)),
            Size("N"),
            Scalar("step", "uint32"),
            Scalar("run_seed", "uint64"),
        ],
        blocks=lambda size: -(-size["N"] // 128),
        constants=("ACTIONS", "DISCRETE"),
    )


CATEGORICAL = _kernel("ACTIONS", "int32", ("N",))
SEVERAL = _kernel("PARAMETERS", "int32", ("N", "ACTIONS"))
GAUSSIAN = _kernel("2ACTIONS", "float32", ("N", "ACTIONS"))


def sample_categorical(
    logits: Tensor,
    action: Tensor,
    log_prob: Tensor,
    entropy: Tensor,
    step: int,
    run_seed: int,
    first: Tensor | None = None,
) -> None:
    """Draws one action a row from softmax(logits) by inversion of the cumulative distribution.

    Args:
        logits: (N, A) float32.
        action: (N,) int32, written.
        log_prob, entropy: (N,) float32 in nats, written.
        step: the draw's place in the run; row n draws from Philox counter (n, step), key `run_seed`.
        first: (1,) int32, added to `step`: for launches that are recorded once and run again later in the run.

    Raises:
        ValueError: an array is not as stated.
    """
    drawn = (logits, _first(first, logits), action, log_prob, entropy)
    CATEGORICAL(*drawn, step, run_seed, ACTIONS=logits.shape[-1], DISCRETE=1)


def sample_several(
    logits: Tensor,
    action: Tensor,
    log_prob: Tensor,
    entropy: Tensor,
    step: int,
    run_seed: int,
    sizes: tuple[int, ...],
    first: Tensor | None = None,
) -> None:
    """Draws K independent choices a row, each as `sample_categorical` does.

    Args:
        logits: (N, sum(sizes)) float32, those of each choice after the last one's.
        action: (N, K) int32, written.
        log_prob, entropy: (N,) float32 in nats, summed over the choices, written.
        step: the draw's place in the run.
        sizes: the number of actions of each choice.
        first: as there.

    Raises:
        ValueError: an array is not as stated.
    """
    expect_logits("sample", logits, sizes)
    SEVERAL(logits, _first(first, logits), action, log_prob, entropy, step, run_seed, ACTIONS=sizes, DISCRETE=1)


def _first(given: Tensor | None, parameters: Tensor) -> Tensor:
    return parameters.new_zeros(1, dtype=torch.int32) if given is None else given


def expect_logits(name: str, logits: Tensor, sizes: tuple[int, ...]) -> None:
    """ValueError where there are not as many logits as the choices have actions."""
    if logits.shape[-1] != sum(sizes):
        raise ValueError(f"{name}: wanted {sum(sizes)} logits for choices of {sizes}; got {logits.shape[-1]}")


def sample_gaussian(
    parameters: Tensor,
    action: Tensor,
    log_prob: Tensor,
    entropy: Tensor,
    step: int,
    run_seed: int,
    first: Tensor | None = None,
) -> None:
    """Draws one action a row from independent normals (Box and Muller). The action is raw: nothing clips it here.

    Args:
        parameters: (N, 2A) float32: A means, then A logarithms of standard deviations.
        action: (N, A) float32, written.
        log_prob, entropy: (N,) float32 in nats, summed over the dimensions, written.
        step: the draw's place in the run.
        first: (1,) int32, added to `step`.

    Raises:
        ValueError: an array is not as stated.
    """
    drawn = (parameters, _first(first, parameters), action, log_prob, entropy)
    GAUSSIAN(*drawn, step, run_seed, ACTIONS=action.shape[-1], DISCRETE=0)
