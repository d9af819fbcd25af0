"""The thread pool: every task once, whoever calls, however often, and whatever the number of threads becomes."""

import ctypes
import multiprocessing
import subprocess
import threading
from collections.abc import Iterator

import pytest
import torch

from kernels import compiler, emulator
from kernels.gae import gae

# A task that needs no interpreter: the C library's usleep, whose microseconds are passed as the task's context.
SLEEP = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

STRESS = r"""
#include <thread>
static void add(void* context, int task) { ((long*)context)[task] += task; }
static bool loops(int rounds) {
    for (int round = 1; round <= rounds; round++) {
        const int tasks = 1 + round * 7 % 40;
        long sums[40] = {};
        parallel_for(tasks, add, sums);
        for (int i = 0; i < tasks; i++)
            if (sums[i] != i) return false;
    }
    return true;
}
int main() {
    bool fine[2] = {false, false};
    set_threads(3);
    std::thread one([&] { fine[0] = loops(1500); }), other([&] { fine[1] = loops(1500); });
    for (int round = 0; round < 30; round++) set_threads(1 + round % 4);
    one.join();
    other.join();
    return fine[0] && fine[1] ? 0 : 1;
}
"""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    yield
    compiler.set_threads(1)


def advantages(seed: int, T: int = 16, N: int = 2048) -> torch.Tensor:
    """A rollout's advantages, a kernel of 16 blocks."""
    g = torch.Generator().manual_seed(seed)
    rewards, values, final_values = (torch.randn(T + k, N, generator=g) for k in (0, 1, 0))
    ended = (torch.rand(T, N, generator=g) < 0.1).to(torch.uint8)
    result, returns = torch.empty(T, N), torch.empty(T, N)
    gae(rewards, values, final_values, ended, ended, result, returns, 0.99, 0.95)
    return result


def test_two_python_threads_at_once() -> None:
    wanted = [advantages(seed) for seed in range(2)]
    compiler.set_threads(3)
    equal = [False, False]

    def repeat(seed: int) -> None:
        equal[seed] = all(torch.equal(advantages(seed), wanted[seed]) for _ in range(100))

    callers = [threading.Thread(target=repeat, args=(seed,)) for seed in range(2)]
    for caller in callers:
        caller.start()
    for round in range(20):
        compiler.set_threads(1 + round % 3)
    for caller in callers:
        caller.join()
    assert equal == [True, True]


def test_after_a_fork() -> None:
    """Children that are forked while another thread runs loops: their pool is their own, and no lock is left shut."""
    compiler.set_threads(2)
    wanted, stop = advantages(5), threading.Event()
    reader, writer = multiprocessing.Pipe(duplex=False)

    def loop() -> None:
        while not stop.is_set():
            compiler.pool().parallel_for(ctypes.c_int(8), SLEEP, ctypes.c_void_p(5000))

    def child() -> None:
        compiler.set_threads(3)
        writer.send_bytes(advantages(5).numpy().tobytes())

    busy = threading.Thread(target=loop)
    busy.start()
    try:
        for _ in range(5):
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            finished = reader.poll(60)
            if not finished:
                process.kill()
            assert finished, "the child hangs"
            assert reader.recv_bytes() == wanted.numpy().tobytes()
            process.join(60)
            assert process.exitcode == 0
    finally:
        stop.set()
        busy.join()


def test_many_small_loops() -> None:
    calls = (ctypes.c_int * 8)()
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)

    def count(_: int | None, task: int) -> None:
        calls[task] += 1

    callback = task_type(count)
    for round in range(500):
        compiler.set_threads(1 + round % 5)
        compiler.pool().parallel_for(ctypes.c_int(8), callback, None)
    assert list(calls) == [500] * 8


def test_no_task_for_an_empty_loop() -> None:
    compiler.pool().parallel_for(ctypes.c_int(0), None, None)


@pytest.mark.parametrize("sanitizer", emulator.SANITIZERS)
def test_stress_under_the_sanitizers(sanitizer: str) -> None:
    text = (compiler.FOLDER / "pool.cpp").read_text() + STRESS
    program = compiler.compile_library(text, f"pool-{sanitizer}", emulator.flags(sanitizer))
    result = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr[:3000]
