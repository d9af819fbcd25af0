"""EnvPool through the adapter, beside EnvPool itself: a pool for each environment, with its autoreset a step late."""
# ruff: noqa: E501  # a row of a table is read as one line

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

envpool = pytest.importorskip("envpool")

import envs  # noqa: E402
from envs import envpool_adapter, host, validation  # noqa: E402
from envs.envpool_adapter import EnvPoolSpec  # noqa: E402
from envs.validation import Plan  # noqa: E402
from envs.vector import StepOutput, empty_output  # noqa: E402
from kernels import compiler  # noqa: E402
from kernels.episode_seeds import episode_seeds, host_seeds  # noqa: E402
from kernels.errors import UserError  # noqa: E402
from pipeline import checkpoint, evaluate, provenance, replay, seeds, train  # noqa: E402
from pipeline import validate as stage  # noqa: E402
from tests.training import Pair, contents, faulty, small  # noqa: E402

CPU = torch.device("cpu")
COUNT, STEPS, RUN_SEED = 5, 60, 3
CARTPOLE, CHEETAH = "CartPole-v1", "HalfCheetah-v4"


def spec(id: str, limit: int | None = None, **options: Any) -> EnvPoolSpec:
    found = envs.spec("envpool", limit, id=id, **options)
    assert isinstance(found, EnvPoolSpec)
    return found


def actions(chosen: EnvPoolSpec, steps: int = STEPS) -> Tensor:
    return validation.random_actions(Plan(chosen, COUNT, steps, RUN_SEED))


def play(chosen: EnvPoolSpec, run_seed: int = RUN_SEED, given: Tensor | None = None) -> tuple[Tensor, StepOutput]:
    """The first observations (N, D), and all that was written (T, N, ...) into poisoned buffers."""
    env, first = host.HostVectorEnv(chosen, COUNT, run_seed, CPU), torch.empty(COUNT, chosen.observation_size)
    env.reset(first, given)
    written = []
    for action in actions(chosen):
        out = empty_output(chosen, COUNT, CPU)
        for values in out:
            values.view(torch.uint8).fill_(255)
        env.step(action, out)
        written.append(out)
    return first, StepOutput(*map(torch.stack, zip(*written, strict=True)))


class Row(NamedTuple):
    """What one step of one environment is to write."""

    observation: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    final_observation: np.ndarray
    length: int


def by_itself(chosen: EnvPoolSpec, seed: int, row: int) -> tuple[np.ndarray, list[Row]]:
    """One environment in EnvPool's own words: after an end its next step is a reset, whose action it ignores.

    Its time limit is EnvPool's too; where that hides a death, a pool without a limit tells.
    """
    pools = [
        envpool.make_gymnasium(chosen.id, num_envs=1, seed=seed, max_episode_steps=limit)
        for limit in (chosen.max_episode_steps, 10**6)
    ]
    (first, _), _ = (pool.reset() for pool in pools)
    rows, length, given = [], 0, actions(chosen)[:, row].numpy()
    for action in given:
        (observation, reward, terminated, truncated, _), free = (pool.step(action[None]) for pool in pools)
        length += 1
        dead, over, seen, final = bool(free[2][0]), bool(truncated[0]), observation[0], observation[0]
        assert bool(terminated[0]) == (dead and not over)
        if dead or over:
            seen = pools[0].step(action[None])[0][0]
            pools[1].reset()
        rows.append(Row(seen, float(reward[0]), dead, over, final, length))
        length = 0 if dead or over else length
    return first[0], rows


def limit_at_a_death() -> int:
    """The steps of the first episode of environment 0 in CartPole: as a time limit it falls on a death."""
    _, out = play(spec(CARTPOLE))
    return int(out.episode_length[:, 0][out.terminated[:, 0] == 1][0])


def check_contract(chosen: EnvPoolSpec) -> StepOutput:
    """Every array of every step, and what has to follow from it."""
    first, out = play(chosen)
    told = host_seeds(episode_seeds(RUN_SEED, torch.arange(COUNT, dtype=torch.int32), torch.zeros(COUNT).long()))
    for i in range(COUNT):
        begun, rows = by_itself(chosen, int(told[i]), i)
        assert np.array_equal(begun.astype(np.float32), first[i])
        total = 0.0
        for t, row in enumerate(rows):
            total = row.reward + (total if row.length > 1 else 0.0)
            assert np.array_equal(row.observation.astype(np.float32), out.observation[t, i]), (t, i)
            assert np.array_equal(row.final_observation.astype(np.float32), out.final_observation[t, i]), (t, i)
            assert out.reward[t, i] == np.float32(row.reward)
            assert (bool(out.terminated[t, i]), bool(out.truncated[t, i])) == (row.terminated, row.truncated), (t, i)
            assert int(out.episode_length[t, i]) == row.length
            assert float(out.episode_return[t, i]) == np.float32(total)
    return out


