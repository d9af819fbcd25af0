"""The gradient's global norm and the factor that clips it."""

import pytest
import reference
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor

from kernels.global_norm import CLIP_SCALE, SQUARES, global_norm
from kernels.launcher import Kernel


def run(gradient: Tensor, max_norm: float) -> tuple[Tensor, Tensor]:
    norm, scale = poisoned(1), poisoned(1)
    global_norm(gradient, norm, scale, max_norm)
    return norm, scale


def check(n: int = 1000) -> None:
    gradient = torch.randn(n, generator=torch.Generator().manual_seed(n))
    for max_norm in (0.5, 1e4):
        assert_close(run(gradient, max_norm), reference.global_norm, gradient, max_norm)


@pytest.mark.parametrize("n", [1, 7, 33, 257, 9219, 200_000])
def test_reference(n: int) -> None:
    check(n)


def test_by_hand() -> None:
    gradient = torch.tensor([3.0, 0.0, -4.0])
    assert [float(x) for x in run(gradient, 2.5)] == pytest.approx([5.0, 0.5], rel=1e-6)
    assert [float(x) for x in run(gradient, 6.0)] == [5.0, 1.0]
    assert [float(x) for x in run(torch.zeros(9), 0.5)] == [0.0, 1.0]


def test_the_clipped_gradient_has_the_wanted_norm() -> None:
    gradient = torch.randn(5000, generator=torch.Generator().manual_seed(1))
    _, scale = run(gradient, 0.5)
    assert float((gradient * scale).double().norm()) == pytest.approx(0.5, rel=1e-5)


def test_as_torch_clips() -> None:
    parameter = torch.zeros(700, requires_grad=True)
    parameter.grad = torch.randn(700, generator=torch.Generator().manual_seed(2))
    gradient = parameter.grad.clone()
    torch.nn.utils.clip_grad_norm_([parameter], 0.5)
    assert torch.allclose(gradient * run(gradient, 0.5)[1], parameter.grad, rtol=1e-6, atol=0.0)


def test_nan_and_infinity_are_not_hidden() -> None:
    for bad in (float("nan"), float("inf")):
        norm, _ = run(torch.tensor([1.0, bad]), 0.5)
        assert not norm.isfinite()


FAULTS: dict[str, tuple[Kernel, str, str]] = {
    "the last partition is left out": (CLIP_SCALE, "p < P", "p < P - 1"),
    "the last lane is left out": (SQUARES, "lane < LANES; lane++", "lane < LANES - 1; lane++"),
    "the square of the norm": (CLIP_SCALE, "square_root(sum)", "sum"),
    "it scales up too": (CLIP_SCALE, "wanted < 1.0f ? wanted : 1.0f", "wanted"),
    "it never clips": (CLIP_SCALE, "wanted < 1.0f ? wanted : 1.0f", "1.0f"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(*FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check()
