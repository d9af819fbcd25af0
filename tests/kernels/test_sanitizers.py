"""A thread of the system for each CUDA thread: no race, no index out of bounds, no undefined arithmetic, the same bits.

Each gate is shown to bite: by every barrier of every kernel left out in turn, and by faults of each other kind.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases import CASES, Case
from conftest import Plant, source

from kernels import compiler, emulator

BLOCK_SIZES = (1, 32, 128)
BARRIER = "BARRIER();"
ROOT = Path(__file__).resolve().parents[2]


# One that ends on its first line, or at the first brace of a line's own.
FUNCTION = re.compile(
    r"^(?:KERNEL|DEVICE\w*)\b[^;\n]*?\b(\w+)\((?:[^\n]*[)}](?:  //[^\n]*)?\n(?! )|.*?^\})", re.M | re.S
)


def reached(text: str, kernel: str) -> list[re.Match[str]]:
    """The functions of a source that a kernel calls, itself among them, in their order."""
    functions = {match.group(1): match for match in FUNCTION.finditer(text)}
    found, new = set(), {kernel}
    while new:
        found |= new
        words = {word for name in new for word in re.findall(r"\w+", functions[name].group())}
        new = (words & functions.keys()) - found
    return sorted((functions[name] for name in found), key=re.Match.start)


def barriers() -> list[tuple[str, str, int]]:
    """Every barrier once, by file and line, behind the first row whose kernel comes to it."""
    texts = {path.name: path.read_text() for path in [*compiler.FOLDER.glob("*.cu*"), *(ROOT / "envs").glob("*.h")]}
    seen: dict[tuple[str, int], str] = {}
    for name, case in CASES.items():
        for function in reached(source(case.kernel, case.header), case.kernel.name):
            file = next(file for file, text in texts.items() if function.group() in text)
            start = texts[file].index(function.group())
            for match in re.finditer(re.escape(BARRIER), function.group()):
                seen.setdefault((file, texts[file].count("\n", 0, start + match.start()) + 1), name)
    return [(name, file, line) for (file, line), name in seen.items()]


BARRIERS = barriers()


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
        blocks=case.blocks,
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
    few, most = case.rows[0], case.rows[-1]
    for rows, threads in ((few, 128), *((rows, 32) for rows in case.rows[:-1]), (most, 1), (most, 128)):
        assert emulate(case, rows, "memory", threads) == product(case, rows)


def test_several_blocks_run_at_once() -> None:
    one_block_by_design = {"stopwatch", "sum_partials", "clip_scale", "orthogonal", "summary", "mlp_sizes"}
    for name, case in CASES.items():
        sizes, _ = case.kernel.check(case.arguments(case.rows[-1]), case.constants)
        assert case.kernel.blocks(sizes) > 1 or name in one_block_by_design


@pytest.mark.parametrize(("name", "file", "line"), BARRIERS)
def test_a_missing_barrier_is_a_race(name: str, file: str, line: int) -> None:
    """With more threads than a sum has chains: so that none reads only what it wrote."""
    case = CASES[name]
    with pytest.raises(RuntimeError, match="data race"):
        emulate(case, case.rows[-1], "thread", 64, without=(file, line))


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
