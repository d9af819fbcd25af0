"""The games on grids beside slow and obvious ones, what they promise of mazes, returns and worlds, and planted mistakes."""

import dataclasses
import functools
import itertools
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/reference.py

import reference
from test_planted_dynamics import plant

import envs
from envs import gridmaze, memory, snake, squared
from envs.validation import evaluation_seeds
from envs.vector import StepOutput, empty_output
from kernels.errors import UserError
from pipeline import evaluation, replay

CPU = torch.device("cpu")
RESET, DYNAMICS = 5, 6  # purposes of draws
f = np.float32
Cell = tuple[int, int]
STEPS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, up, left, down


def words(seed: int, step: int, purpose: int, block: int = 0) -> list[int]:
    return [int(word) for word in reference.philox(np.array([step, purpose, block, 0]), seed)]


def choice(n: int, word: int) -> int:
    return word * n >> 32


def walked(cell: Cell, direction: int) -> Cell:
    return cell[0] + STEPS[direction][0], cell[1] + STEPS[direction][1]


def apart(one: Cell, other: Cell) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


# ---------------------------------------------------------------------------------------------------------------------
# Slow games: of a seed; `step` takes an action an agent, and returns their rewards and whether the episode is over
# ---------------------------------------------------------------------------------------------------------------------


class Squared:
    def __init__(self, seed: int) -> None:
        self.place = (5, 5)
        along = [choice(10, word) for word in words(seed, 0, RESET)]
        self.targets: list[Cell | None] = [
            (along[0], 0), (10, along[1]), (10 - along[2], 10), (0, 10 - along[3])
        ]  # fmt: skip
        self.along = along

    def nearest(self) -> int:
        return min((apart(self.place, target) for target in self.targets if target), default=99)

    def step(self, actions: list[int], seed: int, length: int) -> tuple[list[float], bool]:
        before = self.nearest()
        if actions[0]:
            x, y = walked(self.place, actions[0] - 1)
            self.place = min(max(x, 0), 10), min(max(y, 0), 10)
        if self.place in self.targets:
            self.targets = [None if target == self.place else target for target in self.targets]
            self.place = (5, 5)
            return [1.0], not any(self.targets)
        return [f(0.1) * f(before - self.nearest())], False

    def state(self) -> list[list[float]]:
        return [
            [*self.place, *(along if target else 10 for along, target in zip(self.along, self.targets, strict=True))]
        ]

    def observe(self) -> list[list[float]]:
        seen = [(self.place[0] - 5) / 5, (self.place[1] - 5) / 5]
        for target in self.targets:
            there = (target[0] - self.place[0], target[1] - self.place[1]) if target else (0, 0)
            seen += [float(target is not None), there[0] / 10, there[1] / 10]
        return [seen]


class Memory:
    def __init__(self, seed: int) -> None:
        drawn = words(seed, 0, RESET)
        self.symbols = [choice(16, drawn[0]) >> k & 1 for k in range(4)]
        self.speak, self.time = 5 + choice(8, drawn[1]), 0

    def step(self, actions: list[int], seed: int, length: int) -> tuple[list[float], bool]:
        due = self.time - self.speak
        self.time += 1
        if due < 0:
            return [-0.05 if actions[0] else 0.0], False
        return [0.25 if actions[0] == 1 + self.symbols[due] else 0.0], due == 3

    def state(self) -> list[list[float]]:
        return [[self.time, sum(symbol << k for k, symbol in enumerate(self.symbols)), self.speak]]

    def observe(self) -> list[list[float]]:
        shown = self.symbols[self.time] if self.time < 4 else None
        return [[float(shown == 0), float(shown == 1), float(self.speak <= self.time < self.speak + 4)]]


def split_of(walls: set[Cell]) -> int:
    """Of a maze, by the finalizer of SplitMix64."""
    mixed, mask = sum(1 << x + 8 * y for x, y in walls), 2**64 - 1
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return ((mixed ^ mixed >> 31) >> 62) % 3


def way(walls: set[Cell], place: Cell, goal: Cell) -> list[int] | None:
    """The actions of a shortest way, by breadth-first search; None where there is none."""
    found: dict[Cell, list[int]] = {place: []}
    waiting = deque([place])
    while waiting and goal not in found:
        cell = waiting.popleft()
        for action in range(4):
            next_cell = walked(cell, action)
            if next_cell not in found and next_cell not in walls and all(0 <= c < 8 for c in next_cell):
                found[next_cell] = [*found[cell], action]
                waiting.append(next_cell)
    return found.get(goal)


