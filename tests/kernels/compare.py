"""How a kernel's result is compared with its reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An output buffer that no kernel could have left so: NaN, or the largest number."""
    return torch.full(shape, float("nan") if dtype.is_floating_point else torch.iinfo(dtype).max, dtype=dtype)


def assert_close(got: Sequence[Tensor], function: Callable[..., Sequence[Any]], *arguments: Any) -> None:
    """Against float64, each result's error is at most twice that of plain float32 NumPy, plus 4 ulp. NaN fails.

    Floats, in tensors or alone, are what the kernel received: float32. Further arguments pass as they are.
    """
    exact, plain = (function(*(_as(a, dtype) for a in arguments)) for dtype in (np.float64, np.float32))
    for result, (tensor, truth, naive) in enumerate(zip(got, exact, plain, strict=True)):
        values, truth = tensor.numpy(), np.asarray(truth)
        assert (truth.dtype, np.asarray(naive).dtype) == (np.float64, np.float32), "the reference keeps its type"
        assert values.shape == truth.shape, f"result {result}: shape {values.shape}, wanted {truth.shape}"
        error = np.abs(values.astype(np.float64) - truth)
        allowed = 2 * np.abs(naive - truth).max() + 4 * np.spacing(np.abs(truth).astype(np.float32))
        outside = ~(error <= allowed)
        assert not outside.any(), (
            f"result {result}: {outside.sum()} of {outside.size} are outside; the first at {np.argwhere(outside)[0]}: "
            f"{values[outside][0]}, wanted {truth[outside][0]}, allowed error {allowed[outside][0]}"
        )


def assert_near(got: Sequence[Tensor], function: Callable[..., Sequence[Any]], *arguments: Any) -> None:
    """As `assert_close`, of each result's Euclidean norm: for results with elements in which large terms cancel."""
    exact, plain = (function(*(_as(a, dtype) for a in arguments)) for dtype in (np.float64, np.float32))
    for result, (tensor, truth, naive) in enumerate(zip(got, exact, plain, strict=True)):
        error, allowed = (np.linalg.norm(x.astype(np.float64) - truth) for x in (tensor.numpy(), naive))
        ulp = np.linalg.norm(np.spacing(np.abs(truth).astype(np.float32)))
        assert error <= 2 * allowed + 4 * ulp, f"result {result}: error {error} is outside of {2 * allowed + 4 * ulp}"


def _as(argument: Any, dtype: Any) -> Any:
    if isinstance(argument, float):
        return dtype(np.float32(argument))
    if isinstance(argument, Tensor):
        return argument.numpy().astype(dtype if argument.is_floating_point() else argument.numpy().dtype)
    return argument
