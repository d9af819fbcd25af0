"""Any episode alone, from its seed: an evaluation's to the bit, a training's from the start that the training saw."""

import csv
import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from training import NAMES, command, faulty, small

from kernels.errors import UserError
from pipeline import checkpoint, evaluate, evaluation, provenance, train
from pipeline import replay as product
from pipeline.config import Config
from pipeline.mlp import FusedPolicy
from pipeline.policy import ActorCritic
from pipeline.ppo import PPO

LIMIT = 60
EPISODES = 5


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short training of each environment, and of one by the general path."""
    folder = tmp_path_factory.mktemp("trained")
    overrides = ("ppo.total_steps=1024", "ppo.learning_rate=0.01")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder)
        for name in NAMES:
            train.run(configuration(name, folder / name, *overrides))
        train.run(configuration("pendulum", folder / "general", *overrides, "device.fused=false"))
    return {name: folder / name for name in (*NAMES, "general")}


def configuration(name: str, out: Path, *overrides: str, source: Path | None = None) -> Config:
    config = small(out, f"env={name}", f"env.max_episode_steps={LIMIT}", *overrides)
    return dataclasses.replace(config, checkpoint=str(source)) if source else config


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def check_evaluation(module: ModuleType, source: Path, name: str, folder: Path, *overrides: str) -> None:
    """Every episode of an evaluation against its row in episodes.csv."""
    evaluate.run(configuration(name, folder / "evaluate", *overrides, source=source))
    final = [row for row in rows(folder / "evaluate/episodes.csv") if row["policy"] == "final"]
    assert len(final) == EPISODES
    split = next((each.split("=")[1] for each in overrides if each.startswith("evaluate.split")), "held_out")
    for episode, row in enumerate(final):
        config = configuration(name, folder / str(episode), *overrides, source=source)
        module.run(dataclasses.replace(config, replay=dataclasses.replace(config.replay, split=split, episode=episode)))
        *steps, last = rows(folder / str(episode) / "episode.csv")
        total = torch.zeros(())
        for step in steps:
            total += float(step["reward"])
        assert (repr(float(total)), str(len(steps))) == (row["return"], row["length"])
        assert [int(step["step"]) for step in [*steps, last]] == list(range(1, len(steps) + 2))
        assert last["reward"] == last["action"] == ""


@pytest.mark.parametrize("overrides", [(), ("evaluate.split=selection", "evaluate.deterministic=false")], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_evaluation_episode_is_the_one_in_episodes_csv(
    trained: dict[str, Path], name: str, overrides: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_evaluation(product, trained[name], name, tmp_path, *overrides)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("replay:")]
    final = [row for row in rows(tmp_path / "evaluate/episodes.csv") if row["policy"] == "final"]
    for line, row in zip(told, final, strict=True):
        assert line.endswith(f"episode {row['seed']}: return {row['return']}, length {row['length']}, {row['end']}")


def test_an_episode_of_the_general_path(trained: dict[str, Path], tmp_path: Path) -> None:
    assert checkpoint.load(trained["general"]).manifest["path"] == "general"
    check_evaluation(product, trained["general"], "pendulum", tmp_path)


def check_path(source: Path, network: type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path that trained a policy is the one that answers, in the replay and in the evaluation that it repeats."""
    answers: list[type] = []
    for kind in (FusedPolicy, ActorCritic):
        distribution = kind.distribution

        def seen(self: object, observation: torch.Tensor, distribution: Any = distribution) -> torch.Tensor:
            answers.append(type(self))
            return distribution(self, observation)

        monkeypatch.setattr(kind, "distribution", seen)
    product.run(configuration("pendulum", folder / "replay", source=source))
    assert answers == [network] * LIMIT
    evaluate.run(configuration("pendulum", folder / "evaluate", source=source))
    assert answers == [network] * 3 * LIMIT  # the initial policy too


KINDS = {"pendulum": FusedPolicy, "general": ActorCritic}


