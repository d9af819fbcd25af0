"""The benchmark: what it counts and adds up against numbers by hand, what its files hold, what it refuses."""

import itertools
import json
import math
import re
import sys
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.progress import Progress
from torch.utils.flop_counter import FlopCounterMode
from training import SMALL, Pair, faulty, small

import envs
from kernels import compiler
from pipeline import bench
from pipeline import config as configuration
from pipeline import policy as policies
from pipeline import speed as product
from pipeline.profile import PHASES
from pipeline.speed import Round, Work


@pytest.fixture(autouse=True)
def _threads() -> Any:
    yield
    compiler.set_threads(1)


# ---------------------------------------------------------------------------------------------------------------------
# Arithmetic
# ---------------------------------------------------------------------------------------------------------------------


def work(module: Any, *overrides: str) -> Work:
    config = configuration.load(overrides)
    network, _ = policies.build(envs.spec(config.env.name), config.policy, 1, torch.device("cpu"))
    found = module.multiply_adds(network, config.ppo)
    return Work(found.update, found.whole)


SHAPE = ("policy.hidden=[64,64]", "ppo.num_envs=256", "ppo.num_steps=64", "ppo.update_epochs=4")


def check_by_hand(module: Any) -> None:
    """CartPole: 4 numbers seen, 2 actions; actor 4·64 + 64·64 + 64·2 = 4480, critic 4·64 + 64·64 + 64·1 = 4416."""
    update = 4 * 16384 * (3 * (4480 + 4416) - 2 * 4 * 64)
    assert work(module, *SHAPE) == Work(update, update + 16384 * 4480 + 65 * 256 * 4416)
    # One trunk: 4·9 + 9·8 = 108, with heads of 8·2 and 8·1.
    shared = ("policy.hidden=[9,8]", "policy.shared=true", *SHAPE[1:])
    update = 4 * 16384 * (3 * (108 + 16 + 8) - 4 * 9)
    assert work(module, *shared) == Work(update, update + 16384 * (108 + 16) + 65 * 256 * (108 + 8))


def check_against_torch(module: Any) -> None:
    """What torch's own counter sees in a forward and a backward pass, two operations for each multiply-add."""
    for overrides in (("env=pendulum", "policy.hidden=[17]"), ("policy.hidden=[9,8,12]", "policy.shared=true")):
        config = configuration.load(overrides)
        spec = envs.spec(config.env.name)
        network = policies.ActorCritic(spec, config.policy)
        observation = torch.randn(10, spec.observation_size)
        with FlopCounterMode(display=False) as counter:
            # Both at once, as the update runs them: a shared trunk is run once.
            features = network.trunk(observation)
            (network.actor(features).sum() + network.critic(features).sum()).backward()
        visits = config.ppo.update_epochs * config.ppo.batch_size
        assert module.multiply_adds(network, config.ppo).update * 2 * 10 == counter.get_total_flops() * visits


def test_multiply_adds_by_hand() -> None:
    check_by_hand(product)


def test_multiply_adds_as_torch_counts_them() -> None:
    check_against_torch(product)


COUNTING: dict[str, Pair] = {
    "no gradient by the inputs": ("(3 * _products(policy)", "(2 * _products(policy)"),
    "the first layers' input gradient": (" - _products(*first))", ")"),
    "one epoch": ("config.update_epochs * config.batch_size * (3", "config.batch_size * (3"),
    "one tower": ("[policy.actor[0], policy.critic[0]]", "[policy.actor[0]]"),
    "the value of a step too few": ("(config.batch_size + config.num_envs) * critic", "config.batch_size * critic"),
    "the whole network in the rollout": ("config.batch_size * actor +", "config.batch_size * _products(policy) +"),
}


