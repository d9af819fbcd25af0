"""Breakout: situations worked by hand, a slow and obvious game beside the kernel, and mistakes that both see."""

import functools
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/reference.py

import reference
from test_planted_dynamics import plant

import envs
from envs.vector import StepOutput, empty_output

CPU = torch.device("cpu")
NOTHING, LEFT, RIGHT = 0, 1, 2
RUN_SEED = 7
ROWS, COLUMNS = 6, 18
WALL = frozenset((row, column) for row in range(ROWS) for column in range(COLUMNS))
PURPOSE_RESET, PURPOSE_DYNAMICS = 5, 6
f = np.float32


@dataclass
class Game:
    """One game in float32: the wall is a set of (row, column)."""

    x: float = 18.0
    y: float = 12.0
    v_x: float = 0.0
    v_y: float = -0.6
    paddle: float = 18.0
    balls: int = 5
    hits: int = 0
    wall: set[tuple[int, int]] = field(default_factory=lambda: set(WALL))

    def state(self) -> list[float]:
        rows = [sum(1 << column for column in range(COLUMNS) if (row, column) in self.wall) for row in range(ROWS)]
        return [self.paddle, self.x, self.y, self.v_x, self.v_y, self.balls, self.hits, *rows]

    def observation(self) -> np.ndarray:
        places = [(f(self.paddle) - f(18)) / f(3), (f(self.x) - f(18)) / f(3), (f(self.y) - f(12)) / f(3)]
        numbers = [f(self.v_x) / f(0.3), f(self.v_y) / f(0.3), f(self.balls) / f(5), f(self.hits) / f(12)]
        return np.array([*places, *numbers, *(float(brick in self.wall) for brick in sorted(WALL))], dtype=f)

    def launch(self, seed: int, step: int, purpose: int) -> None:
        word = reference.philox(np.array([step, purpose, 0, 0]), seed)[0]
        self.x, self.y, self.v_y, self.hits = 18.0, 12.0, f(-0.6), 0
        self.v_x = f(-0.9) + (f(0.9) - f(-0.9)) * f(reference.uniform(word))

    def brick_at(self, x: float, y: float) -> tuple[int, int] | None:
        brick = int(y // 1) - 14, min(int(x // 2), COLUMNS - 1)
        return brick if brick in self.wall else None

    def step(self, action: int, seed: int, length: int) -> tuple[float, bool]:
        """Reward and whether the game is over."""
        self.paddle = min(max(self.paddle + {NOTHING: 0.0, LEFT: -1.5, RIGHT: 1.5}[action], 3.0), 33.0)
        x, y, v_x, v_y = f(self.x) + f(self.v_x), f(self.y) + f(self.v_y), self.v_x, self.v_y
        if x < 0:
            x, v_x = -x, -v_x
        if x > 36:
            x, v_x = f(72) - x, -v_x
        if y > 24:
            y, v_y = f(48) - y, -v_y

        for brick, turn_x, turn_y in (
            (self.brick_at(self.x, y), 1, -1),
            (self.brick_at(x, self.y), -1, 1),
            (self.brick_at(x, y), -1, -1),
        ):
            if brick:
                self.wall.remove(brick)
                self.v_x, self.v_y = turn_x * self.v_x, turn_y * self.v_y
                return {0: 1.0, 1: 1.0, 2: 4.0, 3: 4.0, 4: 7.0, 5: 7.0}[brick[0]], not self.wall

        self.x, self.y, self.v_x, self.v_y = x, y, v_x, v_y
        if y >= 0:
            return 0.0, False
        offset = (f(x) - f(self.paddle)) / f(3)
        if abs(offset) <= 1:
            self.hits = min(self.hits + 1, 12)
            speed = f(0.9) if self.hits == 12 else f(0.75) if self.hits >= 4 else f(0.6)
            self.y, self.v_x, self.v_y = -y, f(1.5) * speed * offset, speed
            return 0.0, False
        self.balls -= 1
        self.y = f(0)
        if self.balls:
            self.launch(seed, length, PURPOSE_DYNAMICS)
        return 0.0, self.balls == 0


def after(states: list[list[float]], actions: list[int]) -> tuple[StepOutput, np.ndarray]:
    """One native step, the first of its episodes, from states (N, S); what it wrote, and the states after it."""
    env = envs.make(envs.spec("breakout"), len(states), RUN_SEED, CPU)
    out = empty_output(env.spec, len(states), CPU)
    env.reset(out.observation)
    env.load_state({**env.state(), "state": torch.tensor(states, dtype=torch.float32).T.contiguous()})
    env.step(torch.tensor(actions, dtype=torch.int32), out)
    return out, env.state()["state"].numpy().T


def one(game: Game, action: int = NOTHING) -> tuple[list[float], float, int]:
    """State, reward and `terminated` after one native step."""
    out, state = after([game.state()], [action])
    return state[0].tolist(), float(out.reward[0]), int(out.terminated[0])


def close(found: list[float], *wanted: float) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)


