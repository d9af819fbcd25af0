"""Physical parameters drawn for each episode: from the range of its split, by its seed, wherever it is played."""

import csv
import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor
from training import contents, small

import envs
from envs import parameters, validation
from envs.spec import EnvSpec
from envs.vector import NativeVectorEnv, empty_output
from kernels import compiler
from kernels.errors import UserError
from pipeline import checkpoint, config, evaluate, evaluation, ppo, provenance, replay, seeds, train

CPU = torch.device("cpu")
RANGES = {
    "half_length": {"train": [0.3, 0.7], "held_out": [0.8, 1.2]},
    "gravity": {"train": [9.0, 10.0], "held_out": [3.0, 4.0]},
}
GIVEN = "env.parameters={half_length: {train: [0.3, 0.7], held_out: [0.8, 1.2]}, gravity: {train: [9, 10], held_out: [3, 4]}}"  # noqa: E501
SPEC = envs.spec("cartpole", 20, RANGES)
COUNT = 4000


def begun(spec: EnvSpec, episode_seeds: Tensor) -> dict[str, Tensor]:
    """What the episodes of these seeds drew."""
    env = NativeVectorEnv(spec, len(episode_seeds), 1, CPU)
    env.reset(torch.empty(len(episode_seeds), spec.observation_size), episode_seeds)
    return parameters.drawn(env)


# ---------------------------------------------------------------------------------------------------------------------
# What is drawn
# ---------------------------------------------------------------------------------------------------------------------


def check_draws(spec: EnvSpec) -> None:
    training = seeds.episode_seeds(1, torch.arange(COUNT, dtype=torch.int32), torch.zeros(COUNT, dtype=torch.int64))
    splits = {"train": training} | {each: seeds.evaluation_seeds(each, COUNT) for each in ("selection", "held_out")}
    for split, listed in splits.items():
        drawn = begun(spec, listed)
        assert set(drawn) == set(RANGES)
        uniform = []
        for name, values in drawn.items():
            low, high = torch.tensor(RANGES[name]["held_out" if split == "held_out" else "train"]).tolist()
            assert low <= values.min()
            assert values.max() <= high
            uniform.append((values.double() - low) / (high - low))
            # Kolmogorov and Smirnov: a uniform sample of this size is further off once in a million.
            assert (uniform[-1].sort().values - torch.arange(COUNT) / COUNT).abs().max() < 2.7 / math.sqrt(COUNT)
        assert abs(torch.corrcoef(torch.stack(uniform))[0, 1]) < 5 / math.sqrt(COUNT)


def test_each_split_draws_from_its_own_range() -> None:
    check_draws(SPEC)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("seed >> 62 == SPLIT_HELD_OUT", "seed >> 62 == SPLIT_SELECTION"),
        ("philox((unsigned)k, PURPOSE_PARAMETERS", "philox(0u, PURPOSE_PARAMETERS"),
        ("between(low, high, word), low, high", "between(low, high, word), low, 0.5f * (low + high)"),
    ],
)
def test_a_fault_in_the_draws_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    shared = (compiler.FOLDER / "environment.cuh").read_text().replace("#pragma once\n", "")
    assert shared.count(right) == 1
    (header := tmp_path / "cartpole.h").write_text(
        SPEC.header.read_text().replace('#include "environment.cuh"\n', shared.replace(right, wrong))
    )
    with pytest.raises(AssertionError):
        check_draws(dataclasses.replace(SPEC, header=header))


def test_a_draw_is_the_seeds_alone() -> None:
    listed = seeds.evaluation_seeds("held_out", 9)
    assert torch.equal(begun(SPEC, listed)["gravity"][4:5], begun(SPEC, listed[4:5])["gravity"])


# ---------------------------------------------------------------------------------------------------------------------
# What a drawn value does
# ---------------------------------------------------------------------------------------------------------------------

OTHER = {
    "cartpole": {"gravity": 8.0, "mass_cart": 1.25, "mass_pole": 0.3, "half_length": 0.8, "force": 7.0},
    "mountain_car": {"force": 0.0015, "gravity": 0.002},
    "pendulum": {"gravity": 8.0, "mass": 1.25, "length": 0.75},
}


def played(spec: EnvSpec, count: int = 64, steps: int = 40) -> Tensor:
    plan = validation.Plan(spec, count, steps, 5)
    env, out = NativeVectorEnv(spec, count, 5, CPU), empty_output(spec, count, CPU)
    env.reset(out.observation)
    rows = []
    for action in validation.random_actions(plan):
        env.step(action, out)
        rows.append(torch.cat([out.final_observation, out.reward[:, None]], 1))
    return torch.stack(rows)


