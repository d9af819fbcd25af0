"""Muon on matrices in the flat buffer."""

from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor

from kernels.muon import MOMENTUM, MUON, muon, scratch_size

pytestmark = pytest.mark.usefixtures("quick_builds")

SHAPES = [(1, 1), (3, 64), (4, 64), (64, 64), (118, 64), (7, 7), (33, 5), (64, 128), (256, 256)]


def state(inputs: int, outputs: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Parameters, gradient, scale, momentum, the places of two matrices with gaps around them, and the schedule."""
    g = torch.Generator().manual_seed(seed)
    offset = torch.tensor([32, 80 + inputs * outputs], dtype=torch.int32)
    parameters, gradient, momentum = (torch.randn(2 * inputs * outputs + 112, generator=g) for _ in range(3))
    return parameters, gradient, torch.tensor([0.3]), momentum, offset, torch.tensor([3e-2, 0.4, 0.5])


def step(inputs: int, outputs: int, values: tuple[Tensor, ...]) -> None:
    *arrays, schedule = values
    scratch = poisoned(len(arrays[-1]), scratch_size(inputs, outputs))
    muon(*arrays, scratch, schedule, inputs=inputs, outputs=outputs)


def check(inputs: int = 9, outputs: int = 33) -> None:
    before, after = state(inputs, outputs), state(inputs, outputs)
    step(inputs, outputs, after)
    assert_close((after[0], after[3]), reference.muon, *before, inputs, outputs, MOMENTUM)


def first_step(gradient: Tensor) -> Tensor:
    """What one matrix moves by from zero momentum, in units of the step's length."""
    inputs, outputs = gradient.shape
    moved, momentum = torch.zeros(gradient.numel()), torch.zeros(gradient.numel())
    one, offset = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    step(inputs, outputs, (moved, gradient.reshape(-1), one, momentum, offset, torch.tensor([-1.0, 0.0, 0.0])))
    return moved.view(inputs, outputs) / (0.2 * max(inputs, outputs) ** 0.5)


def with_spectrum(inputs: int, outputs: int, spectrum: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Orthonormal columns U (inputs, k) and V (outputs, k), and U diag(spectrum) V'."""
    g = torch.Generator().manual_seed(5)
    k = min(inputs, outputs)
    u, v = (torch.linalg.qr(torch.randn(n, k, generator=g, dtype=torch.float64))[0] for n in (inputs, outputs))
    return u, v, (u * spectrum) @ v.T


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_reference(inputs: int, outputs: int) -> None:
    check(inputs, outputs)


def test_one_by_one_by_hand() -> None:
    """A number is normalized to 1, which five rounds take to 0.701, 1.1136, 0.7207, 1.0900, 0.6965."""
    parameters, momentum = torch.tensor([1.0, 1.0]), torch.tensor([8.0, 8.0])
    offset = torch.tensor([1], dtype=torch.int32)
    schedule = torch.tensor([0.5, 0.0, 0.0])
    step(1, 1, (parameters, torch.tensor([9.0, -400.0]), torch.tensor([0.5]), momentum, offset, schedule))
    assert momentum.tolist() == pytest.approx([8.0, 0.95 * 8 - 0.05 * 200], rel=1e-6)  # the first is no matrix's
    assert parameters.tolist() == pytest.approx([1.0, 1 + 0.5 * 0.2 * 0.6965], abs=1e-5)


def test_the_momentum_is_looked_ahead() -> None:
    """Momentum 1 and gradient -18: the momentum becomes 0.05, still positive; looked ahead it is negative."""
    parameters, momentum = torch.zeros(1), torch.ones(1)
    offset = torch.zeros(1, dtype=torch.int32)
    step(1, 1, (parameters, torch.tensor([-18.0]), torch.ones(1), momentum, offset, torch.tensor([1.0, 0.0, 0.0])))
    assert momentum.item() == pytest.approx(0.05, abs=1e-6)
    assert parameters.item() > 0


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_nearly_orthogonal(inputs: int, outputs: int) -> None:
    """Singular vectors stay, singular values become those of the quintic: about 1, if they were not too far apart."""
    k = min(inputs, outputs)
    spectrum = torch.linspace(1.0, 0.1, k, dtype=torch.float64)
    u, v, gradient = with_spectrum(inputs, outputs, spectrum)
    moved = first_step(gradient.float()).double()
    values = torch.linalg.svdvals(moved)
    assert values.min() > 0.68
    assert values.max() < 1.14
    wanted = spectrum / spectrum.norm()
    for _ in range(5):
        wanted = 3.4445 * wanted - 4.7750 * wanted**3 + 2.0315 * wanted**5
    assert torch.allclose(u.T @ moved @ v, torch.diag(wanted), atol=2e-4)


def test_the_gradients_length_does_not_matter_and_zero_is_no_step() -> None:
    gradient = state(6, 4)[1][:24].view(6, 4)
    assert torch.allclose(first_step(gradient), first_step(1024 * gradient), atol=1e-5)
    assert not first_step(torch.zeros(6, 4)).any()


@pytest.mark.parametrize(("inputs", "outputs"), [(5, 3), (64, 16), (118, 64)])
def test_a_transposed_matrix_takes_the_transposed_step(inputs: int, outputs: int) -> None:
    gradient = state(inputs, outputs)[1][: inputs * outputs].view(inputs, outputs)
    assert torch.equal(first_step(gradient.T.contiguous()), first_step(gradient).T)


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (35, 18)])
def test_the_vectors_width_changes_no_bit(inputs: int, outputs: int, tmp_path: Path) -> None:
    wanted = state(inputs, outputs)
    step(inputs, outputs, wanted)
    for width in (4, 8, 16):
        (header := tmp_path / f"vector-{width}.h").write_text(f"#define LS_VECTOR {width}\n")
        *arrays, schedule = got = state(inputs, outputs)
        scratch = poisoned(2, scratch_size(inputs, outputs))
        MUON(*arrays, scratch, schedule, MOMENTUM, header=header, INPUTS=inputs, OUTPUTS=outputs)
        for one, other in zip(wanted, got, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("number", "wrong", "message"),
    [
        (1, lambda a: a.double(), "gradient must be float32"),
        (3, lambda a: a[:-1], "momentum must be float32"),
        (4, lambda a: a.long(), "offset must be int32"),
        (5, lambda a: a[:, :-16], r"muon: scratch must be \(M, \d+\) for 5 x 3; got"),
        (5, lambda a: a[:1], "scratch must be float32"),
        (6, lambda a: a[:2], "schedule must be float32"),
    ],
)
def test_a_wrong_argument_is_refused(number: int, wrong: Any, message: str) -> None:
    arrays = list(state(5, 3))
    arrays.insert(5, poisoned(2, scratch_size(5, 3)))
    arrays[number] = wrong(arrays[number])
    with pytest.raises(ValueError, match=message):
        muon(*arrays, inputs=5, outputs=3)


