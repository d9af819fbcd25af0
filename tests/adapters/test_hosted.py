"""Training, evaluation and replay on environments that the host steps, by small Gymnasium ones."""

import csv
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from training import ROOT, SMALL, Pair, contents, faulty, small

import envs
from envs import normalize
from envs.vector import NativeVectorEnv, VectorEnv, empty_output
from kernels import compiler
from kernels.episode_seeds import host_seeds
from pipeline import assembly, checkpoint, evaluate, evaluation, ppo, provenance, replay, train
from pipeline.config import PolicyConfig, PPOConfig
from pipeline.fused import Fused
from pipeline.hosted import Hosted
from pipeline.mlp import shapes
from pipeline.optimizer import Adam
from pipeline.policy import build
from pipeline.profile import Clock

CPU = torch.device("cpu")
CASES = ROOT / "tests" / "adapters"
CARTPOLE = ("env=gymnasium", "env.id=CartPole-v1", "env.workers=0")
NORMALIZED = (
    "env=gymnasium",
    "env.id=Pendulum-v1",
    "env.workers=0",
    "env.normalize_observation=true",
    "env.normalize_reward=true",
)
ENVIRONMENTS = {"plain": CARTPOLE, "normalized": NORMALIZED}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)
    monkeypatch.syspath_prepend(str(CASES))
    monkeypatch.setattr(provenance, "collect", lambda device: {})
    monkeypatch.setattr(provenance, "write", lambda name, facts: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints of small trainings, on CartPole as it is and on Pendulum normalized, each evaluated."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "collect", lambda device: {})
        patch.setattr(provenance, "write", lambda name, facts: None)
        for name, overrides in ENVIRONMENTS.items():
            train.run(small(folder / name, *overrides))
            evaluate.run(small(folder / name / "evaluation", *overrides, f"checkpoint={folder / name}"))
    return {name: folder / name for name in ENVIRONMENTS}


# ---------------------------------------------------------------------------------------------------------------------
# The path
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_the_hosted_path_is_the_fused_one_step_by_step(name: str) -> None:
    """On native environments, on which both run: the same bits after three iterations."""
    config = PPOConfig(
        total_steps=60, num_envs=4, num_steps=5, num_minibatches=2, update_epochs=3, optimizer="adam",
        learning_rate=0.03, anneal_lr=True, gamma=0.9, gae_lambda=0.8, clip_coef=0.2, norm_adv=True, ent_coef=0.03,
        vf_coef=0.7, max_grad_norm=0.2,
    )  # fmt: skip
    network = PolicyConfig(hidden=(9, 8), activation="tanh", shared=False, log_std_init=0.7)
    spec, found = envs.spec(name, 3), []
    for kind in (Fused, Hosted):
        policy, flat = build(spec, network, 6, CPU)
        env = NativeVectorEnv(spec, config.num_envs, 6, CPU)
        path = kind(shapes(policy, flat, spec, network), flat, env, config, 6)
        training = ppo.PPO(config, env, path, Adam(flat, config.max_grad_norm, 6), 6, Clock(CPU))
        metrics = [training.iterate() for _ in range(3)]
        found.append((flat.parameters.clone(), metrics))
    assert torch.equal(found[0][0], found[1][0])
    assert repr(found[0][1]) == repr(found[1][1])


def test_the_manifest_says_what_ran(trained: dict[str, Path]) -> None:
    manifest = checkpoint.load(trained["plain"]).manifest
    assert manifest["path"] == "hosted"
    assert manifest["env_spec"]["id"] == "CartPole-v1"
    assert manifest["env_spec"]["max_episode_steps"] == 20
    assert set(manifest["config"]["env"]) == {
        "name", "id", "kwargs", "max_episode_steps", "normalize_observation", "normalize_reward",
    }  # fmt: skip


def test_workers_change_no_byte(trained: dict[str, Path], tmp_path: Path) -> None:
    train.run(small(tmp_path / "two", *NORMALIZED, "env.workers=2"))
    assert contents(tmp_path / "two") == contents(trained["normalized"])
    found = small(tmp_path / "evaluation", *NORMALIZED, "env.workers=2", f"checkpoint={trained['normalized']}")
    evaluate.run(found)
    for name in ("episodes.csv", "metrics.json"):
        assert (tmp_path / "evaluation" / name).read_bytes() == (
            trained["normalized"] / "evaluation" / name
        ).read_bytes()


def test_the_general_path_runs_them_too(tmp_path: Path) -> None:
    train.run(small(tmp_path, *CARTPOLE, "device.fused=false"))
    assert checkpoint.load(tmp_path).manifest["path"] == "general"


def test_one_that_is_stopped_begins_again_and_ends_the_same(
    trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "PARTIAL_SECONDS", -1.0)
    iterate, count = ppo.PPO.iterate, 0

    def stop(self: ppo.PPO, ahead: bool = False) -> dict[str, float]:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        return iterate(self)

    config = small(tmp_path, *CARTPOLE)
    monkeypatch.setattr(ppo.PPO, "iterate", stop)
    with pytest.raises(SystemExit):
        train.run(config)
    monkeypatch.setattr(ppo.PPO, "iterate", iterate)
    assert "the same command begins again" in capsys.readouterr().err
    assert not list(tmp_path.glob("partial-*"))
    train.run(config)
    assert "Stopped, it begins again" in capsys.readouterr().out
    assert contents(tmp_path) == contents(trained["plain"])


def test_cartpole_is_learned_through_the_adapter(tmp_path: Path) -> None:
    rest = ("policy.hidden=[64,64]", "env.max_episode_steps=500", "evaluate.episodes=20", "ppo.num_envs=8",
            "ppo.num_steps=64", "ppo.num_minibatches=4", "ppo.update_epochs=8", "ppo.total_steps=30000")  # fmt: skip
    train.run(small(tmp_path, *CARTPOLE, *rest))
    evaluate.run(small(tmp_path / "evaluation", *CARTPOLE, *rest, f"checkpoint={tmp_path}"))
    assert json.loads((tmp_path / "evaluation" / "metrics.json").read_text())["return_mean"] >= 475.0


def test_a_killed_worker_ends_the_run_with_a_message(tmp_path: Path) -> None:
    line = ["env=gymnasium", "env.id=host_cases:Slow", "env.workers=2", *SMALL, "ppo.total_steps=100000",
            f"out={tmp_path / 'out'}", f"hydra.run.dir={tmp_path / 'hydra'}"]  # fmt: skip
    command = [sys.executable, "-m", "pipeline.train", *line]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(
        command, cwd=CASES, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout
    assert "hosted path" in run.stdout.readline()  # it trains by now
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(run.pid)], capture_output=True, text=True).stdout
    workers = [int(each.split()[0]) for each in listed.splitlines() if "runpy" in each]
    assert len(workers) == 2
    begun = time.monotonic()
    os.kill(workers[0], signal.SIGKILL)
    _, said = run.communicate(timeout=5.0)
    assert time.monotonic() - begun < 5.0
    assert run.returncode == 2
    assert re.search(r"^train: env\.workers: wanted every worker process to go on; .* was ended by SIGKILL", said, re.M)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation and replay
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "normalized"])
def test_a_replay_is_the_evaluations_episode(trained: dict[str, Path], name: str, tmp_path: Path) -> None:
    rows = list(csv.DictReader((trained[name] / "evaluation" / "episodes.csv").open()))
    wanted = next(row for row in rows if row["policy"] == "final" and row["seed"] == "2")
    replay.run(small(tmp_path, *ENVIRONMENTS[name], f"checkpoint={trained[name]}", "replay.episode=2"))
    steps = list(csv.DictReader((tmp_path / "episode.csv").open()))
    assert len(steps) - 1 == int(wanted["length"])
    total = sum(float(step["reward"]) for step in steps[:-1])
    assert np.float32(total) == pytest.approx(float(wanted["return"]), rel=1e-6)


