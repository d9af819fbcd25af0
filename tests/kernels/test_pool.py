"""The thread pool: every task once, whoever calls, however often, and whatever the number of threads becomes; and its
programs, launches that are recorded once and run by one call."""

import ctypes
import gc
import multiprocessing
import shlex
import subprocess
import threading
from collections.abc import Iterator

import pytest
import torch
from compare import poisoned

from kernels import compiler, emulator
from kernels.advantage_shift import advantage_shift
from kernels.gae import gae
from kernels.launcher import Program
from kernels.shuffle import shuffle

POOL = compiler.FOLDER / "pool.cpp"

# A task that needs no interpreter: the C library's usleep, whose microseconds are passed as the task's context.
SLEEP = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

STRESS = r"""
#include <thread>
// Launches of `tasks` tasks that each need the last one's results: task i of launch k + 1 reads what others of k wrote.
struct Step {
    long *from, *to;
    int tasks;
};
static void next(void* context, int task) {
    const Step* step = (const Step*)context;
    step->to[task] = step->from[(task + 1) % step->tasks] + step->from[task];
}
struct Chain {
    long numbers[5][40];
    int tasks;
    void launch() {
        for (int k = 0; k < 4; k++) {
            Step step{numbers[k], numbers[k + 1], tasks};
            submit(tasks, next, &step, sizeof step);
        }
    }
    bool right(long first) const {
        for (int i = 0; i < tasks; i++)
            if (numbers[4][i] != 16 * first) return false;  // twice the last ones, four times
        return true;
    }
    void begin(long first) {
        for (int i = 0; i < tasks; i++) numbers[0][i] = first;
    }
};
static bool loops(int rounds) {
    Chain recorded{{}, 33};
    Program* program = program_new();
    program_record(program);
    recorded.launch();
    program_record(nullptr);
    bool fine = true;
    for (int round = 1; round <= rounds; round++) {
        Chain direct{{}, 1 + round * 7 % 40};
        direct.begin(round);
        direct.launch();
        recorded.begin(-round);
        program_run(program);
        fine = fine && direct.right(round) && recorded.right(-round);
    }
    program_free(program);
    return fine;
}
int main() {
    bool fine[2] = {false, false};
    set_threads(3);
    std::thread one([&] { fine[0] = loops(400); }), other([&] { fine[1] = loops(400); });
    for (int round = 0; round < 30; round++) set_threads(1 + round % 4);
    one.join();
    other.join();
    set_threads(3);
    return fine[0] && fine[1] && loops(200) ? 0 : 1;
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
            compiler.pool().submit(ctypes.c_int(8), SLEEP, ctypes.c_void_p(5000), 0)

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
        compiler.pool().submit(ctypes.c_int(8), callback, None, 0)
    assert list(calls) == [500] * 8


def test_no_task_for_an_empty_loop() -> None:
    compiler.pool().submit(ctypes.c_int(0), None, None, 0)


STACKS = r"""
// Tasks that take four megabytes of a worker's stack.
static pthread_t first;
static int taken;
__attribute__((noinline)) static void fill() {
    volatile char room[4 << 20];
    for (unsigned i = 0; i < sizeof room; i += 4096) room[sizeof room - 1 - i] = 1;
    __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
}
static void task(void*, int) {
    if (!pthread_equal(first, pthread_self())) fill();
    usleep(1000);
}
int main() {
    first = pthread_self();
    set_threads(3);
    for (int round = 0; round < 100 && !taken; round++) submit(8, task, nullptr, 0);
    return taken ? 0 : 1;
}
"""


def test_a_worker_s_stack_is_large_where_the_system_s_are_small() -> None:
    flags = tuple(flag for flag in compiler.FLAGS if flag not in ("-fPIC", "-shared"))
    program = compiler.compile_library(POOL.read_text() + STACKS, "pool-stacks", flags)
    done = subprocess.run(["sh", "-c", f"ulimit -s 512 && exec {shlex.quote(str(program))}"], timeout=60, check=False)
    assert done.returncode == 0


def stress(sanitizer: str, text: str) -> "subprocess.CompletedProcess[str]":
    program = compiler.compile_library(text + STRESS, f"pool-{sanitizer}", emulator.flags(sanitizer))
    return subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)


def fails(text: str) -> bool:
    """Whether the pool races, crashes or hangs."""
    try:
        return stress("thread", text).returncode != 0
    except subprocess.TimeoutExpired:
        return True


@pytest.mark.parametrize("sanitizer", emulator.SANITIZERS)
def test_stress_under_the_sanitizers(sanitizer: str) -> None:
    """Launches and programs, from two threads, while the number of threads changes."""
    result = stress(sanitizer, POOL.read_text())
    assert result.returncode == 0, result.stderr[:3000]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if (__atomic_load_n(&launch->done, __ATOMIC_ACQUIRE) == launch->tasks) continue;", "continue;"),
        (
            "while (__atomic_load_n(&pool->active, __ATOMIC_ACQUIRE) != 0) pthread_cond_wait",
            "if (false) pthread_cond_wait",
        ),
        ("launch.context = memcpy(malloc(bytes), context, bytes);", ""),
    ],
    ids=["a launch begins before the last one is done", "the caller leaves early", "the arguments are not kept"],
)
def test_a_planted_fault_is_found(right: str, wrong: str) -> None:
    text = POOL.read_text()
    spin = "for (int spin = 0; spin < SPINS && "
    assert right in text
    assert spin in text
    faulty = text.replace(right, wrong).replace(spin, "for (int spin = 0; spin < 0 && ")
    # On a busy core threads may take turns so well that a race does not come about.
    assert any(fails(faulty) for _ in range(10))


class Chain:
    """Three kernels, of which the last one needs what the others wrote."""

    def __init__(self, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        T, N = 8, 1024
        self._rewards, self._values, self._final = (torch.randn(T + k, N, generator=g) for k in (0, 1, 0))
        self._ended = (torch.rand(T, N, generator=g) < 0.1).to(torch.uint8)
        self.advantages, self.returns = torch.empty(T, N), torch.empty(T, N)
        self.iteration, self.indices = torch.zeros(1, dtype=torch.int32), torch.empty(T * N, dtype=torch.int32)
        self.shifts = poisoned(8, 2)

    def launch(self) -> None:
        ended = (self._ended, self._ended)
        gae(self._rewards, self._values, self._final, *ended, self.advantages, self.returns, 0.99, 0.95)
        shuffle(self.indices, self.iteration, 1, 5)
        advantage_shift(self.advantages.view(-1), self.indices.view(8, -1), self.shifts)

    def wanted(self, iteration: int) -> torch.Tensor:
        """What direct launches give."""
        self.iteration[0] = iteration
        self.launch()
        return self.shifts.clone()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_program_is_its_launches(threads: int) -> None:
    """And recording runs none of them; what changes from run to run lies in an array."""
    chain = Chain(0)
    wanted = [Chain(0).wanted(iteration) for iteration in range(3)]
    compiler.set_threads(threads)
    program = Program(chain.launch)
    assert chain.shifts.isnan().all()
    for iteration, shifts in enumerate(wanted):
        chain.iteration[0] = iteration
        chain.shifts.fill_(float("nan"))
        program()
        assert torch.equal(chain.shifts, shifts)


def test_a_program_runs_thousands_of_times() -> None:
    chain = Chain(1)
    wanted = [Chain(1).wanted(iteration) for iteration in range(4)]
    compiler.set_threads(3)
    program = Program(chain.launch)
    for round in range(2000):
        chain.iteration[0] = round % 4
        program()
        assert torch.equal(chain.shifts, wanted[round % 4])


def test_two_programs_in_two_python_threads() -> None:
    chains = [Chain(seed) for seed in range(2)]
    wanted = [Chain(seed).wanted(0) for seed in range(2)]
    compiler.set_threads(3)
    programs = [Program(chain.launch) for chain in chains]
    equal = [False, False]

    def repeat(seed: int) -> None:
        def once() -> bool:
            chains[seed].shifts.fill_(float("nan"))
            programs[seed]()
            return torch.equal(chains[seed].shifts, wanted[seed])

        equal[seed] = all(once() for _ in range(300))

    callers = [threading.Thread(target=repeat, args=(seed,)) for seed in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert equal == [True, True]


def test_a_program_runs_after_a_fork() -> None:
    chain, wanted = Chain(2), Chain(2).wanted(0)
    compiler.set_threads(3)
    program = Program(chain.launch)
    program()
    reader, writer = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        chain.shifts.fill_(float("nan"))
        program()
        writer.send_bytes(chain.shifts.numpy().tobytes())

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    finished = reader.poll(60)
    if not finished:
        process.kill()
    assert finished, "the child hangs"
    assert reader.recv_bytes() == wanted.numpy().tobytes()
    process.join(60)
    assert process.exitcode == 0


def test_a_program_holds_its_arrays() -> None:
    """What only the recording knew of is not freed."""
    shifts = poisoned(1, 2)
    index = torch.arange(4096, dtype=torch.int32)[None]
    program = Program(lambda: advantage_shift(torch.arange(4096.0), index.clone(), shifts))
    gc.collect()
    poison = [poisoned(4096) for _ in range(50)]
    program()
    wanted = poisoned(1, 2)
    advantage_shift(torch.arange(4096.0), index, wanted)
    assert torch.equal(shifts, wanted)
    del poison


def test_a_recording_that_fails_leaves_nothing_behind() -> None:
    chain = Chain(3)

    def fails() -> None:
        chain.launch()
        shuffle(chain.indices.long(), chain.iteration, 1, 5)

    with pytest.raises(ValueError, match="shuffle: index must be int32"):
        Program(fails)
    assert chain.shifts.isnan().all()
    chain.launch()  # at once, as ever
    assert torch.equal(chain.shifts, Chain(3).wanted(0))
    chain.shifts.fill_(float("nan"))
    Program(chain.launch)()
    assert torch.equal(chain.shifts, Chain(3).wanted(0))


def test_programs_are_not_recorded_within_one_another() -> None:
    with pytest.raises(AssertionError, match="not recorded within one another"):
        Program(lambda: Program(Chain(0).launch)())  # type: ignore[func-returns-value]
    Program(Chain(0).launch)()


def test_an_empty_program() -> None:
    compiler.set_threads(2)
    Program(lambda: None)()
