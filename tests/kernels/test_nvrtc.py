"""Every kernel compiles for four GPU architectures, without a GPU; what it takes there is within bounds."""

import re
from collections.abc import Iterator

import pytest
from cases import CASES
from conftest import Plant

from kernels.launcher import Cubin, compile_cubin

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
MAX_REGISTERS = 96  # of 255; the largest blocks have 128 threads
MAX_SHARED = 4096  # bytes


def compiled(name: str, architecture: str) -> Cubin:
    case = CASES[name]
    return compile_cubin(case.kernel, architecture, case.header, **case.constants)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """One row a kernel, printed at the end (with pytest -s) and kept in build/provenance/gpu-resources.txt."""
    rows = [f"{'registers/spills/stack/shared':30}" + "".join(f"{a:>14}" for a in ARCHITECTURES)]
    yield rows
    print("\n" + "\n".join(rows))
    if len(rows) <= len(CASES):  # a part of the kernels was asked for
        return
    record = request.config.rootpath / "build" / "provenance" / "gpu-resources.txt"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("name", CASES)
def test_compiles_without_spills(name: str, table: list[str]) -> None:
    found = {architecture: compiled(name, architecture) for architecture in ARCHITECTURES}
    figures = (f"{c.registers}/{c.spill_bytes}/{c.stack_bytes}/{c.shared_bytes}" for c in found.values())
    table.append(f"{name:30}" + "".join(f"{f:>14}" for f in figures))
    for architecture, cubin in found.items():
        assert cubin.code.startswith(b"\x7fELF"), architecture
        assert 0 < cubin.registers <= MAX_REGISTERS, architecture
        assert cubin.spill_bytes == 0, architecture
        assert cubin.stack_bytes == 0, architecture  # no array that is indexed at run time
        assert cubin.shared_bytes <= MAX_SHARED, architecture


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("float advantage = undeclared;", 'identifier "undeclared" is undefined'),
        ("float advantage = 0.0f", "expected a "),
        ("int advantage = rewards;", 'a value of type "const float \\*" cannot be used to initialize'),
    ],
)
def test_a_fault_is_refused_with_the_compilers_log(plant: Plant, wrong: str, message: str) -> None:
    plant(CASES["gae"].kernel, "float advantage = 0.0f;", wrong)
    with pytest.raises(RuntimeError, match=message) as caught:
        compiled("gae", "sm_80")
    assert "gae for sm_80" in str(caught.value)
    assert "gae.cu(" in str(caught.value)  # file and line


def test_a_kernel_that_spills_is_seen(plant: Plant) -> None:
    """300 values are alive at once, and a thread has 255 registers."""
    hoard = (
        "float hoard[300]; for (int k = 0; k < 300; k++) hoard[k] = rewards[k]; BARRIER();"
        "for (int k = 0; k < 300; k++) advantages[k] = hoard[299 - k];"
    )
    plant(CASES["gae"].kernel, "const Range share = block_share(N);", f"{hoard} const Range share = block_share(N);")
    assert compiled("gae", "sm_80").spill_bytes > 0


def test_an_array_indexed_at_run_time_is_seen(plant: Plant) -> None:
    hoard = (
        "float hoard[64]; for (int k = 0; k < 64; k++) hoard[k * T & 63] = rewards[k];"
        "for (int k = 0; k < 64; k++) advantages[k] = hoard[(k + T) & 63];"
    )
    plant(CASES["gae"].kernel, "const Range share = block_share(N);", f"{hoard} const Range share = block_share(N);")
    assert compiled("gae", "sm_80").stack_bytes >= 256


def test_every_kernel_has_its_row_in_the_document(request: pytest.FixtureRequest) -> None:
    document = (request.config.rootpath / "docs" / "kernels.md").read_text()
    assert re.findall(r"^\| `(.+?)`", document, re.M) == list(CASES)
