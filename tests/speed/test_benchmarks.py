"""The comparison with peers, without a peer or a network: stand-ins print, fail or say nothing."""

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import learning, peers, recipes, solve, stepping
from benchmarks.peers import Case, Peer, PeerError, Run

CASE = Case(8, 128)


def run(speed: float, startup: float = 1.0) -> Run:
    return Run(steps=round(2 * speed), seconds=2.0, startup_seconds=startup, versions={"it": "1.0"})


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a peer whose Python is a script: installed already, in a folder of its own."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path / "peers")
    monkeypatch.setattr(peers, "PEERS", {})

    def make(name: str, script: str) -> Path:
        peers.PEERS[name] = Peer(name.upper(), ("nothing",))
        python = tmp_path / "peers" / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        (tmp_path / "peers" / name / "installed.txt").write_text("nothing")
        return python

    return make


def printing(speed: float) -> str:
    return f"echo '{json.dumps({'steps': speed, 'seconds': 1.0, 'versions': {'it': '1.0'}})}'"


def test_the_ratio_is_taken_within_a_round() -> None:
    """Both slow down together in the second round: the ratio stays, though the medians' quotient would not."""
    summary = peers.summary([(run(100), run(10)), (run(50), run(5)), (run(90), run(6))])
    assert summary["ratio"] == {"median": 10.0, "min": 10.0, "max": 15.0}
    assert summary["steps_per_second"] == {"median": 6.0, "min": 5.0, "max": 10.0}
    assert summary["ours_steps_per_second"]["median"] == 90.0
    assert [each["peer"]["steps"] for each in summary["rounds"]] == [20, 10, 12]


def test_a_peer_runs_in_its_folder_and_is_told_its_case_and_its_threads(peer) -> None:
    peer("it", """[ "$OMP_NUM_THREADS$NPROC" = 22 ] || exit 1; echo noise; """ + printing(5))
    assert peers.run_peer("it", CASE, 1.0, threads=2).speed == 5.0
    peer("litters", "touch here; " + printing(5))
    peers.run_peer("litters", CASE, 1.0, threads=1)
    assert (peers.ENVIRONMENTS / "litters" / "here").exists()
    peer("args", 'echo "$*" >&2; exit 1')
    with pytest.raises(PeerError, match=r"-I .*recipes.py args --envs=8 --steps=128 --seconds=1.0"):
        peers.run_peer("args", CASE, 1.0, threads=1)


@pytest.mark.parametrize("script", ["true", "echo no JSON", "echo '[1]'", "echo '{}'"])
def test_a_peer_that_prints_no_result_has_failed(peer, script: str) -> None:
    peer("it", script)
    with pytest.raises(PeerError, match="wanted a line of JSON"):
        peers.run_peer("it", CASE, 1.0, threads=1)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("  a.b.SomeError: first\nValueError: it\n  note: not pip's fault\nhint: see above\n", "ValueError: it"),
        ("error: metadata\n\nhint: see above", "error: metadata"),
        ("killed\n", "killed"),
        ("", ""),
    ],
)
def test_the_reason_of_a_failure_is_one_line(output: str, why: str) -> None:
    assert peers.reason(output) == why


def test_a_failed_peer_has_a_row_and_the_others_go_on(peer, tmp_path, monkeypatch, capsys) -> None:
    peer("fast", printing(10_000))
    peer("broken", "echo 'ImportError: no such thing' >&2; exit 1")
    peer("slow", printing(1000))
    peer("gone", "exit 1")
    peers.PEERS["gone"] = Peer("GONE", ("another",))
    asked: list[int] = []

    def ours(case: Case, iterations: int, environment: str) -> Run:
        assert environment == "cartpole"
        asked.append(iterations)
        return run(100 * 1024)

    monkeypatch.setattr(peers, "run_ours", ours)
    written = tmp_path / "out.json"
    arguments = ["--cases", "8x128", "--rounds", "2", "--seconds", "3", "--json", str(written)]
    options = [*arguments, "--peers", "fast,broken,slow,gone"]
    peers.main(options)
    rows = json.loads(written.read_text())["cases"]["8x128"]
    assert rows["fast"]["ratio"]["median"] == 10.24
    assert [len(rows[name]["rounds"]) for name in ("fast", "slow")] == [2, 2]
    assert rows["broken"]["failed"] == "does not run: ImportError: no such thing"
    assert rows["gone"]["failed"].startswith("does not install: ")
    assert asked == [peers.FIRST_ITERATIONS, 300, 300, 300, 300]  # one before every run of a peer
    printed = capsys.readouterr().out
    assert printed.index("FAST 1.0") < printed.index("SLOW 1.0") < printed.rindex("BROKEN does not run: ImportError")


