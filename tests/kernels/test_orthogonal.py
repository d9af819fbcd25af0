"""Orthogonal initialization."""

import numpy as np
import pytest
import reference
from compare import poisoned
from conftest import Plant
from torch import Tensor

from kernels.orthogonal import ORTHOGONAL, orthogonal

pytestmark = pytest.mark.usefixtures("quick_builds")

SHAPES = [(1, 1), (7, 7), (33, 5), (4, 64), (64, 64), (257, 3)]


def run(inputs: int, outputs: int, gain: float = 1.0, layer: int = 0, run_seed: int = 1) -> Tensor:
    weight = poisoned(inputs, outputs)
    orthogonal(weight, gain, layer, run_seed)
    return weight


def check(inputs: int, outputs: int, gain: float = 2**0.5) -> None:
    """The matrix of the reference, and orthonormal to float32's precision."""
    weight = run(inputs, outputs, gain, layer=3).double().numpy()
    wanted = reference.orthogonal(inputs, outputs, gain, 3, 1)
    # A matrix that is nearly singular magnifies the rounding of its Gaussian entries.
    assert np.abs(weight - wanted).max() < 2e-4
    smaller = weight.T @ weight if inputs >= outputs else weight @ weight.T
    assert np.abs(smaller - gain**2 * np.eye(min(inputs, outputs))).max() < 2e-6


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_reference(inputs: int, outputs: int) -> None:
    check(inputs, outputs)


def test_one_by_one_is_the_gain_or_its_negative() -> None:
    values = {float(run(1, 1, gain=0.5, run_seed=seed)) for seed in range(20)}
    assert values == {0.5, -0.5}


def test_layers_and_run_seeds_differ() -> None:
    matrices = [run(8, 8, layer=layer, run_seed=seed) for layer in range(3) for seed in (0, 1, 1 << 32)]
    for i, one in enumerate(matrices):
        for other in matrices[:i]:
            assert float((one * other).sum().abs()) < 8 * 0.9  # of 8 when they are equal


FAULTS = {
    "the gain is left out": ("weight[i] *= gain", "weight[i] *= 1.0f"),
    "a vector is not made orthogonal to the last": ("round < 2 * v + 1", "round < 2 * v"),
    "orthogonal to one vector only": ("round % v", "0"),
    "the smaller side is mistaken": ("I >= O;", "I > O + 10;"),
    "a fourth of the entries repeats": ("weight[quad * 4 + k] = z.value[k]", "weight[quad * 4 + k] = z.value[k & 2]"),
    "the layer is ignored": ("philox(quad, layer,", "philox(quad, 0,"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    plant(ORTHOGONAL, *FAULTS[fault])
    with pytest.raises(AssertionError):
        check(9, 5)