class GridMaze:
    def __init__(self, seed: int) -> None:
        for trial in itertools.count():
            a, b = words(seed, 0, RESET, 2 * trial), words(seed, 0, RESET, 2 * trial + 1)
            bits = a[0] & (a[1] | a[2]) | (a[3] & (b[0] | b[1])) << 32
            self.walls = {(k % 8, k // 8) for k in range(64) if bits >> k & 1}
            self.place, self.goal = ((word >> 26) % 8 for word in b[2:]), ((word >> 29) for word in b[2:])
            (x, goal_x), (y, goal_y) = self.place, self.goal
            self.place, self.goal = (x, y), (goal_x, goal_y)
            if split_of(self.walls) == seed >> 62 and not {self.place, self.goal} & self.walls:
                actions = way(self.walls, self.place, self.goal)
                if actions and len(actions) >= 6:
                    return

    def step(self, actions: list[int], seed: int, length: int) -> tuple[list[float], bool]:
        there = walked(self.place, actions[0])
        if there not in self.walls and all(0 <= c < 8 for c in there):
            self.place = there
        return [0.99 if self.place == self.goal else -0.01], self.place == self.goal

    def state(self) -> list[list[float]]:
        rows = [sum(1 << x for x in range(8) if (x, y) in self.walls) for y in range(8)]
        return [[*self.place, *self.goal, *(rows[y] + 256 * rows[y + 1] for y in (0, 2, 4, 6))]]

    def observe(self) -> list[list[float]]:
        x, y = self.place
        window = [(x + across, y + up) for up in range(-3, 4) for across in range(-3, 4) if across or up]
        seen = [float(cell in self.walls or not all(0 <= c < 8 for c in cell)) for cell in window]
        return [[*seen, (self.goal[0] - x) / 7, (self.goal[1] - y) / 7]]


class Snake:
    def __init__(self, seed: int) -> None:
        self.snakes: list[list[Cell]] = [[] for _ in range(4)]  # from head to tail
        self.food: list[Cell | None] = [None] * 4
        self.place(seed, 0, RESET)

    def taken(self) -> set[Cell]:
        return {cell for pieces in self.snakes for cell in pieces} | {cell for cell in self.food if cell}

    def place(self, seed: int, step: int, purpose: int) -> None:
        for k in range(4):
            for trial in itertools.count():
                if self.snakes[k]:
                    break
                drawn = words(seed, step, purpose, 2 * (4 * trial + k))
                head = choice(11, drawn[0]), choice(11, drawn[1])
                neck = walked(head, drawn[2] >> 30)
                if not {head, neck} & self.taken() and all(0 <= c < 11 for c in neck):
                    self.snakes[k] = [head, neck]
        for k in range(4):
            for trial in itertools.count():
                if self.food[k]:
                    break
                drawn = words(seed, step, purpose, 2 * (4 * trial + k) + 1)
                cell = choice(11, drawn[0]), choice(11, drawn[1])
                if cell not in self.taken():
                    self.food[k] = cell

    @staticmethod
    def heading(pieces: list[Cell]) -> int:
        return STEPS.index((pieces[0][0] - pieces[1][0], pieces[0][1] - pieces[1][1]))

    def step(self, actions: list[int], seed: int, length: int) -> tuple[list[float], bool]:
        for pieces, action in zip(self.snakes, actions, strict=True):
            pieces.insert(0, walked(pieces[0], (self.heading(pieces) + (0, 1, -1)[action]) % 4))
            if pieces[0] not in self.food or len(pieces) > 12:
                pieces.pop()
        heads = [pieces[0] for pieces in self.snakes]
        bodies = {cell for pieces in self.snakes for cell in pieces[1:]}
        bumped = [
            head in bodies or heads.count(head) > 1 or not all(0 <= c < 11 for c in head) for head in heads
        ]  # fmt: skip
        rewards = [-1.0 if hurt else float(head in self.food) for head, hurt in zip(heads, bumped, strict=True)]
        self.food = [None if cell in heads and not bumped[heads.index(cell)] else cell for cell in self.food if cell]
        self.snakes = [[] if hurt else pieces for pieces, hurt in zip(self.snakes, bumped, strict=True)]
        self.place(seed, length, DYNAMICS)
        return rewards, False

    def state(self) -> list[list[float]]:
        rows = []
        for pieces, food in zip(self.snakes, self.food, strict=True):
            ways = [STEPS.index((b[0] - a[0], b[1] - a[1])) for a, b in itertools.pairwise(pieces)]
            assert food is not None
            rows.append([*pieces[0], len(ways), sum(way << 2 * k for k, way in enumerate(ways)), *food])
        return rows

    def observe(self) -> list[list[float]]:
        snakes = {cell for pieces in self.snakes for cell in pieces}
        return [self.seen_by(pieces, snakes) for pieces in self.snakes]

    def seen_by(self, pieces: list[Cell], snakes: set[Cell]) -> list[float]:
        (x, y), ahead = pieces[0], self.heading(pieces)
        (ahead_x, ahead_y), (left_x, left_y) = STEPS[ahead], STEPS[(ahead + 1) % 4]
        window = [
            (x + on * ahead_x + side * left_x, y + on * ahead_y + side * left_y)
            for on in range(-1, 4) for side in range(-2, 3) if on or side
        ]  # fmt: skip
        food = min((cell for cell in self.food if cell), key=lambda cell: apart(cell, (x, y)))
        to_x, to_y = food[0] - x, food[1] - y
        blocked = [float(cell in snakes or not all(0 <= c < 11 for c in cell)) for cell in window]
        way = [(to_x * ahead_x + to_y * ahead_y) / 10, (to_x * left_x + to_y * left_y) / 10]
        return [*blocked, *way, (len(pieces) - 1) / 11]


Game = Squared | Memory | GridMaze | Snake
GAMES: dict[str, type[Game]] = {"gridmaze": GridMaze, "memory": Memory, "snake": Snake, "squared": Squared}


# ---------------------------------------------------------------------------------------------------------------------
# Beside the kernels
# ---------------------------------------------------------------------------------------------------------------------


def good_turns(observation: Tensor, source: np.random.Generator) -> list[int]:
    """For snakes: mostly towards the food where the next cell is free, so that they grow long."""
    actions = []
    for seen in observation.tolist():
        free = [not seen[11], not seen[7], not seen[6]]  # straight on, left, right
        wish = 0 if seen[24] > 0 else 1 if seen[25] > 0 else 2
        options = [action for action in (wish, 0, 1, 2) if free[action]]
        actions.append(options[0] if options and source.random() < 0.97 else int(source.integers(3)))
    return actions


def check(name: str, worlds: int = 6, steps: int = 120) -> list[float]:
    """Plays worlds beside their slow games; the lengths of what was played, as the state has it."""
    spec = envs.spec(name, 60)
    N, source = worlds * spec.agents, np.random.default_rng(1)
    env, out = envs.make(spec, N, 1, CPU), empty_output(spec, N, CPU)
    env.reset(out.observation)

    def begun(world: int) -> Game:
        return GAMES[name](int(env.state()["episode_seed"][world * spec.agents]))

    games, rows = [begun(world) for world in range(worlds)], []
    seen = out.observation
    for _ in range(steps):
        seeds = env.state()["episode_seed"].tolist()[:: spec.agents]
        ages = (env.state()["episode_length"][:: spec.agents] + 1).tolist()
        assert isinstance(spec.action, envs.Discrete)
        actions = good_turns(seen, source) if name == "snake" else source.integers(spec.action.n, size=N).tolist()
        env.step(torch.tensor(actions, dtype=torch.int32), out)
        for world, game in enumerate(games):
            own = slice(world * spec.agents, (world + 1) * spec.agents)
            rewards, over = game.step(actions[own], seeds[world], ages[world])
            np.testing.assert_array_equal(out.reward[own], np.array(rewards, dtype=f))
            np.testing.assert_array_equal(out.terminated[own], over)
            np.testing.assert_allclose(out.final_observation[own], np.array(game.observe(), dtype=f), rtol=0, atol=1e-7)
            if over or ages[world] == 60:
                games[world] = game = begun(world)
                np.testing.assert_allclose(out.observation[own], np.array(game.observe(), dtype=f), rtol=0, atol=1e-7)
            state = env.state()["state"][:, own].T.numpy()
            np.testing.assert_array_equal(state, np.array(game.state(), dtype=f))
            rows.append(state[0, 2])
        seen = out.observation
    return rows


@pytest.mark.parametrize("name", GAMES)
def test_steps_are_the_slow_games(name: str) -> None:
    third = check(name)
    if name == "snake":
        assert min(third) == 1  # newly born, and
        assert max(third) == 11  # as long as they come


MISTAKES: dict[str, dict[str, tuple[str, str]]] = {
    "gridmaze": {
        "the window is off by one": ("7u << (EDGE + 1 + REACH)) >> x", "7u << (EDGE + 1 + REACH)) >> (x + 1)"),
        "walls are walked through": ("state[0] = wall ? state[0] : x;", "state[0] = x;"),
    },
    "memory": {
        "the symbols are asked for from the last one on": ("is_b(state, said)", "is_b(state, 3 - said)"),
        "speaking early is free": ("!speak && action[0] != 0 ? -0.05f : 0.0f", "0.0f"),
    },
    "snake": {
        "tails never move on": ("snake.segments += ate && ", "snake.segments += "),
        "heads may meet": ("other != agent && ", "other > agent && "),
        "a turn to the other side": ("action[agent] == 1 ? 1u : action[agent] == 2 ? 3u", "action[agent] == 2 ? 1u : action[agent] == 1 ? 3u"),
    },
    "squared": {
        "one stays where the target was": ("state[1] = hit ? (float)MIDDLE : state[1];", ""),
        "the way counts on a hit": ("hit ? 1.0f : 0.1f *", "0.1f *"),
    },
}  # fmt: skip
START: dict[str, tuple[str, str]] = {
    "gridmaze": ("split_of(walls) != split || ", ""),
    "memory": ("choice(LAST - FIRST + 1, bits.word[1])", "choice(LAST - FIRST, bits.word[1])"),
    "snake": ("taken.has(back_x, back_y) || ", ""),
    "squared": ("choice(EDGE, bits.word[side])", "choice(EDGE, bits.word[0])"),
}


@pytest.mark.parametrize(("name", "mistake"), [(name, mistake) for name in MISTAKES for mistake in MISTAKES[name]])
def test_a_mistake_in_the_step_is_found(
    name: str, mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, tmp_path, name, *MISTAKES[name][mistake])
    with pytest.raises(AssertionError, match="Arrays are not equal|Not equal to tolerance"):
        check(name)


# ---------------------------------------------------------------------------------------------------------------------
# Starts and promises
# ---------------------------------------------------------------------------------------------------------------------


def started(name: str, seeds: Tensor) -> tuple[envs.VectorEnv, StepOutput]:
    spec = envs.spec(name)
    N = len(seeds) * spec.agents
    env, out = envs.make(spec, N, 1, CPU), empty_output(spec, N, CPU)
    env.reset(out.observation, seeds.repeat_interleave(spec.agents))
    return env, out


def state_of(env: envs.VectorEnv) -> np.ndarray:
    """(N, S)."""
    return env.state()["state"].T.numpy().copy()


def check_starts(name: str) -> None:
    seeds = torch.cat([evaluation_seeds(split, 40) for split in (0, 1, 2)])
    found = state_of(started(name, seeds)[0])
    wanted = [row for seed in seeds.tolist() for row in GAMES[name](seed & 2**64 - 1).state()]
    np.testing.assert_array_equal(found, np.array(wanted, dtype=f))


@pytest.mark.parametrize("name", GAMES)
def test_starts_are_the_slow_games(name: str) -> None:
    check_starts(name)


@pytest.mark.parametrize("name", START)
def test_a_mistake_in_the_start_is_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, name, *START[name])
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        check_starts(name)


def walls_of(state: np.ndarray) -> set[Cell]:
    return {(int(x), int(y)) for y, x in np.argwhere(gridmaze.walls(state))}


def test_no_held_out_maze_is_one_of_training() -> None:
    """Each maze's own hash names the split of its seed, for thousands of seeds of each."""
    for split in (0, 1, 2):
        mazes = state_of(started("gridmaze", evaluation_seeds(split, 2000))[0])
        assert {split_of(walls_of(state)) for state in mazes} == {split}
        assert len({state[4:].tobytes() for state in mazes}) == 2000


def test_every_maze_has_a_way_and_the_shortest_earns_the_best_return() -> None:
    seeds = evaluation_seeds(2, 500)
    env, out = started("gridmaze", seeds)
    ways = [
        way(walls_of(state), (int(state[0]), int(state[1])), (int(state[2]), int(state[3]))) for state in state_of(env)
    ]
    lengths = [len(found) for found in ways if found]
    assert len(lengths) == len(seeds)
    assert min(lengths) == 6
    returns = torch.zeros(len(seeds))
    for step in range(max(lengths)):
        env.step(torch.tensor([(found or [])[step] if step < len(found or []) else 0 for found in ways]).int(), out)
        ending = torch.tensor([length == step + 1 for length in lengths])
        assert bool(out.terminated[ending].all())
        returns[ending] = out.episode_return[ending]
    torch.testing.assert_close(returns, torch.tensor([1 - 0.01 * length for length in lengths]), rtol=0, atol=1e-6)


def test_whoever_walks_to_the_nearest_target_earns_the_best_return() -> None:
    seeds = evaluation_seeds(2, 200)
    env, out = started("squared", seeds)
    best = [sum(1 + 0.1 * (apart((5, 5), target) - 1) for target in Squared(s & 2**64 - 1).targets if target)
            for s in seeds.tolist()]  # fmt: skip
    returns = torch.full((len(seeds),), float("nan"))
    for _ in range(41):
        ways = out.observation[:, 2:].view(-1, 4, 3)
        steps = torch.where(ways[..., 0] == 1, ways[..., 1:].abs().sum(-1), 99.0)
        to_x, to_y = ways[torch.arange(len(seeds)), steps.argmin(1), 1:].T
        action = torch.where(to_x > 0, 1, torch.where(to_x < 0, 3, torch.where(to_y > 0, 2, 4)))
        env.step(action.int(), out)
        ended = out.terminated.bool() & returns.isnan()
        returns[ended] = out.episode_return[ended]
    torch.testing.assert_close(returns, torch.tensor(best), rtol=0, atol=1e-5)
    assert 5.6 <= min(best) <= max(best) <= 7.6


def remembered(act: Callable[[list[list[float]]], int], seeds: Tensor) -> Tensor:
    """(E,) The returns of a policy that is told all that an episode showed so far."""
    env, out = started("memory", seeds)
    told: list[list[list[float]]] = [[] for _ in seeds]
    returns = torch.full((len(seeds),), float("nan"))
    for _ in range(16):
        for history, seen in zip(told, out.observation.tolist(), strict=True):
            history.append(seen)
        env.step(torch.tensor([act(history) for history in told], dtype=torch.int32), out)
        ended = out.terminated.bool() & returns.isnan()
        returns[ended] = out.episode_return[ended]
    return returns


def test_without_memory_half_is_the_best_return_and_with_it_all() -> None:
    """Every policy without memory, on as many episodes of each four symbols."""
    drawn = state_of(started("memory", evaluation_seeds(2, 400))[0])[:, 1]
    places = np.concatenate([np.flatnonzero(drawn == symbols)[:10] for symbols in range(16)])
    assert len(places) == 160
    seeds = evaluation_seeds(2, 400)[torch.from_numpy(places)]
    kinds = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    means = []
    for actions in itertools.product(range(3), repeat=4):
        table = dict(zip(map(tuple, kinds), actions, strict=True))
        means.append(float(remembered(lambda history, table=table: table[tuple(history[-1])], seeds).mean()))
    assert max(means) == pytest.approx(0.5, abs=1e-6)

    def repeat(history: list[list[float]]) -> int:
        return 1 + int(history[sum(seen[2] for seen in history[:-1]).__int__()][1]) if history[-1][2] else 0

    assert bool((remembered(repeat, seeds) == 1.0).all())


def test_masked_cartpole_is_cartpole_seen_in_part() -> None:
    masked, whole = ((*started(name, evaluation_seeds(2, 20)),) for name in ("cartpole_masked", "cartpole"))
    for step in range(60):
        for env, out in (masked, whole):
            env.step(torch.full((20,), step // 3 % 2, dtype=torch.int32), out)
        assert torch.equal(masked[1].final_observation, whole[1].final_observation[:, [0, 2]])
        assert torch.equal(masked[1].terminated, whole[1].terminated)
        assert torch.equal(masked[0].state()["state"], whole[0].state()["state"])
    assert envs.spec("cartpole_masked").sha256() != envs.spec("cartpole").sha256()


def test_an_included_header_is_part_of_what_is_hashed(tmp_path: Path) -> None:
    for name in ("cartpole_masked.h", "cartpole.h"):
        (tmp_path / name).write_text((envs.spec("cartpole").header.with_name(name)).read_text())
    spec = dataclasses.replace(envs.spec("cartpole_masked"), header=tmp_path / "cartpole_masked.h")
    assert spec.sha256() == envs.spec("cartpole_masked").sha256()
    (tmp_path / "cartpole.h").write_text((tmp_path / "cartpole.h").read_text().replace("9.8f", "9.9f"))
    assert spec.sha256() != envs.spec("cartpole_masked").sha256()


# ---------------------------------------------------------------------------------------------------------------------
# Worlds
# ---------------------------------------------------------------------------------------------------------------------


def test_whole_worlds_are_wanted() -> None:
    spec = envs.spec("snake")
    message = "num_envs counts agents, and snake has 4 in a world; got 10, which is no multiple of 4: take 8"
    with pytest.raises(UserError, match=message):
        envs.make(spec, 10, 1, CPU)
    with pytest.raises(UserError, match="got 3, which is no multiple of 4: take 4"):
        envs.make(spec, 3, 1, CPU)
    with pytest.raises(ValueError, match="the 4 rows of a world must have the same episode seed"):
        envs.make(spec, 8, 1, CPU).reset(torch.empty(8, spec.observation_size), torch.arange(8))


def test_an_action_that_is_none_spoils_its_world_alone_until_the_limit() -> None:
    spec = envs.spec("snake", 5)
    env, out = envs.make(spec, 8, 1, CPU), empty_output(spec, 8, CPU)
    env.reset(out.observation)
    for step in range(1, 6):
        actions = torch.zeros(8, dtype=torch.int32)
        actions[1] = 3 if step == 1 else 0
        env.step(actions, out)
        assert bool(out.reward[:4].isnan().all()) and bool(out.final_observation[:4].isnan().all())
        assert bool(out.reward[4:].isfinite().all()) and bool(out.final_observation[4:].isfinite().all())
        assert out.truncated.tolist() == 8 * [step == 5]
    assert bool(out.observation.isfinite().all())


class Turns:
    """A policy of which an agent's action depends on its observation alone."""

    def __init__(self, size: int) -> None:
        self.weights = torch.linspace(-1.0, 1.0, 3 * size).view(size, 3).sin()

    def distribution(self, observation: Tensor) -> Tensor:
        return (observation[:, :, None] * self.weights).sum(1)

    def value(self, observation: Tensor) -> Tensor:
        return observation[:, 0]


@pytest.mark.parametrize("deterministic", [True, False])
def test_an_episode_is_a_world_its_return_the_mean_and_it_is_replayed_alone(deterministic: bool) -> None:
    spec, seeds = envs.spec("snake", 40), evaluation_seeds(2, 5)
    policy = Turns(spec.observation_size)
    played = evaluation.play(policy, spec, seeds, deterministic, CPU)
    assert played.returns.shape == played.lengths.shape == (5,)
    for row in range(5):
        steps = list(replay.play(policy, spec, seeds, row, deterministic))
        rewards = torch.stack([step.out.reward for step in steps])  # (40, 4)
        assert rewards.shape == (40, 4)
        assert float(rewards.sum(0).mean()) == float(played.returns[row])
    text = replay.episode_csv(spec, steps).splitlines()
    assert text[0].startswith("step,agent,observation_0,")
    assert len(text) == 1 + 4 * 41
    assert [line.split(",")[:2] for line in text[1:6]] == [["1", "0"], ["1", "1"], ["1", "2"], ["1", "3"], ["2", "0"]]


# ---------------------------------------------------------------------------------------------------------------------
# Pictures
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [gridmaze, memory, snake, squared], ids=lambda module: module.SPEC.name)
def test_a_picture_shows_the_state(module: object) -> None:
    """Another picture for every number of the state that can be seen."""
    spec, render = module.SPEC, functools.partial(module.render)  # type: ignore[attr-defined]
    env, _ = started(spec.name, evaluation_seeds(1, 8))
    states = state_of(env).reshape(8, -1)
    pictures = [render(state) for state in states]
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.shape == pictures[0].shape
        assert 320 <= picture.shape[1] <= 640
        assert picture.shape[2] == 3
    assert len({picture.tobytes() for picture in pictures}) >= 2
    assert any(not np.array_equal(render(states[0]), render(states[0] + one)) for one in np.eye(len(states[0]))[:2])