@pytest.mark.parametrize("name", OTHER)
def test_a_drawn_value_acts_as_if_it_were_written_there(name: str, tmp_path: Path) -> None:
    """To the bit: against a header with these values as its constants."""
    spec = envs.spec(name)
    assert set(parameters.declared(spec.header)) == set(OTHER[name])
    text = spec.header.read_text()
    for parameter, value in OTHER[name].items():
        text, found = re.subn(rf"PARAMETER\({parameter}, [^)]+\)", f"{value}f", text)
        assert found == 1
    (tmp_path / spec.header.name).write_text(text)
    fixed = {parameter: {"train": [value, value], "held_out": [99, 100]} for parameter, value in OTHER[name].items()}
    written, drawn = dataclasses.replace(spec, header=tmp_path / spec.header.name), envs.spec(name, None, fixed)
    assert torch.equal(played(drawn), played(written))
    assert not torch.equal(played(drawn), played(spec))


def test_every_check_passes_on_drawn_values() -> None:
    def factory(spec: EnvSpec, num_envs: int, run_seed: int) -> NativeVectorEnv:
        return NativeVectorEnv(spec, num_envs, run_seed, CPU)

    plan = validation.Plan(dataclasses.replace(SPEC, max_episode_steps=500), 16, 60, 3)
    assert [check for check in validation.validate(factory, plan) if check.verdict != "pass"] == []


# ---------------------------------------------------------------------------------------------------------------------
# Training, evaluation, replay
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder)
        train.run(small(folder / "run", GIVEN))
        train.run(small(folder / "plain"))
    evaluate.run(evaluation_config(folder / "run", GIVEN, out="held-out"))
    return folder


def evaluation_config(source: Path, *overrides: str, out: str) -> config.Config:
    return dataclasses.replace(small(source / out, *overrides), checkpoint=str(source))


def test_the_fused_rollout_draws_as_a_reset_does(trained: Path) -> None:
    loaded = checkpoint.load(trained / "run")
    assert loaded.manifest["path"] == "fused"
    assert int(loaded.tensors["env.episode_index"].min()) > 0
    drawn = begun(SPEC, loaded.tensors["env.episode_seed"])
    for place, values in enumerate(drawn.values()):
        assert torch.equal(loaded.tensors["env.state"][4 + place], values)