def test_a_pool_with_deaths_plays_as_its_environments_by_themselves() -> None:
    """Deaths, truncations and both on one step."""
    out = check_contract(spec(CARTPOLE, limit_at_a_death()))
    dead, over = out.terminated.bool(), out.truncated.bool()
    assert (dead & ~over).any()
    assert (over & ~dead).any()
    assert (dead & over).any()


def test_one_that_never_dies_is_truncated_alone() -> None:
    out = check_contract(spec(CHEETAH, 7))
    assert not out.terminated.any()
    assert (out.truncated.sum(0) == STEPS // 7).all()


@pytest.mark.parametrize(
    "pair",
    [
        ("board.observation[info[\"env_id\"]] = first", "board.observation[: len(ended)] = first"),
        ("board.observation[info[\"env_id\"]] = first", "pass"),
        ("board.observation[info[\"env_id\"]] = first", "board.observation[ended] = board.final_observation[ended] = first"),
        ("            observation, info = pool.reset(ended)\n", "            info = {'env_id': ended}\n            observation = board.observation[ended]\n"),
        ("spec.max_episode_steps + 1,", "spec.max_episode_steps,"),
        ("truncated | (self._lengths >= self._spec.max_episode_steps)", "truncated"),
        ("        board.terminated[:] = terminated\n", "        board.terminated[:] = terminated | (self._lengths >= self._spec.max_episode_steps)\n"),
        ("self._totals[ended], self._lengths[ended] = 0.0, 0", "self._lengths[ended] = 0"),
        ("self._totals += reward", "self._totals = reward.astype(float)"),
        ("board.final_observation[:] = board.observation", "pass"),
        ("seed=list(seeds)", "seed=seeds[0]"),
    ],
    ids=["rows in a wrong order", "reset unseen", "final overwritten", "5 the step of a reset counts", "limit hides a death",
         "no limit", "truncation a death", "return goes on", "return of one step", "no final", "one seed for all"],
)  # fmt: skip
def test_planted_in_the_contract(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = spec(CARTPOLE, limit_at_a_death())
    monkeypatch.setattr(host, "Pool", faulty(envpool_adapter, pair).Pool)
    with pytest.raises(AssertionError):
        check_contract(chosen)


# ---------------------------------------------------------------------------------------------------------------------
# Seeds
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [CARTPOLE, CHEETAH])
def test_threads_change_no_bit_and_another_run_seed_does(id: str) -> None:
    one, two = (play(spec(id, 9, threads=threads)) for threads in (1, 3))
    assert torch.equal(one[0], two[0])
    assert all(map(torch.equal, one[1], two[1]))
    assert spec(id, 9, threads=1).sha256() == spec(id, 9, threads=3).sha256()
    other, _ = play(spec(id, 9), RUN_SEED + 1)
    assert (other != one[0]).any(1).all()


def check_fresh(module: ModuleType = envpool_adapter) -> None:
    """Whatever was played before, a list of seeds begins the same episodes: those of a pool made with them."""
    chosen, listed = spec(CHEETAH, 9), seeds.evaluation_seeds("held_out", COUNT)
    env, out = host.HostVectorEnv(chosen, COUNT, RUN_SEED, CPU), empty_output(chosen, COUNT, CPU)
    wanted, _ = envpool.make_gymnasium(CHEETAH, num_envs=COUNT, seed=host_seeds(listed).tolist()).reset()
    for _ in range(2):
        env.reset(out.observation, listed)
        assert np.array_equal(wanted.astype(np.float32), out.observation)
        env.step(actions(chosen)[0], out)
    env.reset(out.observation)
    assert (out.observation.numpy() != wanted.astype(np.float32)).any(1).all()


def test_seeds_make_a_fresh_pool() -> None:
    check_fresh()


def test_planted_a_pool_that_is_reset_only(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ("        self._pool, space", "        if self._pool: return self._pool.reset()\n        self._pool, space")
    monkeypatch.setattr(host, "Pool", faulty(envpool_adapter, pair).Pool)
    with pytest.raises(AssertionError):
        check_fresh()


# ---------------------------------------------------------------------------------------------------------------------
# Spaces
# ---------------------------------------------------------------------------------------------------------------------


def test_observations_of_each_kind_are_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices one-hot, bytes over 255, the parts of a dict one after the other: beside the pool's own."""
    for id in ("FrozenLake-v1", "Pong-v5", "AcrobotSwingup-v1"):
        chosen = spec(id, 20)
        env, out = host.HostVectorEnv(chosen, 3, 1, CPU), empty_output(chosen, 3, CPU)
        made = []
        monkeypatch.setattr(envpool_adapter, "flattener", lambda space, made=made: lambda *pair: made.append(pair))
        env.reset(out.observation)  # what the pool answers, caught before it is laid out
        monkeypatch.undo()
        env.reset(out.observation)
        answer = made[0][0]
        if id == "FrozenLake-v1":
            wanted = np.eye(16)[answer]
        elif id == "Pong-v5":
            wanted = answer.reshape(3, -1) / np.float32(255)
        else:
            assert list(answer) == ["orientations", "velocity"]
            wanted = np.concatenate([answer["orientations"], answer["velocity"]], axis=1)
        assert np.array_equal(wanted.astype(np.float32), out.observation), id
        env.step(actions(chosen)[0, :3].contiguous(), out)
        assert out.observation.isfinite().all()


def test_a_bound_that_means_none() -> None:
    """These declare the smallest number above zero for the lowest of observations that are below zero as well."""
    for id, size in (("LunarLander-v3", 8), ("AcrobotSwingup-v1", 6)):
        assert spec(id).observation_low == (-math.inf,) * size


def test_a_choice_that_is_none_never_reaches_the_pool() -> None:
    chosen = spec(CARTPOLE)
    env, out = host.HostVectorEnv(chosen, 3, 1, CPU), empty_output(chosen, 3, CPU)
    env.reset(out.observation)
    with pytest.raises(UserError, match=r"wanted actions of CartPole-v1 from 0 and below 2; environment 1 got \[-1\]"):
        env.step(torch.tensor([0, -1, 1], dtype=torch.int32), out)


@pytest.mark.parametrize(
    ("id", "options", "text"),
    [
        ("HalfChetah-v4", {}, r"env\.id: wanted an id that EnvPool knows; got 'HalfChetah-v4', nearest: HalfCheetah-v4, .*"),
        ("Blackjack-v1", {}, r"env\.max_episode_steps: wanted a time limit, steps; Blackjack-v1 has none of its own, .*"),
        ("Go9x9-v1", {}, r"env\.id: wanted an environment of one player; Go9x9-v1 has up to 2\. Choose another"),
        ("Cleaner-v0", {}, r"env\.id: wanted actions of .* Cleaner-v0 has Box\(.*int32\)\. Choose another of EnvPool's, .*"),
        (CARTPOLE, {"kwargs": {"num_envs": 4}}, r"env\.kwargs: wanted what CartPole-v1 alone takes; got num_envs, .*"),
        (CARTPOLE, {"kwargs": {"wind": 4}}, r"env\.id, env\.kwargs: wanted CartPole-v1 to be made with {'wind': 4}; .*"),
    ],
)  # fmt: skip
def test_what_is_refused(id: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=f"^{text}$"):
        spec(id, **options)


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    text = r"^env=envpool: wanted the package envpool; envpool is not installed\. Install it with `pip install 'lockst"
    with pytest.raises(UserError, match=text):
        spec(CARTPOLE)


# ---------------------------------------------------------------------------------------------------------------------
# The validator
# ---------------------------------------------------------------------------------------------------------------------


def checks(id: str) -> dict[str, validation.Check]:
    plan = Plan(spec(id, 25), 4, 32, 1)
    return {each.name: each for each in stage.check(lambda spec, *rest: envs.make(spec, *rest, CPU), plan)}


@pytest.mark.parametrize("id", [CARTPOLE, CHEETAH])
def test_the_validator_passes_what_is_sound(id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it is given no number
    found = checks(id)
    assert {each.verdict for each in found.values()} == {"pass", "not applicable"}
    assert [name for name, each in found.items() if each.verdict == "not applicable"] == ["reseeding"]
    assert found["reseeding"].evidence == {"reason": "seeds are taken at creation, never at a reset"}
    assert found["resets"].evidence["first_observations"].startswith("not compared")
    assert found["carryover"].evidence["episodes"] == 4
    assert len(found) == len(validation.CHECKS) + 3


@pytest.mark.parametrize(
    ("pair", "name", "verdict"),
    [
        (("            observation, info = pool.reset(ended)\n", "            info = {'env_id': ended}\n            observation = board.observation[ended]\n"), "resets", "fail"),
        (("board.observation[info[\"env_id\"]] = first", "board.observation[ended] = board.final_observation[ended] = first"), "resets", "fail"),
        (("spec.max_episode_steps + 1,", "spec.max_episode_steps,"), "time_limit", "fail"),
        (("board.observation[info[\"env_id\"]] = first", "board.observation[info[\"env_id\"]] = first + 0.01 * board.action[ended]"), "carryover", "warning"),
        (("seed=list(seeds)", "seed=seeds[0]"), "alone", "fail"),
    ],
    ids=["EnvPool's own autoreset", "final overwritten", "limit hides a death", "a start that depends on the last action", "one seed for all"],
)  # fmt: skip
def test_the_validator_names_what_is_broken(
    pair: Pair, name: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "Pool", faulty(envpool_adapter, pair).Pool)
    assert checks(CARTPOLE)[name].verdict == verdict


# ---------------------------------------------------------------------------------------------------------------------
# The pipeline
# ---------------------------------------------------------------------------------------------------------------------

TRAINING = ("env=envpool", f"env.id={CARTPOLE}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small training, normalized, evaluated on five held-out episodes."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "collect", lambda device: {})
        patch.setattr(provenance, "write", lambda name, facts: None)
        torch.set_num_threads(1)
        compiler.set_threads(1)
        train.run(small(folder, *TRAINING, "env.threads=1"))
        evaluate.run(small(folder / "evaluation", *TRAINING, f"checkpoint={folder}"))
        yield folder


def test_a_training_says_what_it_is_and_repeats(trained: Path, tmp_path: Path) -> None:
    manifest = checkpoint.load(trained).manifest
    assert manifest["path"] == "hosted"
    assert manifest["env_spec"]["seedable"] == "at creation"
    assert manifest["env_spec"]["versions"]["envpool"] == envpool.__version__
    assert "threads" not in manifest["config"]["env"]
    train.run(small(tmp_path, *TRAINING, "env.threads=2"))
    assert contents(tmp_path) == contents(trained)


def test_an_episode_of_the_evaluation_is_replayed(trained: Path, tmp_path: Path) -> None:
    """Alone in a pool, it is as long and pays as much as among the others."""
    replay.run(small(tmp_path, *TRAINING, f"checkpoint={trained}", "replay.episode=3"))
    rows = [line.split(",") for line in (trained / "evaluation" / "episodes.csv").read_text().splitlines()]
    wanted = next(row for row in rows if row[:2] == ["final", "3"])
    steps = (tmp_path / "episode.csv").read_text().splitlines()[1:-1]
    assert len(steps) == int(wanted[3])
    assert sum(float(step.split(",")[-1]) for step in steps) == float(wanted[2])


def test_only_first_episodes_of_a_training_are_replayed(trained: Path, tmp_path: Path) -> None:
    line = (*TRAINING, f"checkpoint={trained}", "replay.split=train", "replay.environment=2")
    replay.run(small(tmp_path, *line, "replay.episode=0"))
    assert (tmp_path / "episode.csv").exists()
    with pytest.raises(UserError, match=r"^replay\.episode: wanted 0 of a training on CartPole-v1, .*; got 1$"):
        replay.run(small(tmp_path / "other", *line, "replay.episode=1"))


def test_the_other_adapters_checkpoint_is_refused(trained: Path, tmp_path: Path) -> None:
    overrides = ("env=gymnasium", f"env.id={CARTPOLE}", "env.workers=0")
    with pytest.raises(
        UserError, match=r"^checkpoint: wanted one of CartPole with .*Train it again on this environment$"
    ):
        evaluate.run(small(tmp_path, *overrides, f"checkpoint={trained}"))
