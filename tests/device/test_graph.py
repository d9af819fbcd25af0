"""What a CUDA graph asks of an iteration, held without a GPU by tracing what it calls.

An iteration is run under a trace of torch's operations and of our kernels. None reads a tensor on the host, has a shape
that follows from data, or makes a tensor from the host's memory; one is the same calls as the next, numbers included,
on the same arrays. The fast path allocates nothing; nothing that the general path allocates outlives the iteration.

A trace is also a stand-in for a graph: its calls, made again on the same arrays, are what a replay does.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ppo import CONFIG, POLICY, RUN_SEED
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import envs
from envs.spec import EnvSpec, MultiDiscrete
from kernels import compiler
from kernels.env import EnvStep
from kernels.launcher import Kernel
from pipeline import capture, mlp
from pipeline.capture import CapturedFused, CapturedGeneral, LaunchedHosted, captured
from pipeline.general import General
from pipeline.hosted import Hosted
from pipeline.optimizer import Adam
from pipeline.policy import build, sample, several
from pipeline.ppo import PPO
from pipeline.profile import PHASES, DeviceClock
from pipeline.rollout import Rollout

CPU = torch.device("cpu")
ITERATIONS = 3
HOST = {
    "tolist", "numpy", "cpu", "item", "__bool__", "__int__", "__float__", "__index__", "__array__", "from_numpy",
    "tensor", "as_tensor", "pin_memory", "to_dlpack",
}  # fmt: skip
DATA_DEPENDENT = {"_local_scalar_dense", "nonzero", "unique", "_unique2", "unique_dim", "masked_select", "equal"}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)


# ---------------------------------------------------------------------------------------------------------------------
# The trace
# ---------------------------------------------------------------------------------------------------------------------


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class _Functions(TorchFunctionMode):
    """Refuses what reads a tensor on the host, or makes one of the host's memory."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        assert name not in HOST, f"a captured iteration must not call {name}"
        return function(*args, **(kwargs or {}))


class Trace(TorchDispatchMode):
    """The calls of some work: `calls` tells each with its numbers and arrays, `replay` makes them again."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.made: list[int] = []  # elements of each array that was allocated
        self._labels: dict[int, Any] = {}
        self._again: list[Callable[[], Any]] = []
        self._kept: list[Any] = []  # so that no address is used twice
        self._before: list[tuple[Tensor, Tensor]] = []

    def _label(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value if isinstance(value, int | float | str | Path | None) else repr(value)
        self._kept.append(value)
        where = address(value)
        if where not in self._labels:
            self._labels[where] = ("given", where)
            whole = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
            self._before.append((whole, whole.clone()))
        return (self._labels[where], value.storage_offset(), tuple(value.shape), value.stride(), value.dtype)

    def _call(self, name: str, values: Any) -> None:
        self.calls.append((name, *map(self._label, tree_flatten(values)[0])))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        flat = tree_flatten((args, kwargs))[0]
        assert name not in DATA_DEPENDENT, f"a captured iteration must not call {name}"
        by_mask = any(isinstance(each, Tensor) and each.dtype in (torch.bool, torch.uint8) for each in flat[1:])
        assert not (name.startswith("index") and by_mask), "a captured iteration must not index by a mask"
        with torch.utils._python_dispatch._disable_current_modes():
            self._call(name, (args, kwargs))
            result = function(*args, **kwargs)
            own = {address(each) for each in flat if isinstance(each, Tensor)}
            new = [out for out in tree_flatten(result)[0] if isinstance(out, Tensor) and address(out) not in own]
            for out in new:
                self._labels[address(out)] = ("made", len(self.made))
                self.made.append(out.numel())
                self._kept.append(out)
        if new or function._schema.is_mutable:
            self._again.append(lambda: self._repeat(function, args, kwargs, result if new else None))
        return result

    @staticmethod
    def _repeat(function: Any, args: Any, kwargs: Any, result: Any) -> None:
        found = function(*args, **kwargs)
        if result is not None:
            tree_map(lambda old, again: old.copy_(again) if isinstance(old, Tensor) else None, result, found)

    def launched(self, name: str, values: Any, again: Callable[[], None]) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            self._call(name, values)
            again()
        self._again.append(again)

    def undo(self) -> None:
        """Puts the arrays that were there before back to what they held."""
        for whole, before in self._before:
            whole.copy_(before)

    @torch.no_grad()
    def replay(self) -> None:
        for again in self._again:
            again()


@contextmanager
def launches(trace: Trace) -> Iterator[None]:
    """The kernels' launches go into the trace too."""
    kernel_call, step_call = Kernel.__call__, EnvStep.__call__

    def launch(self: Kernel, *values: Any, header: Path | None = None, **constants: Any) -> None:
        again = lambda: kernel_call(self, *values, header=header, **constants)  # noqa: E731
        trace.launched(self.name, (values, constants), again)

    def step(self: EnvStep, action: Tensor, output: tuple[Tensor, ...]) -> None:
        trace.launched("env_step", (action, output), lambda: step_call(self, action, output))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", launch)
        patch.setattr(EnvStep, "__call__", step)
        yield


