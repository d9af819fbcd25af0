"""Episode seeds: splits that cannot meet, evaluation lists that everyone shares, and proofs that see an intruder."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import reference
import torch
from torch import Tensor
from training import faulty

import envs
from envs.vector import empty_output
from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError
from pipeline import seeds as product

CPU = torch.device("cpu")
QUARTER = 1 << 62


def unsigned(values: Tensor) -> list[int]:
    return [value & (1 << 64) - 1 for value in values.tolist()]


def test_a_split_is_a_quarter_of_all_seeds() -> None:
    for index, split in enumerate(("train", "selection", "held_out", "invalid")):
        for seed in (index * QUARTER, (index + 1) * QUARTER - 1):
            assert product.split_of(seed) == split
            assert product.split_of(seed - (1 << 64) if seed >> 63 else seed) == split  # as int64 carries it


def check_evaluation(module: ModuleType = product) -> None:
    assert unsigned(module.evaluation_seeds("selection", 3)) == [QUARTER, QUARTER + 1, QUARTER + 2]
    assert unsigned(module.evaluation_seeds("held_out", 3)) == [2 * QUARTER, 2 * QUARTER + 1, 2 * QUARTER + 2]
    for split in ("selection", "held_out"):
        listed = module.evaluation_seeds(split, 1000)
        assert listed.dtype == torch.int64
        assert {module.split_of(seed) for seed in listed.tolist()} == {split}
        assert torch.equal(module.evaluation_seeds(split, 10), listed[:10])  # a longer list begins like a shorter one


def test_evaluation_seeds_are_the_plain_index() -> None:
    check_evaluation()


@pytest.mark.parametrize(
    "pair",
    [
        ("| (top - (1 << 64) if top >= 1 << 63 else top)", "| 0"),
        ("SPLITS.index(split) << _SPLIT_SHIFT", "1 << _SPLIT_SHIFT"),
        ("torch.arange(episodes, dtype=torch.int64)", "torch.arange(1, episodes + 1, dtype=torch.int64)"),
    ],
    ids=["38 training seeds", "one split for both", "from one"],
)
def test_planted_evaluation(pair: tuple[str, str]) -> None:
    with pytest.raises(AssertionError):
        check_evaluation(faulty(product, pair))


# ---------------------------------------------------------------------------------------------------------------------
# Training seeds
# ---------------------------------------------------------------------------------------------------------------------

RUNS, ENVIRONMENTS, EPISODES = (0, 1, 2, 3, 10, 2**32, 2**40), 16, 50


def check_distinct(seeds_of: Callable[[int, Tensor, Tensor], Tensor]) -> None:
    """No episode of adjacent runs, environments or numbers has the seed of another one."""
    environment = torch.arange(ENVIRONMENTS, dtype=torch.int32).repeat_interleave(EPISODES)
    episode = torch.arange(EPISODES, dtype=torch.int64).repeat(ENVIRONMENTS)
    found = [seed for run in RUNS for seed in seeds_of(run, environment, episode).tolist()]
    assert len(set(found)) == len(found)
    assert {product.split_of(seed) for seed in found} == {"train"}
    for run in RUNS[:2]:
        wanted = reference.episode_seeds(environment.numpy(), episode.numpy(), run)
        assert np.array_equal(seeds_of(run, environment, episode).numpy().astype(np.uint64), wanted)


def test_training_seeds_are_distinct() -> None:
    check_distinct(episode_seeds)


@pytest.mark.parametrize(
    "seeds_of",
    [
        lambda run, environment, episode: run + environment + 1000 * episode,
        lambda run, environment, episode: 1000 * environment + episode,
        lambda run, environment, episode: 1000 * run + episode,
        lambda run, environment, episode: 1000 * run + environment + 0 * episode,
        lambda run, environment, episode: episode_seeds(run, environment, episode) | 1 << 62,
    ],
    ids=["35 seed + i", "36 run seed ignored", "37 environments alike", "39 episodes alike", "38 another split"],
)
def test_planted_training_seeds(seeds_of: Callable[[int, Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(AssertionError):
        check_distinct(seeds_of)


def played(run_seed: int, num_envs: int = 6, steps: int = 120) -> tuple[set[int], dict[str, Tensor]]:
    """The seeds of all episodes that random training plays, and the environments' state at its end."""
    spec = envs.spec("cartpole", 15)
    env, out = envs.make(spec, num_envs, run_seed, CPU), empty_output(spec, num_envs, CPU)
    env.reset(out.observation)
    generator, found = torch.Generator().manual_seed(1), set(env.state()["episode_seed"].tolist())
    for _ in range(steps):
        env.step(torch.randint(2, (num_envs,), dtype=torch.int32, generator=generator), out)
        found |= set(env.state()["episode_seed"].tolist())
    return found, env.state()


