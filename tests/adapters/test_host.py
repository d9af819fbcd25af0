"""Gymnasium environments through the adapter: the contract spelled out, spaces laid out by hand, workers that fail."""
# ruff: noqa: E501  # a row of a table is read as one line

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

import envs
from envs import host, player, validation
from envs.gymnasium_adapter import GymnasiumSpec
from envs.vector import StepOutput, empty_output
from kernels.episode_seeds import episode_seeds, host_seeds
from kernels.errors import UserError
from pipeline import seeds
from tests.envs.test_counting import INDEX, LIMIT, WANTED, five_steps
from tests.training import ROOT, Pair, faulty

CPU = torch.device("cpu")


def spec(name: str, limit: int | None = 50, workers: int | None = 0, **options: Any) -> GymnasiumSpec:
    found = envs.spec("gymnasium", limit, id=name if "-v" in name else f"host_cases:{name}", workers=workers, **options)
    assert isinstance(found, GymnasiumSpec)
    return found


def begin(spec: GymnasiumSpec, count: int, run_seed: int = 1) -> tuple[host.HostVectorEnv, StepOutput]:
    env, out = host.HostVectorEnv(spec, count, run_seed, CPU), empty_output(spec, count, CPU)
    env.reset(out.observation)
    return env, out


def choices(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def processes() -> list[str]:
    """Worker processes of this one that are alive."""
    listed = subprocess.run(["ps", "-o", "stat=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if "runpy" in line and not line.startswith("Z")]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    assert processes() == []


# ---------------------------------------------------------------------------------------------------------------------
# The contract
# ---------------------------------------------------------------------------------------------------------------------


def check_counting(workers: int, module: ModuleType = host) -> None:
    """The tables of tests/envs/test_counting.py: ends by death, by the limit, by both on one step."""
    found, index = five_steps(module.HostVectorEnv(spec("Counting", LIMIT, workers), 3, 1, CPU))
    for name, wanted in WANTED.items():
        assert found[name] == wanted, name
    assert index == INDEX


@pytest.mark.parametrize("workers", [0, 2])
def test_five_steps_in_full(workers: int) -> None:
    check_counting(workers)


def with_fault(patch: pytest.MonkeyPatch, pair: Pair) -> ModuleType:
    """envs/host.py with a fault in it, or in envs/player.py, whichever has such a place."""
    try:
        broken = faulty(player, pair)
    except LookupError:
        return faulty(host, pair)
    for name in ("Player", "board", "PlayError"):
        patch.setattr(host, name, getattr(broken, name), raising=False)
    patch.setattr(host, "player", broken)
    return host


@pytest.mark.parametrize(
    "pair",
    [
        ("        board.final_observation[:] = board.observation\n        if ended:\n", "        if ended:\n"),
        ("        board.final_observation[:] = board.observation\n        if ended:\n            self._begin(ended)",
         "        if ended:\n            self._begin(ended)\n        board.final_observation[:] = board.observation"),
        ("if terminated or truncated:", "if terminated:"),
        ("bool(terminated), bool(truncated)", "bool(terminated), bool(truncated) and not terminated"),
        ("bool(terminated), bool(truncated)", "bool(terminated or truncated), bool(truncated)"),
        ("self._totals[i], self._lengths[i] = 0.0, 0", "pass"),
        ("board.episode_return[i] = totals[i]", "pass"),
        ("board.episode_length[:] = self._lengths", "pass"),
        ('self._state["episode_index"] += rows', "pass"),
        ("target.copy_(source)", "pass"),
    ],
)  # fmt: skip
def test_planted_in_the_contract(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    module = with_fault(monkeypatch, pair)
    with pytest.raises(AssertionError):
        check_counting(0, module)


def check_seeds(module: ModuleType = host) -> None:
    """What environments are told to begin with is the closed form, cut to 31 bits, in training and evaluation."""
    env = module.HostVectorEnv(spec("Seen", 3), 4, 7, CPU)
    out, state = empty_output(env.spec, 4, CPU), env.state()
    env.reset(out.observation)
    for _ in range(8):
        wanted = episode_seeds(7, torch.arange(4, dtype=torch.int32), state["episode_index"])
        assert torch.equal(state["episode_seed"], wanted)
        told = out.observation[:, 0].long() * 2**16 + out.observation[:, 1].long()
        assert torch.equal(told, host_seeds(wanted))
        assert (told < 2**29).all()
        env.step(choices(0, 0, 1, 0), out)
    for split, first in (("selection", 2**29), ("held_out", 2**30)):
        env.reset(out.observation, seeds.evaluation_seeds(split, 4))
        told = out.observation[:, 0].long() * 2**16 + out.observation[:, 1].long()
        assert told.tolist() == [first, first + 1, first + 2, first + 3]
        assert state["episode_index"].tolist() == [0] * 4


def test_episodes_begin_with_their_seeds() -> None:
    check_seeds()


@pytest.mark.parametrize(
    "pair",
    [
        ("self._seeds(self._state[\"episode_index\"] + 1)", "self._seeds(self._state[\"episode_index\"])"),
        ("            self._announce()", "            pass"),
        ("reset(seed=int(board.seed[i]))", "reset(seed=0)"),
        ("self._state[\"episode_seed\"][rows] = self._next_seed[rows]", "pass"),
        ("self._board.seed[:] = host_seeds(state[\"episode_seed\"]).numpy()", "pass"),
        ("state[\"episode_index\"].zero_()", "pass"),
    ],
)  # fmt: skip
def test_planted_seeds(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    module = with_fault(monkeypatch, pair)
    with pytest.raises(AssertionError):
        check_seeds(module)


def test_31_bits_hold_the_split_and_the_index() -> None:
    for place, split in enumerate(("selection", "held_out"), start=1):
        assert host_seeds(seeds.evaluation_seeds(split, 3)).tolist() == [(place << 29) + k for k in range(3)]
    trained = episode_seeds(3, torch.arange(5000, dtype=torch.int32), torch.zeros(5000, dtype=torch.int64))
    told = host_seeds(trained)
    assert 0 <= int(told.min()) < 2**27 < 3 * 2**27 < int(told.max()) < 2**29
    assert len(told.unique()) > 4990  # 29 bits of them: a pair may meet by chance


def play(env: host.HostVectorEnv, steps: int) -> list[Tensor]:
    """All that `steps` steps of fixed random actions write."""
    actions = validation.random_actions(validation.Plan(env.spec, env.num_envs, steps, 5))
    first = torch.empty(env.num_envs, env.spec.observation_size)
    env.reset(first)
    written = [first]
    for action in actions:
        out = empty_output(env.spec, env.num_envs, CPU)
        env.step(action, out)
        written += out
    return written


@pytest.mark.parametrize(("name", "limit"), [("CartPole-v1", 15), ("Pendulum-v1", 12), ("Seen", 4)])
def test_workers_change_no_bit(name: str, limit: int) -> None:
    """Nor does the run after a reset; another run seed changes it."""
    loop = host.HostVectorEnv(spec(name, limit), 5, 1, CPU)
    wanted = play(loop, 40)
    assert all(map(torch.equal, wanted, play(loop, 40)))
    assert all(map(torch.equal, wanted, play(host.HostVectorEnv(spec(name, limit, 2), 5, 1, CPU), 40)))
    other = play(host.HostVectorEnv(spec(name, limit), 5, 2, CPU), 40)
    assert not torch.equal(wanted[0], other[0])


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Seen"])
def test_an_environment_plays_among_others_as_alone(name: str) -> None:
    chosen = spec(name, 12)
    among = play(host.HostVectorEnv(chosen, 4, 1, CPU), 30)
    actions = validation.random_actions(validation.Plan(chosen, 4, 30, 5))
    env = host.HostVectorEnv(chosen, 1, 1, CPU)
    first, out = torch.empty(1, chosen.observation_size), empty_output(chosen, 1, CPU)
    env.reset(first, episode_seeds(1, choices(2), torch.zeros(1, dtype=torch.int64)))
    assert torch.equal(first[0], among[0][2])
    for t in range(12):
        env.step(actions[t, 2:3].contiguous(), out)
        both = [values[2] for values in among[1 + 7 * t : 8 + 7 * t]]
        assert all(map(torch.equal, [values[0] for values in out[1:]], both[1:]))
        if out.terminated[0] or out.truncated[0]:
            break


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasium_itself_plays_the_same(name: str) -> None:
    """An episode by hand: reset with the seed, step, no vector environment at all."""
    env, out = begin(spec(name, 30), 2)
    alone = gymnasium.make(name, max_episode_steps=30)
    observation, _ = alone.reset(seed=int(host_seeds(env.state()["episode_seed"])[1]))
    assert np.array_equal(observation, out.observation[1])
    low = torch.tensor([[-9.0], [0.3]]) if name == "Pendulum-v1" else choices(0, 1)
    for _ in range(30):
        env.step(low, out)
        observation, reward, terminated, truncated, _ = alone.step(low[1].numpy())
        assert np.array_equal(observation.astype(np.float32), out.final_observation[1])
        assert np.float32(reward) == out.reward[1].item()
        assert (terminated, truncated) == (bool(out.terminated[1]), bool(out.truncated[1]))
        if terminated or truncated:
            break


# ---------------------------------------------------------------------------------------------------------------------
# Spaces
# ---------------------------------------------------------------------------------------------------------------------

# Gymnasium sorts a Dict's keys.
ROW = [
    1, 0,  # bits
    0, 0, 1,  # choice: 1 of -1, 0, 1
    0, 1, 0, 1, 0,  # choices: 6 of 5, 6; 1 of 0, 1, 2
    7, 0, 1,  # pair
    0, 0.2, 1,  # pixels
    1 / 3, -2, 0.5, 1,  # wide
]  # fmt: skip


def check_mixed(module: ModuleType = host) -> None:
    env = module.HostVectorEnv(spec("Mixed"), 2, 1, CPU)
    out = empty_output(env.spec, 2, CPU)
    env._board.observation[:] = 7.0  # of an earlier step: every element is written anew
    env.reset(out.observation)
    assert torch.equal(out.observation, torch.tensor([ROW, ROW]))
    env.step(choices(0, 1), out)
    assert torch.equal(out.final_observation, torch.tensor([ROW, ROW]))


def test_an_observation_of_every_kind_is_laid_out() -> None:
    check_mixed()
    found = spec("Mixed")
    places = {part["path"]: (part["kind"], part["shape"], part["dtype"], part["first"], part["size"])
              for part in found.fields()["layout"]}  # fmt: skip
    assert places == {
        "bits": ("multibinary", [2], "int8", 0, 2),
        "choice": ("discrete", [], "int64", 2, 3),
        "choices": ("multidiscrete", [2], "int64", 5, 5),
        "pair/0": ("box", [1], "float32", 10, 1),
        "pair/1": ("discrete", [], "int64", 11, 2),
        "pixels": ("box", [3], "uint8", 13, 3),
        "wide": ("box", [2, 2], "float64", 16, 4),
    }
    assert found.observation_high == (1.0,) * 10 + (9.0,) + (1.0,) * 9
    assert found.observation_low == (0.0,) * 16 + (-float("inf"),) * 4


@pytest.mark.parametrize(
    "pair",
    [
        ("row[begin + choice - start] = 1.0", "row[begin + choice] = 1.0"),
        ("        row[place] = 0.0\n", ""),
        ("np.float32(255.0)", "np.float32(256.0)"),
        ("np.cumsum((part.first, *part.sizes[:-1]))", "np.full(len(part.sizes), part.first)"),
        ("found[-1].first + found[-1].size if found else first", "first"),
    ],
)
def test_planted_in_the_layout(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    module = with_fault(monkeypatch, pair)
    with pytest.raises((AssertionError, UserError)):
        check_mixed(module)


@pytest.mark.parametrize(
    ("space", "chosen", "taken"),
    [
        ("spaces.Discrete(3, start=5)", choices(0, 2), [[5.0], [7.0]]),
        (
            "spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-1, 10]])",
            torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]], dtype=torch.int32),
            [[0.0, 1.0, -1.0, 10.0], [1.0, 3.0, 2.0, 14.0]],
        ),
        ("spaces.MultiBinary(2)", torch.tensor([[0, 1], [1, 1]], dtype=torch.int32), [[0.0, 1.0], [1.0, 1.0]]),
        (
            "spaces.Box(np.array([[-1.0], [0.0]]), np.array([[1.0], [2.5]]), dtype=np.float64)",
            torch.tensor([[0.5, 3.0], [-7.0, -7.0]]),
            [[0.5, 2.5], [-1.0, 0.0]],
        ),
    ],
)
def test_actions_are_those_of_the_space(space: str, chosen: Tensor, taken: list[list[float]]) -> None:
    env, out = begin(spec("Echo", kwargs={"space": space}), 2)
    env.step(chosen, out)
    assert out.observation.tolist() == taken


def test_what_defines_the_environment_is_in_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = spec("Echo")
    others = [
        spec("Echo", 51),
        spec("Echo", kwargs={"space": "spaces.Discrete(2, start=1)"}),
        spec("Counting"),
        spec("CartPole-v1"),
    ]
    (tmp_path / "mine.py").write_text("from host_cases import Counting\nclass Mine(Counting):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    mine = envs.spec("gymnasium", 5, id="mine:Mine")
    (tmp_path / "mine.py").write_text("from host_cases import Counting\nclass Mine(Counting):\n    pass  # changed\n")
    assert len({each.sha256() for each in (base, *others, mine, envs.spec("gymnasium", 5, id="mine:Mine"))}) == 7
    assert spec("Echo", workers=2).sha256() == base.sha256()
    assert spec("Echo", timeout_s=3.0) == base
    assert spec("CartPole-v1", None).max_episode_steps == 500
    assert (others[-1].name, others[-1].version) == ("CartPole", 1)
    assert base.fields()["versions"]["gymnasium"] == gymnasium.__version__


# ---------------------------------------------------------------------------------------------------------------------
# Faults
# ---------------------------------------------------------------------------------------------------------------------


def until_it_fails(how: str, workers: int, **options: Any) -> tuple[str, float]:
    """The complaint about a faulty environment among four, and the seconds that it took to be seen."""
    env, out = begin(spec("Faulty", workers=workers, kwargs={"how": how}, **options), 4)
    odd = [i for i, seed in enumerate(host_seeds(env.state()["episode_seed"]).tolist()) if seed % 2]
    for _ in range(2):
        env.step(choices(0, 0, 0, 0), out)
    begun = time.perf_counter()
    with pytest.raises(UserError) as error:
        env.step(choices(0, 0, 0, 0), out)
    seconds, text = time.perf_counter() - begun, str(error.value)
    named = [
        range(int(first), int(last or first) + 1)
        for first, last in re.findall(r"environments? (\d)(?: to (\d))?", text)
    ]
    assert {*odd} & {*named[0]}
    return text, seconds


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_raises_is_named_with_its_traceback(workers: int) -> None:
    text, _ = until_it_fails("raises", workers)
    line, *trace = text.splitlines()
    assert re.fullmatch(
        r"env\.id: wanted an answer of host_cases:Faulty to step\(\); environment \d raised ValueError: out of rope\. "
        r"Mend it; where it was:", line,
    )  # fmt: skip
    assert 'raise ValueError("out\\nof rope")' in "\n".join(trace)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("shape", r"ValueError: observation must have shape \(1,\); got \(4, 1\)"),
        ("reward", "TypeError: .*"),
    ],
)
def test_an_answer_that_is_none_is_named(how: str, complaint: str) -> None:
    assert re.search(f"environment \\d raised {complaint}", until_it_fails(how, 0)[0])


def test_a_killed_worker_is_named_at_once() -> None:
    text, seconds = until_it_fails("killed", 2)
    assert re.match(
        r"env\.workers: wanted .*; that of environments \d to \d of host_cases:Faulty was ended by SIGKILL\.", text
    )
    assert seconds < 5.0


def test_a_worker_killed_between_steps_is_named() -> None:
    env, out = begin(spec("Counting", workers=2), 4)
    os.kill(env._stepper._processes[1].pid, signal.SIGKILL)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="environments 2 to 3 of host_cases:Counting was ended by SIGKILL"):
        env.step(choices(0, 0, 0, 0), out)


def test_one_that_hangs_is_named() -> None:
    text, seconds = until_it_fails("hangs", 2, timeout_s=0.5)
    assert re.match(
        r"env\.timeout_s: wanted environment \d of host_cases:Faulty to step within 0\.5 s; .*larger env", text
    )
    assert seconds < 5.0


def test_workers_end_with_their_parent() -> None:
    """Killed, it can tell them nothing; those in the midst of a step end all the same."""
    program = (
        "import sys; sys.path.insert(0, 'tests/adapters'); import torch, envs; from envs.vector import empty_output\n"
        "spec = envs.spec('gymnasium', 9, id='host_cases:Faulty', kwargs={'how': 'hangs'}, workers=2)\n"
        "env, out = envs.make(spec, 4, 1, torch.device('cpu')), empty_output(spec, 4, torch.device('cpu'))\n"
        "env.reset(out.observation)\n"
        "print(*(process.pid for process in env._stepper._processes), flush=True)\n"
        "while True: env.step(torch.zeros(4, dtype=torch.int32), out)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pids = list(map(int, parent.stdout.readline().split()))
    assert len(pids) == 2
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 5.0
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_alive, pids))


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: spec("LunarLander-v2"), r"env\.id: wanted an id that Gymnasium knows; got 'LunarLander-v2', nearest: LunarLander-v3, .*module:Class"),
        (lambda: spec("cartpole-v1"), r".*nearest: CartPole-v1.*"),
        (lambda: spec("zzz-v7"), r".*got 'zzz-v7', and nothing is like it\. .*"),
        (lambda: envs.spec("gymnasium", id="host_case:Counting"), r"env\.id: wanted a module in this folder or installed; got 'host_case', .*"),
        (lambda: spec("Cuonting"), r"env\.id: wanted a class of host_cases; got 'Cuonting', nearest: Counting.*"),
        (lambda: spec("number"), r"env\.id: wanted a class of host_cases; got 'number'.*"),
        (lambda: spec("Stranger"), r"env\.id: wanted a class of gymnasium\.Env; host_cases:Stranger makes a Stranger"),
        (lambda: spec("Echo", kwargs={"spce": 1}), r"env\.id, env\.kwargs: wanted host_cases:Echo to be made with \{'spce': 1\}; TypeError: .*'spce'"),
        (lambda: spec("CartPole-v1", kwargs={"colour": 1}), r"env\.id, env\.kwargs: wanted CartPole-v1 to be made with .*colour(?s:.*)"),
        (lambda: spec("Text"), r"env\.id: wanted observations of Box, .*; got Text at a/note\. Wrap .*"),
        (lambda: spec("Empty"), r"env\.id: wanted an observation of one number or more; host_cases:Empty has an empty one"),
        (lambda: spec("Nested"), r"env\.id: wanted actions of Discrete, .*; host_cases:Nested has Dict\(.*\)\. Wrap .*"),
        (lambda: spec("Whole"), r"env\.id: wanted actions of .*; host_cases:Whole has Box\(0, 3, .*int64\)\. Wrap .*"),
        (lambda: spec("Unlimited"), r"env\.id: wanted actions of .*; host_cases:Unlimited has Box\(-inf, inf.*without bounds.*"),
        (lambda: spec("Counting", None), r"env\.max_episode_steps: wanted a time limit, steps; host_cases:Counting has none of its own, .*"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_helpful_line(make: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(UserError) as error:
        make()
    assert re.fullmatch(complaint, str(error.value)), str(error.value)


# ---------------------------------------------------------------------------------------------------------------------
# The faster way
# ---------------------------------------------------------------------------------------------------------------------


def test_the_faster_way_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cheap environment is stepped by a loop, and no worker is even tried; one that waits, by workers."""
    tried: list[int] = []
    trial = host.seconds_a_step
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(host, "CHEAP", 2e-3)  # a machine that is busy with others is slower
    monkeypatch.setattr(host, "seconds_a_step", lambda *rest: tried.append(rest[-1]) or trial(*rest))
    host.faster.cache_clear()
    assert host.faster(spec("Counting"), 4) == 0
    assert tried == [0]
    assert host.faster(spec("Slow"), 4) == 2
    assert tried == [0, 0, 2]
    assert host.faster(spec("Slow"), 1) == 0


def test_a_board_begins_empty() -> None:
    """What nobody writes, such as frames where no emulator runs, is 0 and no leftover of earlier memory."""
    shape = (7, 3, 1, True)
    for _ in range(20):
        earlier = player.board(*shape)
        for array in earlier:
            array[:] = 7
        del earlier, array
        assert not player.board(*shape).frames.any()