@pytest.mark.parametrize("name", KINDS)
def test_the_path_that_trained_answers(
    trained: dict[str, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_path(trained[name], KINDS[name], tmp_path, monkeypatch)


@pytest.mark.parametrize("name", KINDS)
def test_planted_path(trained: dict[str, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = faulty(evaluation, ('manifest["path"] in (FUSED, HOSTED)', 'manifest["path"] not in (FUSED, HOSTED)'))
    monkeypatch.setattr(evaluation, "initial_policy", wrong.initial_policy)
    with pytest.raises(AssertionError):
        check_path(trained[name], KINDS[name], tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "pair",
    [
        ("listed[row].repeat(agents)", "listed[0].repeat(agents)"),
        ("flat.parameters.copy_(loaded", "flat.parameters.clone().copy_(loaded"),
        ("if deterministic:", "if not deterministic:"),
        ("observation = out.observation", "pass"),
    ],
    ids=lambda pair: pair[0],
)
def test_planted_faults(trained: dict[str, Path], pair: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check_evaluation(faulty(product, pair), trained["pendulum"], "pendulum", tmp_path)


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_a_training_episode_begins_as_the_training_saw_it(
    trained: dict[str, Path], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    firsts: dict[tuple[int, int], list[float]] = {}
    iterate = PPO.iterate

    def watched(self: PPO, ahead: bool = False) -> dict[str, float]:
        if not self.iteration:
            for i, observation in enumerate(self.rollout.observations[-1].tolist()):
                firsts[i, 0] = observation
        before = self.env.state()["episode_index"].clone()
        metrics = iterate(self)
        ends = (self.rollout.terminated | self.rollout.truncated).bool()
        for i, index in enumerate(before.tolist()):
            for t in ends[:, i].nonzero()[:, 0].tolist():
                index += 1
                firsts[i, index] = self.rollout.observations[t + 1, i].tolist()
        return metrics

    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    monkeypatch.setattr(PPO, "iterate", watched)
    train.run(configuration(name, tmp_path / "train", "ppo.total_steps=1024"))
    episodes = checkpoint.load(tmp_path / "train").tensors["env.episode_index"].tolist()
    assert sorted(firsts) == [(i, k) for i, last in enumerate(episodes) for k in range(last + 1)]
    for environment, episode in ((0, 0), (0, 1), (2, episodes[2]), (3, 2)):
        out = tmp_path / f"{environment}-{episode}"
        config = configuration(name, out, source=tmp_path / "train")
        replay = dataclasses.replace(config.replay, split="train", environment=environment, episode=episode)
        product.run(dataclasses.replace(config, replay=replay))
        first = rows(out / "episode.csv")[0]
        found = [float(first[key]) for key in first if key.startswith("observation")]
        assert found == firsts[environment, episode]


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (("replay.episode=5",), "below evaluate.episodes=5; got 5. Give"),
        (("+replay={split: train, environment: 4}",), "replay.environment: wanted one of 4 environments; got 4"),
        (("+replay={split: train, environment: 1, episode: 999}",), "that environment 1 began in the training, 0 to"),
    ],
    ids=str,
)
def test_an_episode_that_there_is_not(
    trained: dict[str, Path], overrides: tuple[str, ...], wanted: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        product.run(configuration("cartpole", tmp_path, *overrides, source=trained["cartpole"]))
    assert wanted in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_as_a_user_runs_it(trained: dict[str, Path], tmp_path: Path) -> None:
    """The command, its refusal to write over a replay, and of another environment's checkpoint."""
    limit, source = f"env.max_episode_steps={LIMIT}", f"checkpoint={trained['cartpole']}"
    line = (limit, source, f"out={tmp_path / 'replay'}", "replay.episode=3", "device=cpu")
    done = command("replay", tmp_path, *line)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("replay: cartpole, held_out episode 3: return ")
    for changed, wanted in ((line, "holds episode.csv already"), ((*line, "env=pendulum", "out=x"), "env=cartpole")):
        done = command("replay", tmp_path, *changed)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert wanted in done.stderr
    done = command("replay", tmp_path, limit)
    assert "replay: checkpoint: wanted a value; got none" in done.stderr
