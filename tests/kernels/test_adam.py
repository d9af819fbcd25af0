"""Adam over the flat buffer."""

import pytest
import reference
import torch
from compare import assert_close
from conftest import Plant
from torch import Tensor

from kernels.adam import ADAM, BETA1, BETA2, EPSILON, adam

pytestmark = pytest.mark.usefixtures("quick_builds")


def state(n: int, seed: int) -> tuple[Tensor, ...]:
    """Parameters, gradient, scale, both moments and the schedule of step 3, in the kernel's order."""
    g = torch.Generator().manual_seed(seed)
    parameters, gradient, first = (torch.randn(n, generator=g) for _ in range(3))
    second = torch.rand(n, generator=g) * 10.0 ** torch.randint(-12, 1, (n,), generator=g)
    schedule = torch.tensor([3e-2, 1 - BETA1**3, 1 - BETA2**3])
    return parameters, gradient, torch.tensor([0.3]), first, second, schedule


def check(n: int = 257, seed: int = 0) -> None:
    before, after = state(n, seed), state(n, seed)
    adam(*after)
    assert_close((after[0], after[3], after[4]), reference.adam, *before, BETA1, BETA2, EPSILON)


@pytest.mark.parametrize("n", [1, 7, 33, 257, 9219])
def test_reference(n: int) -> None:
    check(n)


def test_first_step_by_hand() -> None:
    """From zero moments the first step is the learning rate times the gradient's sign, whatever its size."""
    parameters, first, second = torch.tensor([1.0, 1.0, 1.0]), torch.zeros(3), torch.zeros(3)
    schedule = torch.tensor([0.25, 1 - BETA1, 1 - BETA2])
    adam(parameters, torch.tensor([200.0, -8.0, 0.0]), torch.tensor([0.5]), first, second, schedule)
    assert parameters.tolist() == pytest.approx([0.75, 1.25, 1.0], rel=1e-5)
    assert first.tolist() == pytest.approx([10.0, -0.4, 0.0], rel=1e-6)  # a tenth of the scaled gradient
    assert second.tolist() == pytest.approx([10.0, 0.016, 0.0], rel=1e-4)  # a thousandth of its square


def test_as_torch_over_ten_steps() -> None:
    g = torch.Generator().manual_seed(1)
    mine = torch.randn(300, generator=g)
    theirs = mine.double().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=1e-2, betas=(BETA1, BETA2), eps=EPSILON)
    first, second = torch.zeros(300), torch.zeros(300)
    for step in range(1, 11):
        gradient = torch.randn(300, generator=g)
        theirs.grad = gradient.double()
        optimizer.step()
        schedule = torch.tensor([1e-2, 1 - BETA1**step, 1 - BETA2**step])
        adam(mine, gradient, torch.ones(1), first, second, schedule)
    assert torch.allclose(mine.double(), theirs, rtol=0.0, atol=2e-6)


FAULTS = {
    "the gradient is not clipped": ("gradient * scale;", "gradient;"),
    "the first moment is not corrected": ("(first / correction1)", "first"),
    "the second moment is not corrected": ("second / correction2", "second"),
    "epsilon inside of the root": (
        "(square_root(second / correction2) + epsilon)",
        "square_root(second / correction2 + epsilon)",
    ),
    "torch's epsilon": ("+ epsilon)", "+ 1e-8f)"),
    "the moments are exchanged": ("beta1 * first +", "beta2 * first +"),
    "the second moment of the unclipped gradient": ("* g * g;", "* gradient * gradient;"),
    "the step goes uphill": ("parameter - learning_rate", "parameter + learning_rate"),
    "the last parameters stay": ("BLOCK_FOR(i, whole, share.end) step", "BLOCK_FOR(i, whole, whole) step"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(ADAM, *FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check()
