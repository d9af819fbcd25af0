"""Every kernel as a GPU is given it, at the product's block sizes: the CPU's bits. A fault in a launch is seen."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES, Case
from conftest import Plant
from networks import network

from kernels import launcher
from kernels.emulated import SHARED_LIMIT, Emulated
from kernels.errors import UserError
from kernels.gae import GAE
from kernels.launcher import SHARED_LIMITS, HostProgram, Program, emulating
from kernels.mlp import GRADIENT
from kernels.shuffle import shuffle

ROWS = [(name, rows) for name, case in CASES.items() for rows in case.rows]
MARGIN = 4096  # bytes before and after an array


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """Builds all kernels, two at a time."""
    with ThreadPoolExecutor(2) as executor:
        units = [
            (case.kernel.name, case.kernel.device_unit(SHARED_LIMIT, case.header, case.constants)[0])
            for case in CASES.values()
        ]
        for built in [executor.submit(Emulated().function, *unit) for unit in units]:
            built.result()


def margin(array: np.ndarray[Any, Any]) -> bytes:
    return array[:MARGIN].tobytes() + array[-MARGIN:].tobytes()


def within_margins(value: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """A copy of an array, and the memory in whose middle it lies; what lies beside it is known."""
    if not isinstance(value, torch.Tensor):
        return value, np.empty(0, np.uint8)
    size = value.numel() * value.element_size()
    memory = np.full(MARGIN + size + MARGIN + 64, 127, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][: MARGIN + size + MARGIN]
    memory[:MARGIN] = memory[MARGIN + size :] = 127
    copy = torch.from_numpy(memory[MARGIN : MARGIN + size]).view(value.dtype).view(value.shape)
    return copy.copy_(value), memory


def emulate(case: Case, rows: int, device: Emulated) -> list[bytes]:
    """What a kernel writes on the device; AssertionError: it writes beside its arrays."""
    values, memories = zip(*map(within_margins, case.arguments(rows)), strict=True)
    before = [margin(memory) for memory in memories]
    with emulating(device):
        results = case.run(list(values))
    assert [margin(memory) for memory in memories] == before, "written beside an array"
    return [result.numpy().tobytes() for result in results]


def product(case: Case, rows: int) -> list[bytes]:
    return [output.numpy().tobytes() for output in case.run(case.arguments(rows))]


@pytest.mark.parametrize(("name", "rows"), ROWS)
def test_the_bits_of_the_cpu(name: str, rows: int) -> None:
    assert emulate(CASES[name], rows, Emulated()) == product(CASES[name], rows)


# ---------------------------------------------------------------------------------------------------------------------
# A tile of shared memory
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "limit", "samples"),
    [
        ((64, 64), SHARED_LIMITS["sm_75"], 64),
        ((64, 64), SHARED_LIMITS["sm_90"], 64),
        ((64, 64), 40 << 10, 32),
        ((17,), SHARED_LIMITS["sm_90"], 128),
        ((128, 128), SHARED_LIMITS["sm_75"], 32),
        ((256, 256, 256), SHARED_LIMITS["sm_80"], 32),
    ],
)
def test_a_tile_fits_the_device(hidden: tuple[int, ...], limit: int, samples: int) -> None:
    text, shared = GRADIENT["one"].device_unit(limit, None, network(hidden, actions=2).constants)
    assert f"#define LS_SAMPLES {samples}\n" in text
    assert 0 < shared <= limit


def test_a_tile_that_fits_no_block_is_refused() -> None:
    constants = network((256, 256), actions=2).constants
    with pytest.raises(
        UserError, match=r"^device: hidden layers of \[256, 256\] take 1\d\d,\d+ bytes .* 65,536\. Train"
    ):
        GRADIENT["one"].device_unit(SHARED_LIMITS["sm_75"], None, constants)


def test_the_samples_of_a_tile_change_no_bit() -> None:
    """Of 32: two tiles a partition."""
    case, limit = CASES["mlp_gradient"], SHARED_LIMIT
    for _ in range(2):
        limit = case.kernel.device_unit(limit, None, case.constants)[1] - 4
    assert "#define LS_SAMPLES 32\n" in case.kernel.device_unit(limit, None, case.constants)[0]
    assert emulate(case, 150, Emulated(limit)) == product(case, 150)


# ---------------------------------------------------------------------------------------------------------------------
# Planted: what a launcher could get wrong, and a kernel
# ---------------------------------------------------------------------------------------------------------------------


class Faulty(Emulated):
    """The device behind a launcher that changes what is launched."""

    def __init__(self, fault: Callable[[Any], None]) -> None:
        super().__init__()
        self._fault = fault

    def launch(self, *launched: Any) -> None:
        names = ("function", "grid", "block", "arguments", "shared", "arrays")
        given = dict(zip(names, [launched[0], *map(list, launched[1:4]), *launched[4:]], strict=True))
        self._fault(given)
        super().launch(*given.values())


def one_block_fewer(given: Any) -> None:
    given["grid"][0] -= 1


def exchanged(given: Any) -> None:
    arguments = given["arguments"]
    arguments[5], arguments[6] = arguments[6], arguments[5]


def of_type(kind: Any) -> Callable[[Any], None]:
    def fault(given: Any) -> None:
        given["arguments"][-1] = kind(given["arguments"][-1])

    return fault


def left_out(given: Any) -> None:
    given["arguments"].pop()


def four_bytes_short(given: Any) -> None:
    given["shared"] -= 4


def not_asked_for(given: Any) -> None:
    given["function"].max_dynamic_shared_size_bytes = given["shared"] - 4


def too_many_threads(given: Any) -> None:
    given["block"][0] = 1025


@pytest.mark.parametrize(
    ("name", "fault"), [("squares", one_block_fewer), ("gae", exchanged), ("gae", of_type(np.int32))]
)
def test_a_wrong_launch_gives_other_bits(name: str, fault: Callable[[Any], None]) -> None:
    case = CASES[name]
    assert emulate(case, case.rows[-1], Faulty(fault)) != product(case, case.rows[-1])


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("gae", of_type(np.float64), "gae: parameter 10 has 4 bytes; launched with 8"),
        ("gae", left_out, "gae: the kernel takes 11 parameters; launched with 10"),
        ("mlp_values", four_bytes_short, r"mlp_values: the kernel uses (\d+) bytes of dynamic shared memory; launched"),
        ("mlp_values", not_asked_for, "mlp_values: a launch of 9 blocks of 128 threads and .* is invalid"),
        ("gae", too_many_threads, "gae: a launch of 2 blocks of 1025 threads .* is invalid"),
    ],
)
def test_a_wrong_launch_is_refused(name: str, fault: Callable[[Any], None], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        emulate(CASES[name], CASES[name].rows[-1] if name == "gae" else 33, Faulty(fault))


def test_a_missing_bound_is_seen(plant: Plant) -> None:
    loop = "BLOCK_FOR(n, share.begin, share.end)"
    plant(GAE, loop, "for (int n = share.begin + threadIdx.x, once = 1; once; once = 0)")
    with pytest.raises(AssertionError, match="written beside an array"):
        emulate(CASES["gae"], 33, Emulated())


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("sums[lane] = sum", "sums[lane + 1] = sum", "squares: block 0 writes beside its shared memory"),
        (
            "BARRIER();",
            "if (threadIdx.x < 16) BARRIER();",
            "not all threads of block 0 reach the barrier at global_norm.cu:",
        ),
    ],
)
def test_a_faulty_kernel_is_refused(plant: Plant, right: str, wrong: str, message: str) -> None:
    plant(CASES["squares"].kernel, right, wrong)
    with pytest.raises(RuntimeError, match=message):
        emulate(CASES["squares"], 600, Emulated())


def test_a_missing_barrier_gives_other_bits(plant: Plant) -> None:
    case = CASES["advantage_shift"]
    wanted = product(case, 600)
    plant(case.kernel, "BARRIER();", "")
    assert emulate(case, 600, Emulated()) != wanted


# ---------------------------------------------------------------------------------------------------------------------
# The stream, and what is recorded of it
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def device() -> Iterator[Emulated]:
    with emulating(Emulated()) as device:
        yield device


def launch(index: torch.Tensor) -> None:
    shuffle(index, torch.zeros(1, dtype=torch.int32), 0, 1)


def test_what_is_read_before_the_device_is_done_is_old(device: Emulated) -> None:
    index = torch.full((9,), -1, dtype=torch.int32)
    seen = index.numpy()
    launch(index)
    assert (seen == -1).all()
    device.synchronize()
    assert sorted(seen) == list(range(9))


@pytest.mark.parametrize(
    "read", [torch.Tensor.tolist, torch.Tensor.numpy, lambda t: t.clone(), lambda t: [int(t[k]) for k in range(9)]]
)
def test_torch_comes_after_what_was_launched_before(device: Emulated, read: Callable[[Any], Any]) -> None:
    index = torch.full((9,), -1, dtype=torch.int32)
    launch(index)
    assert sorted(read(index)) == list(range(9))


def test_what_is_recorded_runs_when_it_is_called(device: Emulated) -> None:
    """And each time, in order: torch's operations in place among the launches."""
    index, first, last = (torch.full((9,), -1, dtype=torch.int32) for _ in range(3))
    seen = index.numpy()
    iteration = torch.zeros(1, dtype=torch.int32)

    def work() -> None:
        first.copy_(index)
        shuffle(index, iteration, 0, 1)
        last.copy_(index)

    program = Program(work)
    assert (seen == -1).all()
    program()
    assert (seen == -1).all()
    assert sorted(last.tolist()) == list(range(9))
    assert first.tolist() == [-1] * 9
    iteration.fill_(1)
    program()
    assert first.tolist() != last.tolist()


