"""PettingZoo's parallel environments as rows: fillers between an agent's end and its world's, and in no statistic."""

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import envs
from envs import normalize
from envs.host import Worlds
from envs.vector import StepOutput, empty_output
from kernels import compiler
from kernels.episode_seeds import host_seeds
from kernels.errors import UserError
from pipeline import assembly, checkpoint, evaluation, ppo, provenance, replay, samples, seeds, train, validate
from pipeline import config as configuration
from pipeline.profile import Clock
from tests.training import ROOT, faulty

pytest.importorskip("pettingzoo")

CPU = torch.device("cpu")
ROWS = 6  # two worlds
# Steps 1 to 5 of an episode: who takes them (ann, bob, cy), and what ends.
TAKEN = torch.tensor([[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 0], [0, 1, 0]]).bool()
DIED = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
CUT = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0]])
LENGTHS = torch.tensor([[1, 1, 1], [2, 2, 2], [0, 3, 3], [0, 4, 0], [0, 5, 0]])


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "adapters"))
    monkeypatch.setattr(provenance, "collect", lambda device: {})
    monkeypatch.setattr(provenance, "write", lambda name, facts: None)


def crowd(workers: int = 0, limit: int = 50, **kwargs: Any) -> Any:
    return envs.spec("pettingzoo", limit, id="crowd_cases", kwargs=kwargs, workers=workers)


def play(spec: Any, steps: int, num_envs: int = ROWS, poison: float = 7.0) -> tuple[Any, StepOutput, list[Tensor]]:
    """The vector environment, what its steps wrote, (T, N, ...), and `alive` after each of them, the reset first."""
    env = envs.make(spec, num_envs, 3, CPU)
    out = empty_output(spec, num_envs, CPU)
    for each in out:
        each.fill_(poison)
    env.reset(out.observation)
    rows, alive = [], [env.alive.clone()]
    for _ in range(steps):
        for each in out[1:]:
            each.fill_(poison)
        env.step(torch.zeros(num_envs, dtype=torch.int32), out)
        rows.append(StepOutput(*(each.clone() for each in out)))
        alive.append(env.alive.clone())
    return env, StepOutput(*(torch.stack(each) for each in zip(*rows, strict=True))), alive


def check_contract(out: StepOutput, alive: list[Tensor]) -> None:
    """Two episodes of five steps in each of two worlds."""
    twice = (2, 2)
    assert torch.equal(out.episode_length.long(), LENGTHS.repeat(twice))
    assert torch.equal(out.terminated.long(), DIED.repeat(twice))
    assert torch.equal(out.truncated.long(), CUT.repeat(twice))
    assert torch.equal(torch.stack(alive[:-1]).bool(), TAKEN.repeat(twice))
    wages = torch.tensor([1.0, 10.0, 100.0]).repeat(2)
    assert torch.equal(out.reward, TAKEN.repeat(twice) * wages)
    assert torch.equal(out.episode_return, out.episode_length * wages)
    ended = (out.terminated | out.truncated).bool()
    assert torch.equal(out.final_observation[ended][:, 1], out.episode_length[ended].float())
    assert (out.observation[[4, 9]][..., 1] == 0).all(), "the next episode's first"


def test_agents_are_rows_and_those_that_are_gone_are_fillers() -> None:
    env, out, alive = play(crowd(), 10)
    check_contract(out, alive)
    assert env.state()["episode_index"].tolist() == [2] * ROWS


def test_workers_play_the_same() -> None:
    env, out, alive = play(crowd(workers=2), 10)
    assert env.workers == 2
    assert all(torch.equal(a, b) for a, b in zip(out, play(crowd(), 10)[1], strict=True))
    check_contract(out, alive)
    os.kill(env._stepper._processes[1].pid, signal.SIGKILL)
    with pytest.raises(UserError, match="environments 3 to 5 of crowd_cases was ended by SIGKILL"):
        env.step(torch.zeros(ROWS, dtype=torch.int32), empty_output(env.spec, ROWS, CPU))