def test_a_replay_of_training_begins_as_the_training_did(trained: dict[str, Path], tmp_path: Path) -> None:
    rest = ("replay.split=train", "replay.episode=1", "replay.environment=3")
    replay.run(small(tmp_path, *CARTPOLE, f"checkpoint={trained['plain']}", *rest))
    first = next(csv.DictReader((tmp_path / "episode.csv").open()))
    config = small(tmp_path, *CARTPOLE)
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    env, out = envs.make(spec, 4, config.seed, CPU), empty_output(spec, 4, CPU)
    env.reset(out.observation)
    while int(env.state()["episode_index"][3]) < 1:
        env.step(torch.zeros(4, dtype=torch.int32), out)
    assert [float(first[f"observation_{k}"]) for k in range(4)] == out.observation[3].tolist()


def check_frozen(folder: Path, module: ModuleType = evaluation) -> None:
    """The final policy's episodes again, seen by the checkpoint's statistics with NumPy; nothing of them moves."""
    loaded = checkpoint.load(folder)
    config = small(folder, *NORMALIZED)
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    before = {name: tensor.clone() for name, tensor in loaded.tensors.items()}
    policy, flat = module.initial_policy(loaded.manifest, spec, CPU)
    flat.parameters.copy_(loaded.tensors["parameters"])
    played = module.compare(
        loaded.manifest, loaded.tensors["parameters"], spec, config.evaluate, CPU, tensors=loaded.tensors
    )["final"]
    count, mean, squares = (loaded.tensors[f"env.observation_{name}"].numpy() for name in ("count", "mean", "squares"))
    assert count == 192 + 4  # the first observations and each step's
    for index, seed in enumerate(evaluation.seeds.evaluation_seeds("held_out", 5)):
        env, out = envs.make(spec, 1, 0, CPU), empty_output(spec, 1, CPU)
        env.reset(out.observation, seed[None])
        for _ in range(20):
            seen = ((out.observation.numpy().astype(np.float64) - mean) / np.sqrt(squares / count + 1e-8)).clip(-10, 10)
            env.step(policy.distribution(torch.from_numpy(seen.astype(np.float32)))[:, :1], out)
            if out.terminated[0] or out.truncated[0]:
                break
        assert played.returns[index] == pytest.approx(out.episode_return[0].item(), rel=1e-5)
    assert all(torch.equal(before[name], tensor) for name, tensor in loaded.tensors.items())