@pytest.mark.parametrize(
    "work",
    [
        lambda device, tensor: device.synchronize(),
        lambda device, tensor: tensor.tolist(),
        lambda device, tensor: tensor.numpy(),
        lambda device, tensor: int(tensor[0]),
        lambda device, tensor: tensor + 1,
        lambda device, tensor: tensor.nonzero(),
        lambda device, tensor: device.record(lambda: None),
    ],
)
def test_what_a_capture_refuses_is_refused(device: Emulated, work: Callable[[Emulated, Any], Any]) -> None:
    tensor = torch.zeros(3)
    with pytest.raises(RuntimeError, match="recorded"):
        Program(lambda: work(device, tensor))
    launch(torch.zeros(3, dtype=torch.int32))  # and the stream is in order again


def test_a_program_of_the_hosts_takes_no_launch_on_a_device(device: Emulated) -> None:
    with pytest.raises(RuntimeError, match="shuffle: a program of the host's takes no launch"):
        HostProgram(lambda: launch(torch.zeros(3, dtype=torch.int32)))


def test_a_launch_that_fails_is_reported_where_it_is_waited_for() -> None:
    case = CASES["gae"]
    arguments = case.arguments(33)
    with emulating(Faulty(of_type(np.float64))) as device:
        case.run(arguments)
        with pytest.raises(RuntimeError, match="gae: parameter"):
            device.synchronize()
    assert launcher.backend(torch.device("cpu")) is None
