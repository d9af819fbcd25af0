"""Every kernel compiles for four GPU architectures, without a GPU; what it takes there is within bounds."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
import torch
from cases import CASES
from conftest import Plant

from kernels import compiler, launcher
from kernels.launcher import Cubin, Kernel, compile_cubin

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
MAX_REGISTERS = 96  # of 255; the largest blocks have 128 threads
MAX_REGISTERS_OF = {
    "mlp_gradient": 168,
    "mlp_policy_metrics": 128,
    "mlp_rollout": 128,
}  # three and four blocks of 128 threads at once
MAX_SHARED = 4096  # bytes, beside the tile of a fused kernel, whose size the launch says
MAX_SHARED_OF = {"advantage_shift": 12288}  # a block a minibatch: few, and each alone with its multiprocessor
KERNEL_TEXT = re.compile(r"^KERNEL (\w+)\(.*?^\}\n", re.M | re.S)


def alone(kernel: Kernel, folder: Path) -> Kernel:
    """The kernel without the others of its file, which would be compiled with it each time."""
    result = copy(kernel)
    result.path = folder / f"{kernel.name}.cu"
    text = KERNEL_TEXT.sub(lambda m: m.group() if m.group(1) == kernel.name else "", kernel.path.read_text())
    result.path.write_text(text)
    return result


def compiled(name: str, architecture: str) -> Cubin:
    case = CASES[name]
    return compile_cubin(case.kernel, architecture, case.header, **case.constants)


@pytest.fixture(scope="module")
def cubins(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[tuple[str, str], Cubin]:
    """The rows that are asked for, by name and architecture; compiled two at a time."""
    asked = [item.callspec.params["name"] for item in request.session.items if "cubins" in item.fixturenames]
    folder = tmp_path_factory.mktemp("alone")
    with ThreadPoolExecutor(2) as executor:
        pending = {}
        for name in asked:
            case = CASES[name]
            kernel = alone(case.kernel, folder)
            for architecture in ARCHITECTURES:
                job = partial(compile_cubin, kernel, architecture, case.header, **case.constants)
                pending[name, architecture] = executor.submit(job)
        return {key: job.result() for key, job in pending.items()}


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """One row a kernel, printed at the end (with pytest -s) and kept in build/provenance/gpu-resources.txt."""
    rows = [f"{'registers/spills/stack/shared':34}" + "".join(f"{a:>14}" for a in ARCHITECTURES)]
    yield rows
    print("\n" + "\n".join(rows))
    if len(rows) <= len(CASES):  # a part of the kernels was asked for
        return
    record = request.config.rootpath / "build" / "provenance" / "gpu-resources.txt"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("name", CASES)
def test_compiles_without_spills(name: str, cubins: dict[tuple[str, str], Cubin], table: list[str]) -> None:
    found = {architecture: cubins[name, architecture] for architecture in ARCHITECTURES}
    figures = (f"{c.registers}/{c.spill_bytes}/{c.stack_bytes}/{c.shared_bytes}" for c in found.values())
    table.append(f"{name:34}" + "".join(f"{f:>14}" for f in figures))
    for architecture, cubin in found.items():
        assert cubin.code.startswith(b"\x7fELF"), architecture
        check_bounds(CASES[name].kernel, cubin, architecture)


def check_bounds(kernel: Kernel, cubin: Cubin, architecture: str) -> None:
    assert 0 < cubin.registers <= MAX_REGISTERS_OF.get(kernel.name, MAX_REGISTERS), architecture
    assert cubin.spill_bytes == 0, architecture
    assert cubin.stack_bytes == 0, architecture  # no array that is indexed at run time
    assert cubin.shared_bytes <= MAX_SHARED_OF.get(kernel.name, MAX_SHARED), architecture


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


@pytest.mark.parametrize(
    "hoard",
    [
        "float hoard[110]; for (int k = 0; k < 110; k++) hoard[k] = rewards[k]; BARRIER();"
        "for (int k = 0; k < 110; k++) advantages[k] = hoard[109 - k];",
        "SHARED(float, hoard, 1025); hoard[T] = rewards[0]; BARRIER(); advantages[0] = hoard[N];",
    ],
    ids=["registers", "shared memory"],
)
def test_a_kernel_that_takes_more_is_refused(plant: Plant, hoard: str) -> None:
    plant(CASES["gae"].kernel, "const Range share = block_share(N);", f"{hoard} const Range share = block_share(N);")
    cubin = compiled("gae", "sm_80")
    assert cubin.spill_bytes == cubin.stack_bytes == 0
    with pytest.raises(AssertionError, match="sm_80"):
        check_bounds(CASES["gae"].kernel, cubin, "sm_80")


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


def test_a_cubin_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plant: Plant) -> None:
    """And again where the kernel's text is another."""
    monkeypatch.setattr(compiler, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(launcher, "_compile_cubin", Mock(wraps=launcher._compile_cubin))
    first = compiled("sum_partials", "sm_80")
    assert compiled("sum_partials", "sm_80") == first
    assert launcher._compile_cubin.call_count == 1  # type: ignore[attr-defined]  # a Mock
    plant(CASES["sum_partials"].kernel, "p < P", "p < P - 1")
    assert compiled("sum_partials", "sm_80") != first
    assert [path.suffix for path in tmp_path.glob("sum_partials-*")] == [".json", ".json"]


def test_every_kernel_has_its_row_in_the_document(request: pytest.FixtureRequest) -> None:
    document = (request.config.rootpath / "docs" / "kernels.md").read_text()
    assert re.findall(r"^\| `(.+?)`", document, re.M) == list(CASES)


def test_a_device_loads_what_was_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's own compilation flushes denormals, and its cache would not see a change of a header."""
    import cupy

    device = MagicMock()
    device.return_value.__enter__.return_value.compute_capability = "90"
    loaded: list[bytes] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cupy.cuda, "Device", device)
    monkeypatch.setattr(cupy, "RawModule", lambda path: loaded.append(Path(path).read_bytes()) or Mock())
    kernel = CASES["sum_partials"].kernel
    launcher.Cuda().function(kernel.name, kernel.unit())
    assert loaded == [compile_cubin(kernel, "sm_90").code]
