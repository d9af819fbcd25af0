"""The stage `evaluate`: a fixed list of episodes, each to its end, and every number from them."""

import csv
import dataclasses
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from training import NAMES, Pair, command, contents, faulty, small

import envs
from envs.spec import EnvSpec
from envs.vector import empty_output
from kernels.errors import UserError
from pipeline import checkpoint, evaluation, files, provenance, seeds, train
from pipeline import evaluate as product
from pipeline.config import Config
from pipeline.mlp import FusedPolicy
from pipeline.policy import ActorCritic, Policy, build, empty_action, mode, sample

CPU = torch.device("cpu")
LIMIT = 60
# Where nearly untrained play meets no goal, and every episode costs the limit: one that lets a skilled player meet it.
LONG_LIMIT = {"acrobot": 500, "mountain_car": 200}
WRITTEN = ("episodes.csv", "metrics.json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A short training of each environment, enough to tell its policy from the initial one; one by the general path."""
    folder = tmp_path_factory.mktemp("trained")
    overrides = ("ppo.total_steps=1024", "ppo.learning_rate=0.01")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder)
        for name in NAMES:
            train.run(configuration(name, folder / name, *overrides))
        train.run(configuration("pendulum", folder / "general", *overrides, "device.fused=false"))
    return {name: folder / name for name in (*NAMES, "general")}