# ---------------------------------------------------------------------------------------------------------------------
# By hand
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ((9.0, 5.0, 0.5, -0.75), (9.5, 4.25, 0.5, -0.75)),  # flies
        ((0.25, 5.0, -0.75, -0.5), (0.5, 4.5, 0.75, -0.5)),  # left wall
        ((35.5, 5.0, 1.25, 0.5), (35.25, 5.5, -1.25, 0.5)),  # right wall
        ((9.0, 23.75, 0.5, 0.75), (9.5, 23.5, 0.5, -0.75)),  # ceiling
        ((0.25, 23.75, -0.5, 0.5), (0.25, 23.75, 0.5, -0.5)),  # corner of the field
    ],
)
def test_ball_and_walls(before: tuple[float, ...], wanted: tuple[float, ...]) -> None:
    state, reward, terminated = one(Game(*before))
    assert tuple(state[1:5]) == wanted
    assert (state[0], state[5], state[6]) == (18.0, 5.0, 0.0)
    assert state[7:] == [2.0**COLUMNS - 1] * ROWS
    assert (reward, terminated) == (0.0, 0)


@pytest.mark.parametrize(
    ("paddle", "action", "wanted"),
    [(18.0, NOTHING, 18.0), (18.0, LEFT, 16.5), (18.0, RIGHT, 19.5), (4.0, LEFT, 3.0), (32.0, RIGHT, 33.0)],
)
def test_paddle(paddle: float, action: int, wanted: float) -> None:
    assert one(Game(paddle=paddle), action)[0][0] == wanted


@pytest.mark.parametrize(
    ("x", "action", "v_x"),
    [
        (18.0, NOTHING, 0.0),  # in the middle
        (19.5, NOTHING, 0.45),  # half way to the edge: 1.5 * 0.6 * 1/2
        (15.0, NOTHING, -0.9),  # at the very edge
        (22.0, RIGHT, 0.75),  # the paddle moves first: 1.5 * 0.6 * 2.5/3
    ],
)
def test_paddle_returns_the_ball(x: float, action: int, v_x: float) -> None:
    state, reward, terminated = one(Game(x, 0.25, 0.0, -0.5), action)
    close(state[1:7], x, 0.25, v_x, 0.6, 5, 1)
    assert (reward, terminated) == (0.0, 0)


@pytest.mark.parametrize(
    ("hits", "speed", "then"), [(2, 0.6, 3), (3, 0.75, 4), (10, 0.75, 11), (11, 0.9, 12), (12, 0.9, 12)]
)
def test_ball_speeds_up(hits: int, speed: float, then: int) -> None:
    state = one(Game(21.0, 0.25, 0.0, -0.5, hits=hits))[0]
    close(state[3:7], 1.5 * speed, speed, 5, then)