def test_training_plays_the_closed_form() -> None:
    """Every episode that environments play is one that the manifest's closed form counts, and of split train."""
    (one, state), (two, _) = played(1), played(2)
    assert not one & two  # adjacent runs share no episode
    index = state["episode_index"]
    form = product.closed_form(1, index)
    assert form == {"run_seed": 1, "split": "train", "environments": 6, "episodes": len(one)}
    listed = [
        seed
        for i, last in enumerate(index.tolist())
        for seed in episode_seeds(1, torch.full((last + 1,), i, dtype=torch.int32), torch.arange(last + 1)).tolist()
    ]
    assert set(listed) == one
    product.prove_training(1, form, {f"env.{name}": tensor for name, tensor in state.items()})


# ---------------------------------------------------------------------------------------------------------------------
# Proofs
# ---------------------------------------------------------------------------------------------------------------------


def check_intruders(module: ModuleType = product) -> None:
    _, state = played(1)
    tensors = {f"env.{name}": tensor for name, tensor in state.items()}
    form = module.closed_form(1, state["episode_index"])

    def refused(changed: dict[str, object], seeds: Tensor, run_seed: int = 1) -> str:
        with pytest.raises(UserError) as error:
            module.prove_training(run_seed, form | changed, {**tensors, "env.episode_seed": seeds})
        return str(error.value)

    own = state["episode_seed"]
    for split in ("held_out", "selection"):
        intruder = own.clone()
        intruder[3] = module.evaluation_seeds(split, 5)[4]
        text = refused({}, intruder)
        number = f"0x{unsigned(intruder)[3]:016x}"
        wanted = (
            f"seeds: expected training episodes of split 'train'; found environment 3 of the checkpoint on {number}, "
        )
        assert text.startswith(wanted + f"which is of split '{split}'")
        assert f"to have split 'train'; its manifest has '{split}'" in refused({"split": split}, own)
    stranger = own.clone()
    stranger[2] += 1
    episode = int(state["episode_index"][2])
    assert f"at seed 0x{unsigned(own)[2]:016x}, by run seed 1 and episode {episode}; found" in refused({}, stranger)
    assert "to have run_seed 2" in refused({}, own, run_seed=2)
    assert "to have run_seed 1; its manifest has 2" in refused({"run_seed": 2}, own)
    assert "to have environments 6; its manifest has 7" in refused({"environments": 7}, own)
    assert "to have episodes" in refused({"episodes": 1}, own)
    with pytest.raises(UserError, match="has None"):
        module.prove_training(1, [], tensors)


def test_38_an_intruder_among_the_training_seeds_is_named() -> None:
    check_intruders()


@pytest.mark.parametrize(
    "pair",
    [
        ('        if split_of(got) != "train":\n', "        if False:\n"),
        (
            '        if got != want:\n            raise UserError(\n                f"seeds: expected env',
            '        if False:\n            raise UserError(\n                f"seeds: expected env',
        ),
        (
            '        if got != want:\n            raise UserError(\n                f"seeds: expected the',
            '        if False:\n            raise UserError(\n                f"seeds: expected the',
        ),
    ],
    ids=["split", "seed", "closed form"],
)
def test_planted_38(pair: tuple[str, str]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_intruders(faulty(product, pair))


def check_split(module: ModuleType = product) -> None:
    for split in ("selection", "held_out"):
        module.prove_split(module.evaluation_seeds(split, 5), split)
        other = module.evaluation_seeds("held_out" if split == "selection" else "selection", 5)
        training = episode_seeds(1, torch.zeros(5, dtype=torch.int32), torch.arange(5))
        for intruder in (other, training):
            listed = module.evaluation_seeds(split, 5)
            listed[4] = intruder[4]
            with pytest.raises(
                UserError, match=rf"^seeds: wanted evaluation episodes of '{split}'; found 0x[0-9a-f]{{16}} of"
            ):
                module.prove_split(listed, split)
    with pytest.raises(UserError):
        module.prove_split(episode_seeds(1, torch.zeros(1, dtype=torch.int32), torch.arange(1)), "train")


def test_an_evaluation_of_another_split_is_named() -> None:
    check_split()


@pytest.mark.parametrize(
    "wrong", ['if split == "train":', "if split_of(seed) != split:", 'if split_of(seed) == "train":']
)
def test_planted_split(wrong: str) -> None:
    with pytest.raises(pytest.fail.Exception):
        check_split(faulty(product, ('if split == "train" or split_of(seed) != split:', wrong)))
