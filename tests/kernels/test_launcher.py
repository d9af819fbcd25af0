"""What holds for every kernel: it has its row in the table, refuses wrong arguments, and no thread changes a bit."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cases import CASES, Case, declared
from compare import poisoned

from kernels import compiler
from kernels.gae import GAE
from kernels.launcher import In, Out, Scalar


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    compiler.set_threads(1)


def test_every_kernel_has_a_row() -> None:
    assert {case.kernel.name for case in CASES.values()} == declared()


@pytest.mark.usefixtures("threads")
def test_threads_change_no_bit(case: Case) -> None:
    for rows in case.rows:
        results = []
        for count in (1, 2, 3):
            compiler.set_threads(count)
            results.append(case.run(case.arguments(rows)))
        for other in results[1:]:
            for one, again in zip(results[0], other, strict=True):
                assert one.numpy().tobytes() == again.numpy().tobytes()


def test_every_output_is_written(case: Case) -> None:
    for rows in case.rows:
        outputs = case.run(case.arguments(rows))
        names = [a.name for a in case.kernel.arguments if isinstance(a, Out) and a.name not in case.ticks]
        for name, output in zip(names, outputs, strict=True):
            if name not in case.gaps:
                assert not (output == poisoned(1, dtype=output.dtype)).any(), name
                assert not output.isnan().any(), name


def wrong(value: torch.Tensor) -> list[Any]:
    """The array with another dtype, another number of dimensions, gaps in memory, and from another library."""
    with_gaps = torch.stack([value, value], dim=-1)[..., 0]
    return [value.half(), value[None], value.numpy(), *([] if with_gaps.is_contiguous() else [with_gaps])]


def test_wrong_arguments_are_refused(case: Case) -> None:
    right = case.arguments(case.rows[-1])
    passed = [a for a in case.kernel.arguments if isinstance(a, In | Scalar)]
    for place, argument in enumerate(passed):
        if isinstance(argument, In):
            for value in wrong(right[place]):
                with pytest.raises(ValueError, match=f"^{case.kernel.name}: {argument.name} must be "):
                    case.kernel(*right[:place], value, *right[place + 1 :], header=case.header, **case.constants)
    for values in (right[:-1], [*right, right[0]]):
        with pytest.raises(ValueError, match=f"wanted {len(right)} arguments, got {len(values)}"):
            case.kernel(*values, header=case.header, **case.constants)
    with pytest.raises(ValueError, match="wanted the constants"):
        case.kernel(*right, header=case.header, **case.constants, NONE=1)


def test_the_complaint_says_what_was_wanted_what_came_and_what_to_do() -> None:
    right = CASES["gae"].arguments(3)  # T = 7
    with pytest.raises(ValueError) as caught:
        GAE(right[0], right[1].double(), *right[2:])
    assert str(caught.value) == (
        "gae: values must be float32 (8, 3), contiguous, on cpu; got float64 (8, 3) on cpu. "
        "Convert with values.to('cpu', torch.float32).contiguous()"
    )
    with pytest.raises(ValueError) as caught:
        GAE(right[0], right[1][:7], *right[2:])
    assert str(caught.value) == "gae: values must be float32 (8, 3), contiguous, on cpu; got float32 (7, 3) on cpu."