def test_a_lost_ball_brings_the_next() -> None:
    game = Game(25.0, 0.25, 0.0, -0.5, paddle=20.0, balls=2, hits=7, wall={(0, 3)})
    state, reward, terminated = one(game)
    close(state[:3], 20, 18, 12)
    assert -0.9 <= state[3] <= 0.9
    close(state[4:7], -0.6, 1, 0)
    assert state[7:] == [8.0, 0, 0, 0, 0, 0]
    assert (reward, terminated) == (0.0, 0)


def test_the_last_ball_ends_the_game() -> None:
    out, _ = after([Game(25.0, 0.25, 0.0, -0.5, balls=1).state()], [NOTHING])
    assert (int(out.terminated[0]), int(out.truncated[0]), float(out.reward[0])) == (1, 0, 0.0)
    close(out.final_observation[0, :7].tolist(), 0, 7 / 3, -4, 0, -0.5 / 0.3, 0, 0)
    close(out.observation[0, [0, 1, 2, 4, 5]].tolist(), 0, 0, 0, -2, 1)


@pytest.mark.parametrize(("row", "points"), list(enumerate((1.0, 1.0, 4.0, 4.0, 7.0, 7.0))))
def test_brick_from_below_and_from_above(row: int, points: float) -> None:
    """Column 4 is x from 8 to 10, row r is y from 14 + r to 15 + r; the brick beside it stays."""
    for y, v_y in ((13.75 + row, 0.5), (15.25 + row, -0.5)):
        state, reward, terminated = one(Game(9.0, y, 0.25, v_y, wall={(row, 4), (row, 5)}))
        assert state[1:5] == [9.0, y, 0.25, -v_y]
        assert state[7:] == [32.0 if r == row else 0.0 for r in range(ROWS)]
        assert (reward, terminated) == (points, 0)


@pytest.mark.parametrize(
    ("wall", "goes", "velocity"),
    [
        ({(1, 4), (1, 5)}, (1, 4), (0.75, -0.5)),  # straight above
        ({(0, 5), (1, 5)}, (0, 5), (-0.75, 0.5)),  # beside
        ({(1, 4), (0, 5)}, (1, 4), (0.75, -0.5)),  # both: the one above
        ({(1, 5), (3, 3)}, (1, 5), (-0.75, -0.5)),  # the corner alone
    ],
)
def test_which_brick_is_met(wall: set[tuple[int, int]], goes: tuple[int, int], velocity: tuple[float, float]) -> None:
    """From the free cell (0, 4) toward the upper right."""
    state, reward, _ = one(Game(9.75, 14.75, 0.75, 0.5, wall=set(wall)))
    assert state[1:3] == [9.75, 14.75]
    assert tuple(state[3:5]) == velocity
    assert state[7:] == Game(wall=wall - {goes}).state()[7:]
    assert reward == 1.0


def test_the_last_brick_ends_the_game() -> None:
    games = [Game(9.0, 13.75, 0.0, 0.5, wall={(0, 4)}), Game(9.0, 5.0, 0.0, 0.5, wall=set())]
    out, _ = after([game.state() for game in games], [NOTHING] * 2)
    assert out.terminated.tolist() == [1, 0]  # not even an empty wall ends a game in which no brick was hit
    assert out.reward.tolist() == [1.0, 0.0]
    assert out.final_observation[0, 7:].sum() == 0
    assert out.observation[0, 7:].sum() == 108


def test_observation() -> None:
    game = Game(27.0, 6.0, 0.0, -0.5, paddle=27.0, balls=4, hits=3, wall={(0, 0), (2, 17)})
    out, _ = after([game.state()], [NOTHING])
    close(out.observation[0, :7].tolist(), 3, 3, -6.5 / 3, 0, -0.5 / 0.3, 0.8, 0.25)
    assert out.observation[0, 7:].nonzero()[:, 0].tolist() == [0, 2 * 18 + 17]


def test_the_whole_wall_is_worth_432() -> None:
    assert sum({0: 1, 1: 1, 2: 4, 3: 4, 4: 7, 5: 7}[row] for row, _ in WALL) == 432