@pytest.fixture(scope="module")
def telling(trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each environment whose policy's episodes are not all alike.

    Where a short training gives none, a policy by hand: it pushes along a speed, the last component of either
    observation, and so swings up.
    """
    folder = tmp_path_factory.mktemp("telling")
    for name, limit in LONG_LIMIT.items():
        config = configuration(name, folder / f"{name}-trained", "ppo.total_steps=1024", limit=limit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(provenance, "CHECKOUT", folder)
            train.run(config)
        policy, flat = build(envs.spec(name, limit), config.policy, 1, CPU)
        flat.parameters.zero_()
        layers = [layer for layer in policy.actor if isinstance(layer, nn.Linear)]
        layers[0].weight.data[0, -1] = 100.0  # the sign of the speed, nearly
        layers[1].weight.data[0, 0] = 100.0
        layers[2].weight.data[:, 0] = torch.tensor([-2.0, 0.0, 2.0])  # a sampled action is the best in 87 of 100
        loaded = checkpoint.load(folder / f"{name}-trained")
        manifest = {key: value for key, value in loaded.manifest.items() if key != "manifest_sha256"}
        checkpoint.save(folder / name, {**loaded.tensors, "parameters": flat.parameters}, manifest)
    return {**trained, **{name: folder / name for name in LONG_LIMIT}}


def configuration(name: str, out: Path, *overrides: str, source: Path | None = None, limit: int = LIMIT) -> Config:
    config = small(out, f"env={name}", f"env.max_episode_steps={limit}", *overrides)
    return dataclasses.replace(config, checkpoint=str(source)) if source else config


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def policies(folder: Path, name: str) -> dict[str, Policy]:
    loaded = checkpoint.load(folder)
    initial, _ = evaluation.initial_policy(loaded.manifest, envs.spec(name, LIMIT), CPU)
    final, flat = evaluation.initial_policy(loaded.manifest, envs.spec(name, LIMIT), CPU)
    flat.parameters.copy_(loaded.tensors["parameters"])
    assert isinstance(final, FusedPolicy if loaded.manifest["path"] == "fused" else ActorCritic)
    return {"initial": initial, "final": final}


@torch.no_grad()
def play_alone(
    policy: Policy, spec: EnvSpec, episode_seeds: Tensor, deterministic: bool
) -> list[tuple[float, int, bool]]:
    """One episode after the other, each alone in its environment: (return, length, terminated).

    Row i of a batch is computed alike whatever its neighbours are, so an episode keeps its row.
    """
    count, episodes = len(episode_seeds), []
    for i, seed in enumerate(episode_seeds):
        env, out = envs.make(spec, 1, 99, CPU), empty_output(spec, 1, CPU)
        actions, unused = empty_action(spec, (count,), CPU), torch.empty(2, count)
        env.reset(out.observation, seed[None])
        total, length = torch.zeros(()), 0
        while True:
            batch = torch.zeros(count, spec.observation_size)
            batch[i] = out.observation[0]
            parameters = policy.distribution(batch)
            if deterministic:
                mode(parameters, actions)
            else:
                sample(parameters, actions, unused[0], unused[1], length, int(episode_seeds[0]) & (1 << 64) - 1)
            env.step(actions[i : i + 1].clone(), out)
            total, length = total + out.reward[0], length + 1
            if out.terminated[0] or out.truncated[0]:
                break
        episodes.append((float(total), length, bool(out.terminated[0])))
    return episodes


def check_replay(module: ModuleType, folder: Path, name: str, deterministic: bool) -> None:
    spec = envs.spec(name, LIMIT)
    for split, count in (("held_out", 7), ("selection", 3)):
        episode_seeds = seeds.evaluation_seeds(split, count)
        for policy in policies(folder, name).values():
            played = module.play(policy, spec, episode_seeds, deterministic, CPU)
            found = zip(played.returns.tolist(), played.lengths.tolist(), played.terminated.tolist(), strict=True)
            assert list(found) == play_alone(policy, spec, episode_seeds, deterministic)


@pytest.mark.parametrize("deterministic", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", NAMES)
def test_evaluation_equals_one_episode_at_a_time(trained: dict[str, Path], name: str, deterministic: bool) -> None:
    check_replay(evaluation, trained[name], name, deterministic)


@pytest.mark.parametrize("deterministic", [True, False], ids=["greedy", "sampled"])
def test_so_it_does_on_the_general_path(trained: dict[str, Path], deterministic: bool) -> None:
    check_replay(evaluation, trained["general"], "pendulum", deterministic)


class Brake(nn.Module):
    """Pushes against the cart's velocity: episodes of 20 to 107 steps, so that some end thrice while others run."""

    def distribution(self, observation: Tensor) -> Tensor:
        return torch.stack([observation[:, 1], torch.zeros(len(observation))], dim=1)

    def value(self, observation: Tensor) -> Tensor:
        return observation[:, 0]


def check_no_bias(module: ModuleType) -> None:
    """CartPole's return is its length: whoever takes the first ends, or goes on after an end, gets another mean."""
    spec, episode_seeds = envs.spec("cartpole"), seeds.evaluation_seeds("held_out", 40)
    played = module.play(Brake(), spec, episode_seeds, True, CPU)
    alone = play_alone(Brake(), spec, episode_seeds, True)
    assert max(length for _, length, _ in alone) > 4 * min(length for _, length, _ in alone)
    assert played.lengths.tolist() == [length for _, length, _ in alone]
    assert played.returns.tolist() == [total for total, _, _ in alone]
    assert played.terminated.all()


def test_47_each_episode_of_the_list_to_its_end() -> None:
    check_no_bias(evaluation)


_ENDED = "ended = running & (out.terminated | out.truncated).bool()"


@pytest.mark.parametrize(
    "pair",
    [
        (_ENDED, "ended = (out.terminated | out.truncated).bool()"),
        ("        if not running.any():\n            break\n    assert not running.any()",
         "        if int(running.sum()) < 20:\n            break\n    assert True"),
        ("episode_seeds.to(device).repeat_interleave(spec.agents)", "None"),
        ("episode_seeds.to(device).repeat_interleave(spec.agents)", "episode_seeds.roll(1)"),
        ("out.episode_return[ended], out.episode_length[ended]", "out.reward[ended], out.episode_length[ended]"),
    ],
    ids=["47 later episodes too", "47 the first to finish", "40 unseeded", "another order", "last reward"],
)  # fmt: skip
def test_planted_47(pair: Pair) -> None:
    with pytest.raises((AssertionError, UserError)):  # an episode that was not played may have a return of NaN
        check_no_bias(faulty(evaluation, pair))


@pytest.mark.parametrize(
    ("name", "deterministic", "pair"),
    [
        ("pendulum", True, ("        if deterministic:", "        if not deterministic:")),
        ("pendulum", False, ("sample(parameters, action, unused[0], unused[1], step, sampling_key, sizes)",
                             "sample(parameters, action, unused[0], unused[1], 0, sampling_key, sizes)")),
        ("pendulum", True, ("terminated[ended] = out.terminated[ended].bool()", "terminated[ended] = True")),
        ("cartpole", True, ("terminated[ended] = out.terminated[ended].bool()", "terminated[ended] = False")),
    ],
    ids=["sampled for greedy", "one draw for all steps", "every end a death", "no end a death"],
)  # fmt: skip
def test_planted_play(trained: dict[str, Path], name: str, deterministic: bool, pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_replay(faulty(evaluation, pair), trained[name], name, deterministic)


def check_compare(module: ModuleType, folder: Path) -> None:
    """Both policies on one list: the initial one made again from the run seed, the final one from the checkpoint."""
    loaded, config = checkpoint.load(folder), configuration("pendulum", folder).evaluate
    parameters = loaded.tensors["parameters"]
    played = module.compare(loaded.manifest, parameters, envs.spec("pendulum", LIMIT), config, CPU)
    assert list(played) == ["initial", "final"]
    for name, policy in policies(folder, "pendulum").items():
        episode_seeds = seeds.evaluation_seeds(config.split, config.episodes)
        alone = play_alone(policy, envs.spec("pendulum", LIMIT), episode_seeds, config.deterministic)
        assert played[name].returns.tolist() == [total for total, _, _ in alone]
    assert not torch.equal(played["initial"].returns, played["final"].returns)


@pytest.mark.parametrize("name", ["pendulum", "general"])
def test_initial_and_final_policy_play_the_same_list(trained: dict[str, Path], name: str) -> None:
    check_compare(evaluation, trained[name])


@pytest.mark.parametrize(
    "pair",
    [
        ('        if name == "final":\n', '        if name == "none":\n'),
        ('        if name == "final":\n', "        if True:\n"),
        (
            "seeds.evaluation_seeds(config.split, config.episodes)",
            'seeds.evaluation_seeds("selection", config.episodes)',
        ),
    ],
    ids=["initial twice", "final twice", "another split"],
)
def test_planted_compare(trained: dict[str, Path], pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_compare(faulty(evaluation, pair), trained["pendulum"])


def test_a_return_that_is_no_number_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Brake):
        def distribution(self, observation: Tensor) -> Tensor:
            return torch.full((len(observation), 2), float("nan"))

    spec = envs.spec("pendulum", 5)
    with pytest.raises(UserError, match=r"^evaluate: the return of episode 0 must be finite; got nan$"):
        evaluation.play(Lost(), spec, seeds.evaluation_seeds("held_out", 3), True, CPU)


# ---------------------------------------------------------------------------------------------------------------------
# The stage
# ---------------------------------------------------------------------------------------------------------------------


def check_metrics(
    folder: Path, manifest: dict[str, object], split: str, deterministic: bool, episodes: int, limit: int = LIMIT
) -> None:
    """Every number of metrics.json, from episodes.csv alone."""
    table = rows(folder / "episodes.csv")
    assert list(table[0]) == ["policy", "seed", "return", "length", "end"]
    wanted = [(policy, str(index)) for policy in ("initial", "final") for index in range(episodes)]
    assert [(row["policy"], row["seed"]) for row in table] == wanted
    assert {row["end"] for row in table} <= {"terminated", "truncated"}
    assert all(row["end"] == "terminated" or row["length"] == str(limit) for row in table)
    initial, final = ([row for row in table if row["policy"] == policy] for policy in ("initial", "final"))
    before, after = ([float(row["return"]) for row in part] for part in (initial, final))
    gains = [new - old for new, old in zip(after, before, strict=True)]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == {
        "env": manifest["env_spec"]["name"],  # type: ignore[index]
        "run_seed": 1,
        "split": split,
        "episodes": episodes,
        "deterministic": deterministic,
        "checkpoint_sha256": manifest["sha256"],
        "step": 1024,
        "return_mean": pytest.approx(statistics.fmean(after), rel=1e-12),
        "return_std": pytest.approx(statistics.pstdev(after), rel=1e-9),
        "return_median": statistics.median(after),
        "length_mean": statistics.fmean(int(row["length"]) for row in final),
        "initial_return_mean": pytest.approx(statistics.fmean(before), rel=1e-12),
        "improvement_mean": pytest.approx(statistics.fmean(gains), rel=1e-9),
        "improved_fraction": statistics.fmean(gain > 0 for gain in gains),
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_stage_writes_the_same_bytes(trained: dict[str, Path], name: str, tmp_path: Path) -> None:
    found = []
    for number, threads in enumerate((1, 2, 3)):
        out = tmp_path / str(number)
        overrides = ("evaluate.episodes=130", f"device.threads={threads}")  # two blocks of environments
        product.run(configuration(name, out, *overrides, source=trained[name]))
        found.append(contents(out, WRITTEN))
        assert sorted(path.name for path in out.iterdir()) == sorted(WRITTEN)
    assert found[0] == found[1] == found[2]
    check_metrics(tmp_path / "0", dict(checkpoint.load(trained[name]).manifest), "held_out", True, 130)


@pytest.mark.parametrize("name", NAMES)
def test_splits_and_sampling(telling: dict[str, Path], name: str, tmp_path: Path) -> None:
    limit, manifest = LONG_LIMIT.get(name, LIMIT), dict(checkpoint.load(telling[name]).manifest)
    for split in ("held_out", "selection"):
        for deterministic in (True, False):
            out = tmp_path / f"{split}-{deterministic}"
            overrides = (f"evaluate.split={split}", f"evaluate.deterministic={str(deterministic).lower()}")
            product.run(configuration(name, out, *overrides, source=telling[name], limit=limit))
            check_metrics(out, manifest, split, deterministic, 5, limit)
    texts = {(folder / "episodes.csv").read_text() for folder in tmp_path.iterdir()}
    assert len(texts) == 4  # neither key is ignored


def test_results_are_not_overwritten(trained: dict[str, Path], tmp_path: Path) -> None:
    config = configuration("cartpole", tmp_path, source=trained["cartpole"])
    product.run(config)
    before = contents(tmp_path, WRITTEN)
    with pytest.raises(UserError, match=r"^out: wanted a folder without results; .* holds metrics\.json already"):
        product.run(dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, episodes=2)))
    assert contents(tmp_path, WRITTEN) == before


def test_the_command(trained: dict[str, Path], tmp_path: Path) -> None:
    """A user's command writes what the stage writes, and its own results stop it the second time."""
    out, line = (
        tmp_path / "out",
        ("env=cartpole", f"env.max_episode_steps={LIMIT}", "evaluate.episodes=5", "device=cpu"),
    )
    rest = ("device.threads=2", "tracking.enabled=false", f"checkpoint={trained['cartpole']}", f"out={out}")
    done = command("evaluate", tmp_path, *line, *rest)
    assert (done.returncode, done.stderr) == (0, "")
    product.run(configuration("cartpole", tmp_path / "same", source=trained["cartpole"]))
    assert contents(out, WRITTEN) == contents(tmp_path / "same", WRITTEN)


def hide(folder: Path, target: Path, place: str) -> None:
    """A copy of a checkpoint with a held-out seed among its training seeds, all hashes made right again."""
    manifest = json.loads((folder / checkpoint.MANIFEST).read_text())
    tensors = load_file(folder / checkpoint.TENSORS)
    if place == "manifest":
        manifest["seeds"]["split"] = "held_out"
    else:
        tensors["env.episode_seed"][2] = seeds.evaluation_seeds("held_out", 2)[1]
    del manifest["manifest_sha256"]
    checkpoint.save(target, tensors, manifest)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("manifest", "to have split 'train'; its manifest has 'held_out'"),
        ("tensors", "expected training episodes of split 'train'; found environment 2 of the checkpoint on "
                    "0x8000000000000001, which is of split 'held_out'"),
    ],
)  # fmt: skip
def test_38_a_held_out_seed_among_the_training_seeds(
    trained: dict[str, Path], tmp_path: Path, place: str, words: str
) -> None:
    hide(trained["cartpole"], tmp_path / "checkpoint", place)
    out = tmp_path / "out"
    files.write(out / "episodes.csv", "mine")
    line = ("env=cartpole", f"env.max_episode_steps={LIMIT}", "tracking.enabled=false", "device=cpu", f"out={out}")
    done = command("evaluate", tmp_path, *line, f"checkpoint={tmp_path / 'checkpoint'}")
    assert done.returncode == 2
    assert done.stderr.startswith("evaluate: seeds: expected ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("episodes.csv", "mine")]


def test_planted_38(trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the proof the evaluation would go through."""
    monkeypatch.setattr(seeds, "prove_training", lambda *_: None)
    hide(trained["cartpole"], tmp_path / "checkpoint", "tensors")
    product.run(configuration("cartpole", tmp_path / "out", source=tmp_path / "checkpoint"))
    assert (tmp_path / "out" / "metrics.json").exists()