def traced(work: Callable[[], None]) -> Trace:
    """AssertionError: the work does what no capture may hold."""
    trace = Trace()
    with launches(trace), _Functions(), trace:
        work()
    return trace


class Replayed:
    """Graphs whose captures are traces."""

    def warm_up(self, work: Callable[[], None]) -> None:
        work()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        trace = traced(work)
        trace.undo()
        return trace.replay


# ---------------------------------------------------------------------------------------------------------------------
# Trainings
# ---------------------------------------------------------------------------------------------------------------------


DIALS = EnvSpec(
    "dials", 0, (0.0,) * 4, (1.0,) * 4, MultiDiscrete((3, 2)), 3, 2, (0.0, 1.0),
    Path(__file__).parents[1] / "envs" / "dials.h",
)  # fmt: skip
SPECS: dict[str, Callable[[], EnvSpec]] = {
    "cartpole": lambda: envs.spec("cartpole", 3),
    "pendulum": lambda: envs.spec("pendulum", 4),
    "dials": lambda: DIALS,
}
PATHS = {"general": CapturedGeneral, "fused": CapturedFused}


def begin(path: type, spec: EnvSpec, graphs: type | None = None, **methods: Callable[..., Any]) -> PPO:
    """A training of an iteration a graph; without `graphs` what would be captured runs each time."""
    policy, flat = build(spec, POLICY, RUN_SEED, CPU)
    env = envs.NativeVectorEnv(spec, CONFIG.num_envs, RUN_SEED, CPU)
    network = policy if issubclass(path, General) else mlp.shapes(policy, flat, spec, POLICY)
    eager = {} if graphs else {"whole": lambda self, work, state: work}
    runner = type(path.__name__, (path,), {**eager, **methods})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "CudaGraphs", graphs)
        run = runner(network, flat, env, CONFIG, RUN_SEED)
        optimizer = Adam(flat, CONFIG.max_grad_norm, CONFIG.update_epochs * CONFIG.num_minibatches)
        ppo = PPO(CONFIG, env, run, optimizer, RUN_SEED, DeviceClock(CPU))
    ppo.trained = flat.parameters  # type: ignore[attr-defined]
    return ppo


def results(ppo: PPO, ahead: bool = False) -> tuple[list[str], dict[str, list[Any]]]:
    """Every number of a whole training."""
    metrics = [repr(ppo.iterate(ahead)) for _ in range(ITERATIONS)]
    return metrics, state_of(ppo)


# ---------------------------------------------------------------------------------------------------------------------
# Preconditions
# ---------------------------------------------------------------------------------------------------------------------


def tensors_alive() -> int:
    gc.collect()
    return sum(type(each) is Tensor for each in gc.get_objects())


def check(path: str, name: str = "cartpole", **methods: Callable[..., Any]) -> Trace:
    ppo = begin(PATHS[path], SPECS[name](), **methods)
    traces, alive = [], []
    for number in range(3):
        ppo.optimizer.begin(0.01 / (number + 1))
        ppo._iteration.fill_(number)
        trace = traced(ppo.work)
        traces.append((trace.calls, trace.made))
        kept = trace
        del trace
        kept._kept.clear()
        kept._again.clear()
        alive.append(tensors_alive() if number else 0)
    assert len(traces[1][0]) == len(traces[2][0])
    for before, after in zip(traces[1][0], traces[2][0], strict=True):
        assert before == after, "a captured iteration must make the same calls each time"
    assert traces[1][1] == traces[2][1]
    assert alive[1] == alive[2], "a tensor outlives the iteration"
    if path == "fused":
        assert not kept.made, "the fast path must allocate nothing"
    return kept


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("path", PATHS)
def test_an_iteration_can_be_captured(path: str, name: str) -> None:
    trace = check(path, name)
    names = {call[0] for call in trace.calls}
    assert {"gae", "shuffle", "advantage_shift", "clip_scale", "adam", "summary", "stopwatch"} <= names
    assert {"env_step", "sample", "ppo_loss", "mm"} <= names or {"mlp_rollout", "mlp_gradient"} <= names


def _reads(self: Any, rollout: Rollout, *rest: Any) -> None:
    super(type(self), self).collect(rollout, *rest)
    self.seen = rollout.rewards.sum().item()


def _counts(self: Any, rollout: Rollout, iteration: Tensor, clock: Any) -> None:
    """Draws by a number of the host's that is another in each iteration."""
    super(type(self), self).collect(rollout, iteration, clock)
    self.count = getattr(self, "count", -1) + 1
    parameters, unused = torch.zeros(4, 2), torch.empty(2, 4)
    sample(parameters, rollout.actions[0], *unused, self.count, RUN_SEED, several(self._env.spec), iteration)


def _keeps(self: Any, rollout: Rollout, *rest: Any) -> None:
    super(type(self), self).collect(rollout, *rest)
    self.kept = [*getattr(self, "kept", []), rollout.rewards.clone()]