def test_a_world_has_one_seed() -> None:
    env, _, _ = play(crowd(), 5)  # the second episode has just begun
    told = [world.seed for world in env._stepper._player._worlds]
    assert told == host_seeds(env.state()["episode_seed"])[[0, 3]].tolist()
    wanted = env.state()["episode_seed"]
    assert torch.equal(
        wanted, envs.vector.training_seeds(3, torch.arange(ROWS, dtype=torch.int32) // 3, torch.ones(ROWS).long())
    )


def test_the_time_limit_truncates_those_that_are_left() -> None:
    _, out, _ = play(crowd(limit=2), 4)
    assert out.truncated[1].tolist() == [1] * 6
    assert out.terminated[1].tolist() == [1, 0, 0] * 2
    assert out.episode_length[2].tolist() == [1] * 6


@pytest.mark.parametrize(
    ("id", "kwargs", "text"),
    [
        ("crowd_cases:Unequal", {}, "env.id: wanted agents of equal spaces.*; bob of crowd_cases:Unequal has"),
        ("crowd_cases:Crwd", {}, "env.id: wanted a function of crowd_cases; got 'Crwd', nearest: Crowd"),
        ("crowd_case", {}, "env.id: wanted a module in this folder or installed; got 'crowd_case'"),
        ("crowd_cases:dict", {}, "wanted a function of crowd_cases"),
        ("crowd_cases", {"n": 2}, "env.id, env.kwargs: wanted crowd_cases to be made with {'n': 2}; TypeError"),
        ("collections:OrderedDict", {}, "wanted a parallel environment of PettingZoo's"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(id: str, kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        envs.spec("pettingzoo", 10, id=id, kwargs=kwargs)


def test_rows_are_whole_worlds() -> None:
    with pytest.raises(UserError, match=r"ppo\.num_envs: wanted a multiple of the 3 agents.*got 4\. Nearest: 3, 6"):
        Worlds(crowd(), 4, 0, CPU)
    with pytest.raises(UserError, match="wanted a time limit"):
        envs.spec("pettingzoo", id="crowd_cases")


# ---------------------------------------------------------------------------------------------------------------------
# Nothing is learned from fillers
# ---------------------------------------------------------------------------------------------------------------------


def config(out: Path, *overrides: str) -> configuration.Config:
    return dataclasses.replace(
        configuration.load(
            (
                "env=pettingzoo", "env.id=crowd_cases", "env.workers=0", "env.max_episode_steps=50", "device=cpu",
                "device.threads=1", "tracking.enabled=false", "policy.hidden=[9,8]", "ppo.num_envs=6",
                "ppo.num_steps=10",
                "ppo.num_minibatches=4", "ppo.update_epochs=2", "ppo.total_steps=180", "evaluate.episodes=4",
                *overrides,
            )
        ),
        out=str(out),
    )  # fmt: skip


def begin(tmp_path: Path, *overrides: str) -> Any:
    made = config(tmp_path, *overrides)
    return assembly.assemble(made, crowd(), CPU, Clock(CPU))


FUSED = ("device.fused=true", "device.fused=false")


@pytest.mark.parametrize("path", FUSED)
def test_minibatches_hold_every_valid_row_at_most_once(tmp_path: Path, path: str) -> None:
    training = begin(tmp_path, path)
    used: list[Tensor] = []
    step = training.ppo.path.step

    def spy(rollout: Any, index: Tensor, *rest: Any) -> None:
        used.append(index.clone())
        step(rollout, index, *rest)

    training.ppo.path.step = spy
    training.ppo.iterate()
    valid = TAKEN.repeat(2, 2).flatten()
    assert int(valid.sum()) == 40
    assert [len(each) for each in used] == [15] * 4, "40 // 15 minibatches in each of two epochs"
    for epoch in (torch.cat(used[:2]), torch.cat(used[2:])):
        assert len(epoch.unique()) == 30
        assert valid[epoch.long()].all()


def gradient(tmp_path: Path, source: Any, spoil: float | None, path: str) -> tuple[Tensor, dict[str, float], Tensor]:
    """The first minibatch's gradient, the iteration's metrics and the parameters, with fillers' numbers replaced."""
    training = begin(tmp_path, path, "ppo.num_minibatches=1")
    ppo_ = training.ppo
    ppo_.rows = source.living_rows
    found: list[Tensor] = []
    move = ppo_.optimizer.step_clipped
    ppo_.optimizer.step_clipped = lambda number: (found.append(training.flat.gradients.clone()), move(number))
    gae = ppo_._advantages

    def spoiled() -> None:
        gae()
        if spoil is not None:
            rollout, filler = ppo_.rollout, ~TAKEN.repeat(2, 2)
            for each in (rollout.advantages, rollout.returns, rollout.log_probs, rollout.rewards):
                each[filler] = spoil
            rollout.observations[:-1][filler] = spoil

    ppo_._advantages = spoiled
    metrics = ppo_.iterate()
    return found[0], metrics, training.flat.parameters.clone()


@pytest.mark.parametrize("path", FUSED)
def test_whatever_stands_in_fillers_changes_nothing(tmp_path: Path, path: str) -> None:
    (first, metrics, after), others = gradient(tmp_path, samples, None, path), gradient(tmp_path, samples, 50.0, path)
    assert torch.equal(first, others[0])
    assert torch.equal(after, others[2])
    assert metrics == others[1]
    assert first.abs().sum() > 0
    assert metrics["episodes"] == 12
    assert metrics["episode_return_mean"] == pytest.approx((2 + 50 + 300) / 3)
    assert metrics["episode_length_mean"] == pytest.approx(10 / 3)


def test_fillers_that_enter_are_seen(tmp_path: Path) -> None:
    planted = faulty(samples, ("episode_lengths.view(-1) > 0", "episode_lengths.view(-1) >= 0"))
    first, others = (gradient(tmp_path, planted, spoil, FUSED[1])[0] for spoil in (None, 50.0))
    assert not torch.equal(first, others)


def test_the_gradient_is_that_of_the_valid_rows_alone(tmp_path: Path) -> None:
    """By autograd over those rows, without the product's selection."""
    first, _, _ = gradient(tmp_path, samples, None, FUSED[1])
    training = begin(tmp_path, FUSED[1], "ppo.num_minibatches=1")
    ppo_, policy = training.ppo, training.policy
    ppo_.collect()
    ppo_.advantages()
    rows = TAKEN.repeat(2, 2).flatten().nonzero().squeeze(1)
    rollout, setting = ppo_.rollout, ppo_.config
    advantage = rollout.advantages.flatten()[rows]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    logits = policy.distribution(rollout.seen[rows])
    log_prob = logits.log_softmax(-1).gather(1, rollout.actions.flatten()[rows].long()[:, None]).squeeze(1)
    ratio = (log_prob - rollout.log_probs.flatten()[rows]).exp()
    value_loss = 0.5 * (policy.value(rollout.seen[rows]) - rollout.returns.flatten()[rows]).square().mean()
    training.flat.gradients.zero_()
    (setting.vf_coef * value_loss - (ratio * advantage).mean()).backward()
    assert torch.allclose(first, training.flat.gradients, rtol=1e-4, atol=1e-5 * float(first.abs().max()))


def test_steps_that_were_not_taken_are_not_counted_by_the_optimizer(tmp_path: Path) -> None:
    training = begin(tmp_path)
    training.ppo.iterate()
    powers = training.ppo.optimizer.state()["powers"]
    assert powers.tolist() == pytest.approx([0.9**4, 0.999**4])


def test_normalization_counts_what_somebody_saw() -> None:
    env = normalize.Normalized(envs.make(crowd(), ROWS, 3, CPU), ("observation", "reward"), 0.9)
    out = empty_output(env.spec, ROWS, CPU)
    env.reset(out.observation)
    for _ in range(10):
        env.step(torch.zeros(ROWS, dtype=torch.int32), out)
    state = env.state()
    assert int(state["observation_count"]) == 40 + ROWS, "of two episodes, and the third one's first"
    assert int(state["reward_count"]) == 40
    seen = 2 * (4 * 0 + 10 * 1 + 6 * 2) + 2 * (0 + 1 + 2)  # ann 2, bob 5, cy 3 times an episode, and once more
    assert float(state["observation_mean"][0]) == pytest.approx(seen / (40 + ROWS))


# ---------------------------------------------------------------------------------------------------------------------
# The stages
# ---------------------------------------------------------------------------------------------------------------------


def test_train_evaluate_and_what_they_say(tmp_path: Path) -> None:
    made = config(tmp_path / "run")
    train.run(made)
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded.manifest["env_spec"]["agent_names"] == ["ann", "bob", "cy"]
    spec = crowd()
    seeds.prove_training(1, loaded.manifest["seeds"], loaded.tensors, spec.agents)
    chosen = seeds.evaluation_seeds("held_out", 4)
    policy, _ = evaluation.initial_policy(loaded.manifest, spec, CPU)
    played = evaluation.play(policy, spec, chosen, True, CPU)
    assert played.returns.tolist() == pytest.approx([(2 + 50 + 300) / 3] * 4), "the mean over the agents of a world"
    assert played.lengths.tolist() == [5] * 4
    assert played.terminated.tolist() == [False] * 4
    with pytest.raises(UserError, match="wanted an environment whose agents end together; crowd_cases has 3"):
        replay.run(dataclasses.replace(made, checkpoint=made.out, out=str(tmp_path / "replay")))


def test_validation_names_what_does_not_apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validate.run(config(tmp_path, "validate.num_envs=4", "validate.steps=20"))
    report = json.loads((tmp_path / "validation.json").read_text())
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    assert verdicts["determinism"] == verdicts["buffers"] == verdicts["seeds"] == "pass"
    assert verdicts["alone"] == verdicts["returns"] == "not applicable"
    assert "fail" not in verdicts.values()


def test_ppo_stays_without_flags() -> None:
    """The page knows of one choice, made before the loop starts."""
    assert Path(ppo.__file__).read_text().count("living_rows") == 2
