"""On a CUDA device every kernel gives the CPU's bits. Skipped, and said so, where there is none."""

from typing import Any

import pytest
import torch
from cases import CASES, Case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torch finds no CUDA device: the kernels are not run on one"
    ),
]


def on(device: str, arguments: list[Any]) -> list[Any]:
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in arguments]


ROWS = [(name, rows) for name, case in CASES.items() for rows in case.rows]


@pytest.mark.parametrize(("name", "rows"), ROWS)
def test_the_device_gives_the_bits_of_the_cpu(name: str, rows: int) -> None:
    case: Case = CASES[name]
    wanted = case.run(case.arguments(rows))
    found = case.run(on("cuda", case.arguments(rows)))
    for want, got in zip(wanted, found, strict=True):
        assert got.cpu().numpy().tobytes() == want.numpy().tobytes()