def _makes(self: Any, rollout: Rollout, *rest: Any) -> None:
    super(type(self), self).collect(rollout, *rest)
    rollout.rewards.add_(torch.tensor([0.0]))


def _masks(self: Any, rollout: Rollout, *rest: Any) -> None:
    super(type(self), self).collect(rollout, *rest)
    rollout.rewards[rollout.terminated.bool()] = 0.0


PLANTED: dict[str, tuple[str, dict[str, Callable[..., Any]], str]] = {
    "a number read": ("general", {"collect": _reads}, "must not call item"),
    "rows chosen by data": ("general", {"final_values": General.final_values}, "must not call nonzero"),
    "a mask": ("fused", {"collect": _masks}, "by a mask|must not call"),
    "a number of the host's": ("general", {"collect": _counts}, "the same calls"),
    "a tensor of the host's": ("fused", {"collect": _makes}, "must not call tensor"),
    "a tensor kept": ("general", {"collect": _keeps}, "outlives"),
    "an allocation": ("fused", {"collect": lambda self, rollout, *rest: (
        super(type(self), self).collect(rollout, *rest), rollout.rewards.clone())[0]}, "must allocate nothing"),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted(fault: str) -> None:
    path, methods, message = PLANTED[fault]
    with pytest.raises(AssertionError, match=message):
        check(path, **methods)


# ---------------------------------------------------------------------------------------------------------------------
# A captured training is the one that is not
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("path", PATHS)
def test_captured_is_as_eager(path: str, name: str) -> None:
    wanted = results(begin(PATHS[path], SPECS[name]()))
    assert results(begin(PATHS[path], SPECS[name](), Replayed)) == wanted


@pytest.mark.parametrize("path", PATHS)
def test_numbers_read_an_iteration_later_are_the_same(path: str) -> None:
    wanted = results(begin(PATHS[path], SPECS["cartpole"]()))
    ppo = begin(PATHS[path], SPECS["cartpole"](), Replayed)
    assert results(ppo, ahead=True) == wanted
    assert ppo.finished


def test_the_fixed_shape_gives_the_same_values() -> None:
    """The captured general path asks the critic for all final observations, the other for those that are needed."""
    found = []
    for path in (General, CapturedGeneral):
        ppo = begin(path, SPECS["pendulum"]())
        ppo.work()
        cut = (ppo.rollout.truncated > ppo.rollout.terminated).bool()
        assert cut.any()
        found.append((ppo.rollout.final_values[cut], ppo.rollout.advantages))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


class _Moving(Replayed):
    """Graphs whose warm-up has a step size, as that of a training that goes on from a stop would."""

    def warm_up(self, work: Callable[[], None]) -> None:
        schedules = work.__self__.optimizer._schedules  # type: ignore[attr-defined]
        schedules[:, 0] = 0.1
        work()
        schedules[:, 0] = 0.0


def state_of(ppo: PPO) -> dict[str, list[Any]]:
    tensors = {**ppo.state(), "parameters": ppo.trained}  # type: ignore[attr-defined]
    return {name: tensor.tolist() for name, tensor in tensors.items()}


MOVED = (
    "env.state", "env.episode_seed", "env.episode_index", "env.episode_length", "env.episode_return",
    "optimizer.first_moment", "optimizer.second_moment", "observation", "parameters",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_the_warm_up_leaves_no_trace(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = state_of(begin(PATHS[path], SPECS["pendulum"]()))
    assert state_of(begin(PATHS[path], SPECS["pendulum"](), _Moving)) == wanted
    monkeypatch.setattr(capture, "captured", lambda work, state, graphs: captured(work, [], graphs))
    forgotten = state_of(begin(PATHS[path], SPECS["pendulum"](), _Moving))
    assert {name for name in wanted if forgotten[name] != wanted[name]} == set(MOVED)


def test_launches_that_nothing_records_are_as_those_of_programs() -> None:
    assert results(begin(LaunchedHosted, SPECS["pendulum"]())) == results(begin(Hosted, SPECS["pendulum"]()))


# ---------------------------------------------------------------------------------------------------------------------
# Time
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_the_phases_of_a_graph_add_up(path: str) -> None:
    """A replay is timed from within: the phases, the environments' share too, and what the device waited."""
    ppo = begin(PATHS[path], SPECS["cartpole"](), Replayed)
    before = ppo.clock.seconds()
    assert before["advantage"] == before["minibatch_update"] == 0.0  # neither warm-up nor capture
    ppo.iterate()
    seconds = ppo.clock.seconds()
    assert min(seconds[name] for name in ("env_step", "rollout_forward", "advantage", "minibatch_update")) > 0
    assert seconds["logging"] > 0
    assert seconds["transfer"] == 0
    assert sum(seconds[name] for name in PHASES) == pytest.approx(seconds["wall"])
    assert 0 <= seconds["other"] < seconds["wall"]
    later = DeviceClock(CPU, seconds).seconds()  # goes on from a stop
    assert later["env_step"] == seconds["env_step"]
    assert later["wall"] >= seconds["wall"]