def test_a_training_that_is_stopped_ends_the_same(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    monkeypatch.setattr(train, "PARTIAL_SECONDS", -1.0)
    iterate = ppo.PPO.iterate

    def stop(self: ppo.PPO, **options: bool) -> dict[str, float]:
        if self.iteration == 3:
            raise KeyboardInterrupt
        return iterate(self, **options)

    monkeypatch.setattr(ppo.PPO, "iterate", stop)
    with pytest.raises(SystemExit):
        train.run(small(tmp_path / "run", GIVEN))
    monkeypatch.setattr(ppo.PPO, "iterate", iterate)
    train.run(small(tmp_path / "run", GIVEN))
    assert contents(tmp_path / "run") == contents(trained / "run")


def test_the_manifest_and_both_hashes_hold_the_ranges(trained: Path) -> None:
    ranged, plain = (checkpoint.load(trained / name).manifest for name in ("run", "plain"))
    assert ranged["env_spec"]["parameters"] == ranged["config"]["env"]["parameters"] == RANGES
    assert ranged["env_spec"]["header"] == "cartpole.h"
    assert "parameters" not in plain["env_spec"]
    assert "parameters" not in plain["config"]["env"]
    for key in ("config_sha256", "env_spec_sha256"):
        assert ranged[key] != plain[key]


def test_an_evaluation_tells_what_was_drawn(trained: Path) -> None:
    folder = trained / "run" / "held-out"
    with (folder / "episodes.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "final"]
    drawn = begun(SPEC, seeds.evaluation_seeds("held_out", 5))
    for name, values in drawn.items():
        assert [float(row[name]) for row in rows] == values.tolist()
    told = json.loads((folder / "metrics.json").read_text())["parameters"]
    assert set(told) == set(RANGES)
    order = sorted(rows, key=lambda row: float(row["gravity"]))
    for name, third in {"low": order[:2], "middle": order[2:4], "high": order[4:]}.items():
        assert told["gravity"][name] == {
            "from": float(third[0]["gravity"]),
            "to": float(third[-1]["gravity"]),
            "episodes": len(third),
            "return_mean": sum(float(row["return"]) for row in third) / len(third),
        }


def test_fewer_episodes_than_thirds() -> None:
    assert list(evaluation.terciles(torch.tensor([0.5]), torch.tensor([3.0]))) == ["low"]


def test_a_replay_plays_the_same_episode(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (trained / "run" / "held-out" / "episodes.csv").open(newline="") as file:
        row = [row for row in csv.DictReader(file) if row["policy"] == "final"][3]
    chosen = evaluation_config(trained / "run", GIVEN, "replay.episode=3", "replay.render=true", out="episode")
    replay.run(chosen)
    assert f"return {row['return']}, length {row['length']}, {row['end']}" in capsys.readouterr().out
    assert (trained / "run" / "episode" / "episode.gif").read_bytes().startswith(b"GIF89a")


# ---------------------------------------------------------------------------------------------------------------------
# Another checkpoint's ranges
# ---------------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_other_ranges_is_taken_on_purpose_only(trained: Path) -> None:
    for source, overrides in (("plain", (GIVEN,)), ("run", ())):
        with pytest.raises(UserError, match=r"env.parameters .* trained with .*or evaluate.transfer=true"):
            evaluate.run(evaluation_config(trained / source, *overrides, out="refused"))
        evaluate.run(evaluation_config(trained / source, *overrides, "evaluate.transfer=true", out="taken"))
    assert "parameters" in json.loads((trained / "plain" / "taken" / "metrics.json").read_text())


def test_a_transfer_meets_no_value_of_the_training(trained: Path) -> None:
    seen = "env.parameters={half_length: {train: [0.1, 0.2], held_out: [%s, 1.2]}}"
    for source, lowest in (("plain", "0.5"), ("run", "0.7")):
        with pytest.raises(UserError, match=r"half_length: .* without a common value"):
            evaluate.run(evaluation_config(trained / source, seen % lowest, "evaluate.transfer=true", out="refused"))


def test_a_transfer_takes_no_other_environment(trained: Path) -> None:
    longer = dataclasses.replace(SPEC, max_episode_steps=21)
    with pytest.raises(UserError, match="max_episode_steps 21; it was trained with 20"):
        checkpoint.expect_environment(checkpoint.load(trained / "plain").manifest, longer, transfer=True)


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("cartpole", {"length": {}}, "wanted one of gravity, mass_cart, mass_pole, half_length, force; got 'length'"),
        ("acrobot", {"gravity": {}}, "acrobot has no parameters; got 'gravity'"),
        ("cartpole", {"gravity": {"train": [9, 10]}}, r"env.parameters.gravity: wanted \{train: .*, held_out: .*\}"),
        ("cartpole", {"gravity": [9, 10]}, r"env.parameters.gravity: wanted \{train: "),
        ("cartpole", {"gravity": {"train": [10, 9], "held_out": [1, 2]}}, r"gravity.train: .*; got \[10, 9\]"),
        ("cartpole", {"gravity": {"train": [9], "held_out": [1, 2]}}, r"gravity.train: .*; got \[9\]"),
        ("cartpole", {"gravity": {"train": [9, 10], "held_out": 11}}, "gravity.held_out: .*; got 11"),
        ("cartpole", {"gravity": {"train": [9, math.inf], "held_out": [1, 2]}}, "two numbers of a size up to"),
        ("cartpole", {"gravity": {"train": [9, 1e300], "held_out": [1, 2]}}, "two numbers of a size up to"),
        (
            "cartpole",
            {"gravity": {"train": [9, 10], "held_out": [10, 11]}},
            r"env.parameters.gravity: .* got train \[9.0, 10.0\] and held_out \[10.0, 11.0\]. Move one of them",
        ),
        ("cartpole", {"gravity": {"train": [9, 12], "held_out": [10, 11]}}, "without a common value"),
        ("cartpole", {"gravity": {"train": [0.1, 0.3], "held_out": [0.30000000001, 1]}}, "without a common value"),
    ],
)
def test_a_mistake_in_the_ranges_is_told(name: str, given: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        envs.spec(name, None, given)


def test_their_order_changes_nothing() -> None:
    assert envs.spec("cartpole", 20, dict(reversed(RANGES.items()))) == SPEC


def test_ranges_may_lie_on_either_side() -> None:
    for held_out in ([1, 8.9], [10.1, 11]):
        assert envs.spec("cartpole", None, {"gravity": {"train": [9, 10], "held_out": held_out}}).state_size == 5


def test_the_experiment_is_composed() -> None:
    loaded = config.load(["experiment=cartpole_lengths"])
    assert envs.spec("cartpole", **loaded.env.host).parameters[0].train == (0.3, 0.7)


def test_an_environment_without_the_key_is_told() -> None:
    with pytest.raises(UserError, match=r"env.parameters: wanted .*env=cartpole or env=mountain_car or env=pendulum"):
        config.load(["env=acrobot", "env.parameters={gravity: {train: [1, 2], held_out: [3, 4]}}"])