FAULTS = {
    "the gradient is not clipped": ("gradient[begin + own] * scale[0]", "gradient[begin + own]"),
    "no momentum": ("beta * momentum[begin + own]", "0.0f * momentum[begin + own]"),
    "the momentum is not kept": ("momentum[begin + own] = m;", ""),
    "the momentum is not looked ahead": ("looked_ahead = beta * m + (1.0f - beta) * g", "looked_ahead = m"),
    "every matrix is the first": ("offset[blockIdx.x]", "offset[0]"),
    "a column is left out of the norm": ("column < WIDTH; column++", "column < WIDTH - 1; column++"),
    "the spectral norm is not bounded": ("square_root(sum) + 1e-7f", "square_root(square_root(sum)) + 1e-7f"),
    "four rounds": ("ROUNDS = 5", "ROUNDS = 4"),
    "another coefficient": ("B = -4.7750f", "B = -4.77f"),
    "the linear term is left out": ("A * load(z", "0.0f * load(z"),
    "the length of the shorter side": ("square_root((float)LENGTH)", "square_root((float)WIDTH)"),
    "another learning rate": ("schedule[0]", "schedule[1]"),
    "the step goes uphill": ("parameters[begin + own] -=", "parameters[begin + own] +="),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(MUON, *FAULTS[fault])
    with pytest.raises(AssertionError, match="outside"):
        check()