def test_the_evaluation_sees_by_the_statistics_of_the_training(trained: dict[str, Path]) -> None:
    check_frozen(trained["normalized"])
    names = set(checkpoint.load(trained["plain"]).tensors)
    assert not any("observation_mean" in name for name in names)


@pytest.mark.parametrize(
    "pair",
    [
        (
            "self._policy.distribution(self._statistics.normalize(observation))",
            "self._policy.distribution(observation)",
        ),
        ("return Frozen(policy, statistics) if statistics else policy", "return policy"),
        ("            policy = frozen(policy, tensors, device)\n", ""),
    ],
    ids=["not applied", "left out", "not asked for"],
)
def test_planted_13_evaluated_without_its_statistics(trained: dict[str, Path], pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_frozen(trained["normalized"], faulty(evaluation, pair))


# ---------------------------------------------------------------------------------------------------------------------
# Normalization
# ---------------------------------------------------------------------------------------------------------------------


def check_normalized(module: ModuleType = normalize) -> None:
    """Twelve steps beside an environment that is not normalized, by NumPy over all that was seen."""
    spec, gamma = envs.spec("gymnasium", 5, id="host_cases:Seen", workers=0), 0.9
    env: VectorEnv = module.Normalized(envs.make(spec, 3, 1, CPU), ("observation", "reward"), gamma)
    twin, out, raw = envs.make(spec, 3, 1, CPU), empty_output(spec, 3, CPU), empty_output(spec, 3, CPU)
    env.reset(out.observation)
    twin.reset(raw.observation)
    seen, earned, total = [raw.observation.double().numpy().copy()], [], np.zeros(3)

    def wanted(values: Tensor) -> np.ndarray:
        rows = np.concatenate(seen)
        return ((values.double().numpy() - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8)).clip(-10, 10)

    np.testing.assert_allclose(out.observation, wanted(raw.observation), rtol=1e-5, atol=1e-6)
    source = np.random.RandomState(1)
    for _ in range(12):
        action = torch.from_numpy((source.random_sample(3) < 0.1).astype(np.int32))
        env.step(action, out)
        twin.step(action, raw)
        seen.append(raw.observation.double().numpy().copy())
        np.testing.assert_allclose(out.observation, wanted(raw.observation), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out.final_observation, wanted(raw.final_observation), rtol=1e-5, atol=1e-6)
        total = total * gamma + raw.reward.double().numpy()
        earned.append(total.copy())
        scale = np.sqrt(np.concatenate(earned).var() + 1e-8)
        np.testing.assert_allclose(out.reward, (raw.reward.double().numpy() / scale).clip(-10, 10), rtol=1e-5)
        total[(raw.terminated | raw.truncated).bool().numpy()] = 0.0
        for name in ("terminated", "truncated", "episode_return", "episode_length"):
            assert torch.equal(getattr(out, name), getattr(raw, name)), name
    assert raw.episode_return.max() > 0
    assert int(env.state()["observation_count"]) == 13 * 3
    assert int(env.state()["reward_count"]) == 12 * 3


def test_normalized_by_all_that_was_seen() -> None:
    check_normalized()


@pytest.mark.parametrize(
    "pair",
    [
        ("            self._return.masked_fill_((out.terminated | out.truncated).bool(), 0.0)\n", ""),
        ("(out.terminated | out.truncated).bool()", "out.terminated.bool()"),
        ("for observation in (out.observation, out.final_observation):", "for observation in (out.observation,):"),
        ("            self._observation.add(self._seen(observation))\n", ""),
        ("shift.square() * (self._count * count / total)", "shift.square()"),
        ("self._return.mul_(self._gamma)", "self._return.mul_(0.99)"),
        ("self._reward.normalize(out.reward, centered=False)", "self._reward.normalize(out.reward)"),
        ("self._count.copy_(total)", "self._count.add_(1)"),
    ],
    ids=["10 never zeroed", "10 zeroed by deaths alone", "final not", "11 first not counted", "spread of means lost",
         "12 another discount", "centered", "11 rows not counted"],
)  # fmt: skip
def test_planted_in_the_normalization(pair: Pair) -> None:
    module = faulty(normalize, pair)
    with pytest.raises(AssertionError):
        check_normalized(module)


def test_what_is_far_from_the_mean_is_clipped() -> None:
    check_clip()
    with pytest.raises(AssertionError):
        check_clip(faulty(normalize, (".clamp_(-LIMIT, LIMIT)", "")))


def check_clip(module: ModuleType = normalize) -> None:
    statistics = module.Statistics(1, CPU)
    statistics.add(torch.tensor([[0.0], [0.0]]))
    assert statistics.normalize(torch.tensor([[3.0], [-3.0]])).tolist() == [[10.0], [-10.0]]


def check_nan(module: ModuleType = normalize) -> None:
    statistics = module.Statistics(1, CPU)
    statistics.add(torch.tensor([[1.0], [3.0]]))
    rows = torch.tensor([[2.0], [float("nan")]])
    statistics.add(rows)
    assert statistics.normalize(rows).isnan().flatten().tolist() == [False, True]


def test_a_number_that_is_none_stays_its_environments_own() -> None:
    check_nan()
    with pytest.raises(AssertionError):
        check_nan(faulty(normalize, ("        if not mean.isfinite().all():\n            return\n", "")))


def test_a_state_goes_on_where_it_was_saved() -> None:
    """On a native environment, whose own state can be saved too."""
    spec = envs.spec("cartpole", 5)

    def played(env: VectorEnv, steps: int) -> Tensor:
        out = empty_output(spec, 3, CPU)
        for _ in range(steps):
            env.step(torch.ones(3, dtype=torch.int32), out)
        return torch.cat([out.observation.flatten(), out.reward])

    def made() -> normalize.Normalized:
        env = normalize.Normalized(NativeVectorEnv(spec, 3, 1, CPU), ("observation", "reward"), 0.9)
        env.reset(torch.empty(3, 4))
        return env

    one, other = made(), made()
    played(one, 7)
    other.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    assert torch.equal(played(one, 6), played(other, 6))


def test_assembled_as_configured(tmp_path: Path) -> None:
    own = {"observation_count", "reward_count", "discounted_return"}
    for overrides, wanted in ((CARTPOLE, set()), (NORMALIZED, own)):
        config = small(tmp_path, *overrides)
        spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
        state = assembly.assemble(config, spec, CPU, Clock(CPU)).ppo.env.state()
        assert {name for name in state if not name.startswith("episode") and "mean" not in name} >= wanted
        assert bool(wanted) == ("observation_mean" in state)
        assert host_seeds(state["episode_seed"]).max() < 2**29


# ---------------------------------------------------------------------------------------------------------------------
# The page
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_the_page_is_followed_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/environments.md: its class in a folder of its own, trained and evaluated there by its commands, learns."""
    page = (ROOT / "docs" / "environments.md").read_text().split("## Your own class")[1]
    text = re.findall(r"```python\n(.*?)```", page, re.S)[0]
    commands = page.split(text)[1].split("```")[2].strip().splitlines()
    (tmp_path / "corridor.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert len(commands) == 2
    for line in commands:  # in this process, for speed
        program, module, stage, *overrides = line.split()
        assert (program, module) == ("python", "-m")
        monkeypatch.setattr(sys, "argv", [stage, *overrides, "tracking.enabled=false", "device=cpu"])
        runpy.run_module(stage, run_name="__main__", alter_sys=True)
    metrics = json.loads((tmp_path / "run" / "held-out" / "metrics.json").read_text())
    assert metrics["env"] == "corridor:Corridor"
    assert metrics["return_mean"] > 0.7
    assert metrics["initial_return_mean"] < 0.5