@pytest.mark.parametrize("fault", COUNTING)
def test_a_wrong_count_is_found(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_by_hand(faulty(product, COUNTING[fault]))


def check_peak(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a hundredth of a second each time that it is asked; each launch takes one of them."""
    launched: list[int] = []
    ticks = itertools.count()
    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: next(ticks) / 100))
    monkeypatch.setattr(module, "fma_peak", lambda x, rounds, factor, offset: launched.append(len(x) * rounds))
    peak = module.fma_gflops(torch.device("cpu"), 2, 0.5)
    assert len(set(launched)) == 1
    assert peak == pytest.approx(2 * launched[0] / 0.01 / 1e9)
    assert len(launched) > 10
    assert launched[0] % (2 * module.BLOCK) == 0, "as many blocks on each thread"


def test_the_peak_counts_two_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    check_peak(product, monkeypatch)


def test_a_wrong_peak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        check_peak(faulty(product, ("2.0 * _ROUNDS", "1.0 * _ROUNDS")), monkeypatch)


# ---------------------------------------------------------------------------------------------------------------------
# Rounds
# ---------------------------------------------------------------------------------------------------------------------


def measured(iterations: int, peak: float, **seconds: float) -> Round:
    parts = {name: seconds.get(name, 0.0) for name in PHASES}
    return Round(iterations, {**parts, "wall": sum(parts.values())}, peak)


def check_numbers(module: Any) -> None:
    """Three rounds of 100 samples an iteration; one of them on a slow machine, with a slow peak."""
    rounds = [
        measured(10, 20.0, env_step=1.0, minibatch_update=2.0, logging=0.5, other=0.5),
        measured(10, 10.0, env_step=2.0, minibatch_update=4.0, logging=1.0, other=1.0),
        measured(30, 40.0, env_step=1.5, minibatch_update=3.0, logging=0.75, other=0.75),
    ]
    found = module.numbers(rounds, Work(update=2 * 10**9, whole=3 * 10**9), 100)
    expected = {
        "steps_per_second": 250.0, "steps_per_second_range": [125.0, 500.0],
        "gflops": 15.0, "gflops_range": [7.5, 30.0],
        "update_gflops": 20.0, "update_gflops_range": [10.0, 40.0],
        "fma_peak_gflops": 20.0, "fma_peak_gflops_range": [10.0, 40.0],
        "peak_share": 0.75, "peak_share_range": [0.75, 0.75],
        "update_peak_share": 1.0, "update_peak_share_range": [1.0, 1.0],
        "phases_sum": 0.875,
    }  # fmt: skip
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12), name
    assert found["phases"] == pytest.approx(
        {
            "env_step": 0.25,
            "transfer": 0,
            "rollout_forward": 0,
            "advantage": 0,
            "minibatch_update": 0.5,
            "logging": 0.125,
        }
    )
    assert set(found) == {*expected, "phases"}


def test_numbers_by_hand() -> None:
    check_numbers(product)


SUMMING: dict[str, Pair] = {
    "the mean": ("statistics.median(values)", "statistics.fmean(values)"),
    "the update over the wall": ('/ found.seconds["minibatch_update"]', '/ found.seconds["wall"]'),
    "one operation for a multiply-add": ("2e-9 * work.whole", "1e-9 * work.whole"),
    "what is left counts as a phase": ("TIMED = PHASES[:-1]", "TIMED = PHASES"),
    "iterations for steps": ("found.iterations * batch_size /", "found.iterations /"),
}


@pytest.mark.parametrize("fault", SUMMING)
def test_a_wrong_number_is_found(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_numbers(faulty(product, SUMMING[fault]))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a peak of memory that can be forgotten: Linux")
def test_the_peak_of_memory_rises_falls_and_is_forgotten() -> None:
    size = 1 << 26
    product.forget_peak()
    before = product.peak_bytes()
    held = torch.ones(size // 4)
    assert product.resident_bytes() >= before + size / 2
    del held
    assert product.peak_bytes() >= before + size / 2
    product.forget_peak()
    assert product.peak_bytes() < before + size / 2


# ---------------------------------------------------------------------------------------------------------------------
# Sections
# ---------------------------------------------------------------------------------------------------------------------


class Planned(bench.Bench):
    """Keeps the configurations of a section instead of measuring them."""

    def __init__(self, *overrides: str, effort: bench.Effort = bench.FULL) -> None:
        super().__init__(
            configuration.load((*overrides, bench.ENDLESS)), effort, Console(quiet=True), Progress(disable=True)
        )

    def _in_turn(self, title: str, configs: Any, seconds: float, longest: float) -> list[bench.Row]:
        self.planned = list(configs)
        return [{"steps_per_second": 1.0}]


def test_environments_from_8_to_16384() -> None:
    plan = Planned("ppo.num_steps=64")
    plan.environments()
    shapes = [(each.ppo.num_envs, each.ppo.num_steps) for each in plan.planned]
    assert shapes == [(8, 64), (32, 64), (128, 64), (512, 64), (2048, 64), (8192, 64), (16384, 32)]


def test_samples_that_do_not_divide_are_left_out() -> None:
    plan = Planned("ppo.num_envs=16", "ppo.num_steps=8", "ppo.num_minibatches=128")
    plan.environments()
    assert [each.ppo.num_envs for each in plan.planned] == [32, 128, 512, 2048, 8192, 16384]


def test_the_shapes_are_cartpole_whatever_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Measured", lambda config: None)
    plan = Planned("env=pendulum", "policy.hidden=[9]", "device.threads=3")
    plan.training(shapes=True)
    own, *shapes = plan.planned
    assert own == plan.config
    assert [(each.env.name, each.ppo.num_envs, each.ppo.num_steps) for each in shapes] == [
        ("cartpole", 256, 64),
        ("cartpole", 8, 128),
    ]
    for each in shapes:
        assert (each.ppo.update_epochs, each.ppo.num_minibatches, each.policy.hidden) == (4, 4, (64, 64))
        assert (each.policy.activation, each.device.threads) == ("tanh", 3)


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_threads_up_to_the_cores(cores: int, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "cores", lambda: cores)
    plan = Planned()
    plan.threads()
    assert [each.device.threads for each in plan.planned] == counts


def test_the_hidden_layers_stay_as_many() -> None:
    plan = Planned("policy.hidden=[9,8,7]")
    plan.hidden()
    assert [each.policy.hidden for each in plan.planned] == [(w, w, w) for w in (32, 64, 128, 256)]


def test_iterations_that_take_too_long_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "LONGEST", 0.0)
    own = bench.Bench(small(tmp_path, bench.ENDLESS), bench.QUICK, Console(quiet=True), Progress(disable=True))
    rows = own.environments()
    assert [row["num_envs"] for row in rows] == [8]


# ---------------------------------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------------------------------

ROW = {
    "env", "num_envs", "num_steps", "hidden", "threads", "path", "phases", "phases_sum", "peak_memory_bytes",
    *(name + end for end in ("", "_range") for name in (
        "steps_per_second", "gflops", "update_gflops", "fma_peak_gflops", "peak_share", "update_peak_share",
    )),
}  # fmt: skip


def check_row(row: dict[str, Any]) -> None:
    assert set(row) == ROW
    assert list(row["phases"]) == sorted(PHASES[:-1])
    assert row["phases_sum"] == pytest.approx(sum(row["phases"].values()))
    assert 0 < row["phases_sum"] <= 1 + 1e-9
    for name in (name for name in ROW if name.endswith("_range")):
        low, high = row[name]
        assert 0 < low <= row[name.removesuffix("_range")] <= high < math.inf, name
    assert 1e7 < row["peak_memory_bytes"] < 1e11


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    file = folder / "all.json"
    bench.main([*SMALL, f"out={folder}", "--quick", "--json", str(file), *arguments])
    content = json.loads(file.read_text())
    assert isinstance(content, dict)
    assert ElementTree.parse(folder / "bench.svg").getroot().tag.endswith("svg")
    return content


def test_what_it_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(tmp_path, "--sections", "steps,environments,logging")
    assert set(found) == {*ROW, "config", "effort", "machine", "sections"}
    assert found["path"] == "fused path"
    check_row({name: found[name] for name in ROW})
    sections = found["sections"]
    assert set(sections) == {"steps", "environments", "logging"}
    assert [row["num_envs"] for row in sections["environments"]] == [8, 64]
    for row in sections["environments"]:
        check_row(row)

    steps = sections["steps"]
    assert [row["times"] for row in steps] == [1, 2, 4, 10]
    assert [row["steps"] // steps[0]["steps"] for row in steps] == [1, 2, 4, 10]
    assert steps[0]["steps"] % found["config"]["ppo"]["num_steps"] == 0
    assert steps[0]["relative"] == 1.0
    assert all(row["seconds"] > 0 for row in steps)

    off, on = sections["logging"]
    assert (off["tracking"], on["tracking"]) == (False, True)
    assert off["cost"] == 0.0
    assert on["finish_seconds"] > off["finish_seconds"]  # a store that was written to was waited for
    assert 0 < off["log_share"] < 1

    shown = capsys.readouterr().out
    for title in (
        "Training: ",
        "Where the time goes",
        "Cost against steps",
        "Scaling: environments",
        "Cost of the log",
    ):
        assert title in shown
    assert "steps/s  return" not in shown  # of the trainings' own progress


def test_the_general_path(tmp_path: Path) -> None:
    found = run(tmp_path, "device.fused=false", "--sections", "threads,hidden")
    assert found["path"] == "general path (device.fused=false)"
    assert found["config"]["fused"] is False
    for name in ("threads", "hidden"):
        for row in found["sections"][name]:
            check_row(row)
    assert [row["hidden"] for row in found["sections"]["hidden"]] == [[32, 32], [64, 64]]
    assert found["sections"]["threads"][0]["threads"] == 1


def test_no_sections_and_the_folder_of_the_json(tmp_path: Path) -> None:
    bench.main([*SMALL, f"out={tmp_path}", "--quick", "--sections", "none"])
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["sections"] == {}
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.svg"}


MISTAKES = {
    "a key": ("ppo.num_env=4", r"bench: wanted a key of the configuration; got 'ppo.num_env'. Nearest: ppo.num_envs.*"),
    "a value": ("ppo.num_envs=none", r"bench: ppo.num_envs: wanted a whole number of at least 1; got 'none'"),
    "a flag": ("--jsn=x", r"bench: wanted key=value, or one of .*--json.*; unrecognized arguments: --jsn=x"),
    "a section": ("--sections=steps,thread", r"bench: --sections: wanted some of .*; got 'thread'. Nearest: threads"),
    "a sweep": ("seed=1,2", r"bench: seed=1,2: wanted one value; got several.*"),
    "a folder": ("out=/proc/new", r"bench: out: wanted a folder to write to; /proc/new: .*"),
    "a folder for a file": ("--json=/", r"bench: --json: wanted a file to write to; / is a folder\. Name a file in it"),
    "a file's folder": ("--json=/proc/new/x", r"bench: out: wanted a folder to write to; /proc/new: .*"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argument, message = MISTAKES[mistake]
    with pytest.raises(SystemExit) as ended:
        bench.main([*SMALL, f"out={tmp_path}", "--sections=none", argument])
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert re.fullmatch(message, shown.err.strip()), shown.err


def test_a_lack_of_memory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(bench, "Measured", lack)
    with pytest.raises(SystemExit) as ended:
        bench.main([*SMALL, f"out={tmp_path}"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("bench: wanted memory for this configuration; ")


def test_ctrl_c_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.Measured, "round", stop)
    with pytest.raises(SystemExit) as ended:
        bench.main([*SMALL, f"out={tmp_path}", "--quick"])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "bench: stopped by Ctrl-C; nothing was written\n"
    assert list(tmp_path.iterdir()) == []