def test_an_action_that_is_none_is_seen() -> None:
    """Everything that is observed and earned is NaN, and stays so."""
    env = envs.make(envs.spec("breakout"), 2, 1, CPU)
    out = empty_output(env.spec, 2, CPU)
    env.reset(out.observation)
    for action in (3, 0, 1, 2):
        env.step(torch.tensor([0, action], dtype=torch.int32), out)
        assert bool(out.observation[1].isnan().all())
        assert bool(out.reward[1].isnan())
        assert (int(out.terminated[1]), int(out.truncated[1])) == (0, 0)
        assert bool(out.observation[0].isfinite().all())


# ---------------------------------------------------------------------------------------------------------------------
# Beside the slow game
# ---------------------------------------------------------------------------------------------------------------------


def random_games(count: int) -> list[Game]:
    """A third of them near the paddle, a third in and around a wall with holes, a third anywhere outside of it."""
    source, games = np.random.RandomState(1), []
    for i in range(count):
        game = Game(balls=source.randint(1, 6), hits=source.randint(0, 13), paddle=f(source.uniform(3, 33)))
        game.wall = {brick for brick in WALL if source.random_sample() < (0.5, 0.02)[i % 2]}
        game.v_x, game.v_y = f(source.uniform(-1.35, 1.35)), f(source.choice([-0.9, -0.75, -0.6, 0.6, 0.75, 0.9]))
        low, high = ((0, 1.2), (13, 21), (1, 24))[i % 3]
        while True:
            game.x, game.y = f(source.uniform(0, 36)), f(source.uniform(low, high))
            if i % 3 == 0:
                game.x = f(np.clip(game.paddle + source.uniform(-6, 6), 0, 36))
            if not game.brick_at(game.x, game.y):
                break
        games.append(game)
    return games


@functools.cache
def slow_steps(count: int) -> tuple[list[list[float]], list[int], np.ndarray, list[float], list[int]]:
    """States, actions, and what the slow game makes of them: observations, rewards, whether it is over."""
    games, actions = random_games(count), np.random.RandomState(2).randint(0, 3, count).tolist()
    states = [game.state() for game in games]
    seeds = reference.episode_seeds(np.arange(count), np.zeros(count), RUN_SEED).tolist()
    rewards, overs, met = [], [], set()
    for game, action, seed in zip(games, actions, seeds, strict=True):
        balls = game.balls
        reward, over = game.step(action, seed, 1)
        rewards.append(reward)
        overs.append(int(over))
        met.add((reward, over, balls - game.balls))
    # Nothing, a ball lost, the last one lost, bricks of every worth, the last brick.
    assert {(0, False, 0), (0, False, 1), (0, True, 1), (1, False, 0), (4, False, 0), (7, False, 0)} < met
    assert any(reward and over for reward, over, _ in met)
    return states, actions, np.array([game.observation() for game in games]), rewards, overs


def check_single_steps() -> None:
    states, actions, observations, rewards, overs = slow_steps(6000)
    out, _ = after(states, actions)
    np.testing.assert_array_equal(out.final_observation.numpy(), observations)
    np.testing.assert_array_equal(out.reward.numpy(), rewards)
    np.testing.assert_array_equal(out.terminated.numpy(), overs)


def test_single_steps_equal_the_slow_game() -> None:
    check_single_steps()