def test_the_table_holds_every_number_in_eighty_columns() -> None:
    row = {**peers.summary([(run(1_234_567, 2), run(9_876, 65))]), "threads": 2}
    console = Console(width=80)
    with console.capture() as captured:
        console.print(peers.table("256x64", {"sb3": row, "rejax": {"failed": "does not run: why"}}))
    for text in ("1,234,567", "9,876", "125 (125 to 125)", "65.0", "rejax does not run: why"):
        assert text in captured.get()


def test_an_environment_is_installed_once_and_again_for_other_versions(peer, monkeypatch) -> None:
    python = peer("it", 'echo "$*" >> "$0.calls"')
    assert peers.installed("it")
    peers.PEERS["it"] = Peer("IT", ("a==1 b==2", "--no-deps c==3"))
    assert not peers.installed("it")
    peers.install("it")
    assert peers.installed("it")
    common = "-m pip install -q --disable-pip-version-check"
    assert Path(f"{python}.calls").read_text().splitlines() == [f"{common} a==1 b==2", f"{common} --no-deps c==3"]


def test_a_failed_installation_is_no_installation(peer) -> None:
    peer("it", "exit 1")
    assert peers.installed("it")
    with pytest.raises(PeerError):
        peers.install("it")
    assert not peers.installed("it")


def test_every_peer_has_pinned_versions_and_a_recipe() -> None:
    assert set(peers.PEERS) == set(recipes.RECIPES)
    for peer in peers.PEERS.values():
        for argument in " ".join(peer.installs).split():
            assert "==" in argument or argument.startswith("--"), argument


@pytest.mark.parametrize(
    "arguments",
    [["--peers", "nobody"], ["--cases", "8"], ["--cases", "3x3"], ["--rounds", "0"], ["--rounds", "1.5"],
     ["--seconds", "nan"], ["--json", "no/such/folder.json"], ["--unknown"], ["install"]],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        peers.parse(arguments)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("peers: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("benchmark", "argument"),
    [
        (learning, "cartpole"),
        (learning, "env=cartpol"),
        (learning, "seed=x"),
        (solve, "seed=1;2"),
        (stepping, "rounds=x"),
    ],
)
def test_a_mistake_is_one_line(benchmark, argument: str, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        benchmark.main([argument])
    said = capsys.readouterr().err.strip() or str(caught.value)
    assert said.startswith(f"{benchmark.__name__.removeprefix('benchmarks.')}: ")
    assert "\n" not in said


def test_the_stopwatch_times_whole_iterations_after_the_warm_up(monkeypatch) -> None:
    clock = iter((60.0, 61.0, 62.0, 63.0, 64.0))  # the first iteration compiles for a minute
    monkeypatch.setattr(recipes.time, "perf_counter", lambda: next(clock))
    watch = recipes.Stopwatch(3.0)
    for _ in range(4):
        watch.iteration()
    with pytest.raises(recipes.Enough):
        watch.iteration()
    assert (watch.iterations, watch.seconds) == (3, 3.0)


def test_the_stopwatch_follows_a_peer_s_update() -> None:
    class Agent:
        def train(self, value: int) -> int:
            return value + 1

    agent, watch = Agent(), recipes.Stopwatch(0.0)
    watch.after(agent, "train")
    assert [agent.train(1) for _ in range(recipes.WARM_UP)] == [2, 2]
    with pytest.raises(recipes.Enough):
        agent.train(1)
    assert watch.iterations == 1


@pytest.mark.parametrize(("environment", "path"), [("cartpole", "fused"), ("gymnasium", "hosted")])
def test_our_own_run_is_a_training_of_the_recipe(environment: str, path: str, monkeypatch) -> None:
    """By the product's command line, in a folder that is gone afterwards; only a short one."""
    commands: list[list[str]] = []
    call = peers._call
    monkeypatch.setattr(peers, "_call", lambda command, seconds: (commands.append(command), call(command, seconds))[1])
    ours = peers.run_ours(Case(8, 16), 2, environment)
    assert commands[0][:3] == [sys.executable, "-m", "pipeline.train"]
    assert ours.steps == 2 * 8 * 16
    assert ours.seconds > 0
    assert ours.startup_seconds > 0
    assert ours.versions == {"path": path}
    out = next(each for each in commands[0] if each.startswith("out="))
    assert not Path(out.removeprefix("out=")).exists()
