"""A thread of the system for each CUDA thread: no race, no index out of bounds, no undefined arithmetic, the same bits.

Each gate is shown to bite: by every barrier of every kernel left out in turn, and by faults of each other kind.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Case
from conftest import Plant

from kernels import emulator

BLOCK_SIZES = (1, 32, 128)
BARRIER = "BARRIER();"


def around_barriers(case: Case) -> tuple[str, list[str], str]:
    """A kernel's source: what stands before it, its own text cut at its barriers, and what follows it."""
    before, after = case.kernel.path.read_text().split(f"KERNEL {case.kernel.name}(")
    own, *following = after.split("\nKERNEL ", 1)
    return f"{before}KERNEL {case.kernel.name}(", own.split(BARRIER), "".join(f"\nKERNEL {text}" for text in following)


BARRIERS = [(name, k) for name, case in CASES.items() for k in range(len(around_barriers(case)[1]) - 1)]


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    """Builds all programs, two at a time."""
    with ThreadPoolExecutor(2) as executor:
        builds = [
            executor.submit(emulator.build, case.kernel, sanitizer, case.header, case.constants)
            for case in CASES.values()
            for sanitizer in emulator.SANITIZERS
        ]
        for build in builds:
            build.result()


def emulate(case: Case, rows: int, sanitizer: str, threads: int, **options: Any) -> list[bytes]:
    outputs = emulator.run(
        case.kernel,
        *case.arguments(rows),
        sanitizer=sanitizer,
        threads=threads,
        header=case.header,
        **options,
        **case.constants,
    )
    return [output.numpy().tobytes() for output in case.results(outputs)]


def product(case: Case, rows: int) -> list[bytes]:
    return [output.numpy().tobytes() for output in case.run(case.arguments(rows))]


@pytest.mark.parametrize("threads", BLOCK_SIZES)
@pytest.mark.parametrize("name", CASES)
def test_no_race(name: str, threads: int) -> None:
    case = CASES[name]
    assert emulate(case, case.rows[-1], "thread", threads) == product(case, case.rows[-1])


@pytest.mark.parametrize("name", CASES)
def test_no_access_out_of_bounds_and_no_undefined_arithmetic(name: str) -> None:
    case = CASES[name]
    for rows in case.rows:
        for threads in BLOCK_SIZES:
            assert emulate(case, rows, "memory", threads) == product(case, rows)


def test_several_blocks_run_at_once() -> None:
    one_block_by_design = {"sum_partials", "advantage_shift", "clip_scale", "orthogonal"}
    for name, case in CASES.items():
        sizes, _ = case.kernel.check(case.arguments(case.rows[-1]), case.constants)
        assert case.kernel.blocks(sizes) > 1 or name in one_block_by_design


@pytest.mark.parametrize(("name", "which"), BARRIERS)
def test_a_missing_barrier_is_a_race(name: str, which: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    case = CASES[name]
    before, parts, after = around_barriers(case)
    faulty = tmp_path / case.kernel.path.name
    faulty.write_text(before + BARRIER.join(parts[: which + 1]) + BARRIER.join(parts[which + 1 :]) + after)
    monkeypatch.setattr(case.kernel, "path", faulty)
    with pytest.raises(RuntimeError, match="data race"):
        emulate(case, case.rows[-1], "thread", 32)


def test_blocks_that_share_an_output_are_a_race(plant: Plant) -> None:
    plant(CASES["gae"].kernel, "const Range share = block_share(N);", "const Range share{0, N};")
    with pytest.raises(RuntimeError, match="data race"):
        emulate(CASES["gae"], 257, "thread", 1)


def test_a_barrier_that_not_all_threads_reach_is_found(plant: Plant) -> None:
    plant(CASES["squares"].kernel, "BARRIER();", "if (threadIdx.x < 16) BARRIER();")
    with pytest.raises(RuntimeError, match="still wait at a barrier"):
        emulate(CASES["squares"], 33, "thread", 32, timeout=3.0)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "report"),
    [
        ("gae", "values[i + N]", "values[i + 2 * N]", "heap-buffer-overflow"),
        ("gae", "returns[i] =", "returns[i - 1] =", "heap-buffer-overflow"),
        ("sum_partials", "p < P", "p <= P", "heap-buffer-overflow"),
        ("squares", "SHARED(float, sums, LANES)", "SHARED(float, sums, LANES - 1)", "out of bounds"),
        ("shuffle", "(1u << right_bits)", "(1u << (right_bits + 31))", "shift exponent"),
        ("philox_words", "4 * n", "2147483647 * (n + 2)", "signed integer overflow"),
    ],
)
def test_a_planted_fault_is_found(plant: Plant, name: str, right: str, wrong: str, report: str) -> None:
    plant(CASES[name].kernel, right, wrong)
    with pytest.raises(RuntimeError, match=report):
        emulate(CASES[name], 33, "memory", 32)