def check_whole_games() -> None:
    """From the seed alone, with paddles that follow the ball well, and badly enough to lose some."""
    wobble = (2.0, 3.0, 5.0, 8.0)
    count = len(wobble)
    env = envs.make(envs.spec("breakout"), count, RUN_SEED, CPU)
    out = empty_output(env.spec, count, CPU)
    env.reset(out.observation)
    seeds = env.state()["episode_seed"].tolist()
    games, playing = [Game() for _ in seeds], np.ones(count, dtype=bool)
    for i, (game, seed) in enumerate(zip(games, seeds, strict=True)):
        game.launch(seed, 0, PURPOSE_RESET)
        np.testing.assert_array_equal(out.observation[i].numpy(), game.observation())
    source, total, length = np.random.RandomState(3), np.zeros(count), 0
    while playing.any():
        length += 1
        aim = [game.x - game.paddle + source.uniform(-w, w) for game, w in zip(games, wobble, strict=True)]
        actions = [RIGHT if a > 0.75 else LEFT if a < -0.75 else NOTHING for a in aim]
        env.step(torch.tensor(actions, dtype=torch.int32), out)
        for i in np.flatnonzero(playing):
            reward, over = games[i].step(actions[i], seeds[i], length)
            total[i] += reward
            np.testing.assert_array_equal(out.final_observation[i].numpy(), games[i].observation(), err_msg=f"{length}")
            assert (float(out.reward[i]), bool(out.terminated[i])) == (reward, over)
            playing[i] = not over
            if over:
                assert float(out.episode_return[i]) == total[i]
                assert int(out.episode_length[i]) == length
    print(f"games of up to {length} steps, returns {total}, balls left {[game.balls for game in games]}")
    assert {game.balls for game in games} > {0}  # some lost it, some cleared the wall


def test_whole_games_equal_the_slow_game() -> None:
    check_whole_games()


MISTAKES: dict[str, tuple[str, str]] = {
    "the paddle leaves the field": ("pushed < reach ? reach", "pushed < 0.0f ? 0.0f"),
    "left is right": ("action[0] == 1 ? -paddle_speed", "action[0] == 1 ? paddle_speed"),
    "the right wall swallows": ("2.0f * WIDTH - free_x", "WIDTH"),
    "the ceiling does not turn": ("hit ? !beside : at_top", "hit && !beside"),
    "the old column is forgotten": ("ahead & column", "ahead & next_column"),
    "nothing lies beside": ("row_of(rows, row) & next_column", "row_of(rows, row) & column"),
    "corners let through": (" || (ahead & next_column);", ";"),
    "the ball enters the brick": ("state[2] = hit ? y : next_y", "state[2] = next_y"),
    "the brick stays": ("rows[r] &= ~(r == hit_row ? hit_column : 0u);", ""),
    "a whole row goes": ("!hit ? 0u : above_or_below ? column : next_column", "!hit ? 0u : WHOLE_ROW"),
    "the rows' worth is upside down": ("hit_row < 2 ? 1.0f : hit_row < 4 ? 4.0f : 7.0f", "hit_row < 2 ? 7.0f : 1.0f"),
    "the paddle is a wall": ("offset >= -1.0f && offset <= 1.0f", "true"),
    "the left edge misses": ("offset >= -1.0f", "offset > 0.0f"),
    "the speed stays": ("state[6] < 12.0f ? 0.75f : 0.9f", "state[6] < 99.0f ? 0.75f : 0.9f"),
    "the angle is the old one": ("caught ? 1.5f * speed * offset :", "caught ? v_x :"),
    "no ball is lost": ("lost ? state[5] - 1.0f : state[5]", "state[5]"),
    "one ball too many": ("state[5] < 1.0f", "state[5] < 0.0f"),
    "an empty wall is no end": (" || (hit && standing == 0)", ""),
    "the same ball again": ("draws().word[0]", "0x80000000u"),
    "bricks from the top down": ("COLUMNS * r + c]", "COLUMNS * (ROWS - 1 - r) + c]"),
    "columns from the right": ("row >> c & 1u", "row >> (COLUMNS - 1 - c) & 1u"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, "breakout", *MISTAKES[mistake])
    with pytest.raises(AssertionError):
        check_single_steps()


START = {
    "a standing ball": ("draws().word[0]", "0x80000000u"),
    "four balls": ("state[5] = 5.0f", "state[5] = 4.0f"),
    "a wall with a hole": ("(float)(int)WHOLE_ROW", "(float)(int)(WHOLE_ROW >> 1)"),
}


@pytest.mark.parametrize("mistake", START)
def test_a_mistake_in_the_reset_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, tmp_path, "breakout", *START[mistake])
    with pytest.raises(AssertionError):
        check_whole_games()
