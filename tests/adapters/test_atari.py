"""Atari games: the preprocessing against the emulator played by hand, and what the pipeline makes of the score."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

ale_py = pytest.importorskip("ale_py")

import envs  # noqa: E402
from envs import atari, normalize, player  # noqa: E402
from envs.validation import Plan, hosted  # noqa: E402
from envs.vector import empty_output  # noqa: E402
from kernels import compiler  # noqa: E402
from kernels.errors import UserError  # noqa: E402
from pipeline import checkpoint, provenance, train  # noqa: E402
from tests.training import faulty, small  # noqa: E402

CPU = torch.device("cpu")
PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
STEPS = 1000


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)
    monkeypatch.setattr(provenance, "collect", lambda device: {})
    monkeypatch.setattr(provenance, "write", lambda name, facts: None)


class ByHand:
    """The emulator itself, frame by frame, without any wrapper of this product's or of Gymnasium's."""

    def __init__(self, id: str, sticky: float = 0.0) -> None:
        gymnasium.register_envs(ale_py)
        self.raw: Any = gymnasium.make(id, frameskip=1, repeat_action_probability=sticky).unwrapped
        self.ale = self.raw.ale
        self.pictures: list[np.ndarray] = []

    def begin(self, seed: int, waits: int, fires: int) -> None:
        self.raw.reset(seed=seed)
        self.pictures = [self.ale.getScreenGrayscale()]
        for action in [0] * waits + [1] * fires:
            self.frame(action)

    def frame(self, action: int) -> float:
        reward = self.ale.act(self.raw._action_set[action])
        self.pictures.append(self.ale.getScreenGrayscale())
        return float(reward)

    def step(self, action: int) -> tuple[float, bool]:
        total = 0.0
        for _ in range(4):
            total += self.frame(action)
            if self.ale.game_over():
                return total, True
        return total, False

    def seen(self) -> np.ndarray:
        """The brighter of the last two frames, each new pixel the mean of 2.5 x 40/21 old ones: by equal parts."""
        picture = np.maximum(*self.pictures[-2:]).astype(float)
        parts = picture.repeat(2, axis=0).repeat(21, axis=1).reshape(84, 5, 84, 40)
        return np.floor(parts.mean((1, 3)) + 0.5 + 1e-9).astype(np.uint8)


def waits(seed: int, most: int = 30) -> int:
    """Of an episode's seed, by Gymnasium's generator."""
    return int(gymnasium.utils.seeding.np_random(seed)[0].integers(1, most + 1))


def check_play(module: ModuleType, id: str, steps: int, fires: int, sticky: float = 0.0, seed: int = 1) -> bool:
    """Two episodes of one game beside the emulator, the first one of up to `steps` steps; whether that ended.

    Pictures are compared on some steps and the last one, all else on every step.
    """
    game, hand = module.Atari(id, sticky=sticky), ByHand(id, sticky)
    ended = False
    for number, count in ((seed, steps), (seed + 1, 2)):
        source = np.random.RandomState(number)
        observation, info = game.reset(seed=number)
        hand.begin(number, waits(number), fires)
        frames, over = info["frames"], False
        assert np.array_equal(observation, np.stack([hand.seen()] * 4)), "full of the first observation"
        for step in range(count):
            action, before = int(source.randint(game.action_space.n)), observation
            observation, reward, terminated, truncated, info = game.step(action)
            wanted, over = hand.step(action)
            frames += info["frames"]
            assert (reward, terminated, truncated, frames) == (wanted, over, False, len(hand.pictures) - 1)
            assert np.array_equal(observation[:-1], before[1:]), "the older ones are as they were"
            if step % 10 == 0 or over:
                assert np.array_equal(observation[-1], hand.seen())
            if over:
                break
        ended |= over
    return ended


def check_pong(module: ModuleType) -> None:
    """Till the first point, which random play loses."""
    check_play(module, PONG, 90, 0)


def check_breakout(module: ModuleType) -> None:
    """To the end: FIRE begins it; lives are lost without an end; the last step may have fewer frames than four."""
    assert check_play(module, BREAKOUT, 400, 4)


def test_pong_is_the_emulators() -> None:
    check_pong(atari)


def test_breakout_is_the_emulators() -> None:
    check_breakout(atari)


def test_sticky_actions_are_the_emulators() -> None:
    check_play(atari, PONG, 12, 0, sticky=0.25)


_STACK = "self._stack.extend([observation] * STACK)"
_STILL = "all(np.array_equal(first, self._game.step(_NOOP)[0]) for _ in range(_WATCHED))"
FAULTS: dict[str, tuple[str, str, Callable[[ModuleType], None]]] = {
    "three frames are pooled": ("deque(maxlen=2)", "deque(maxlen=3)", check_pong),
    "the last frame alone": ("np.maximum(self._frames[0], self._frames[-1])", "self._frames[-1]", check_pong),
    "the old episode's stack": (_STACK, "self._stack.extend([observation] * (4 - bool(self._stack)))", check_pong),
    "no-ops by no seed": ("self.np_random.integers(1, self._noop_max + 1)", "self._noop_max", check_pong),
    "a clipped score": ("total += reward", "total += max(reward, 0.0)", check_pong),
    "every game is begun by FIRE": (_STILL, "True", check_pong),
    "frames after the end": ("            if ended:\n                break\n", "", check_breakout),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(fault: str) -> None:
    right, wrong, check = FAULTS[fault]
    with pytest.raises(AssertionError):
        check(faulty(atari, (right, wrong)))


def test_what_is_no_action_is_refused() -> None:
    game = atari.Atari(PONG)
    game.reset(seed=0)
    for action in (-1, 6):
        with pytest.raises(ValueError, match="action must be of"):
            game.step(action)


@pytest.mark.parametrize("id", ["ALE/Pongg-v5", "Pong-v5"])
def test_another_id_is_refused_in_a_line(id: str) -> None:
    with pytest.raises(UserError, match=r"env\.id"):
        envs.spec("atari", 100, id=id, noop_max=30, frame_skip=4, sticky=0.0)


def test_gymnasium_adapter_knows_the_games_as_they_are() -> None:
    assert player.make(PONG, {}, 10).observation_space.shape == (210, 160, 3)


def test_clipping_leaves_the_score_as_it_is() -> None:
    class Five:
        spec, num_envs, device, alive = None, 2, CPU, None
        reset = state = load_state = None

        def step(self, action: Any, out: Any) -> None:
            for each in out:
                each.fill_(5)

    spec: Any = envs.spec("cartpole")
    out = empty_output(spec, 2, CPU)
    five: Any = Five()
    normalize.Clipped(five, 1.0).step(torch.zeros(2), out)
    assert out.reward.tolist() == [1.0, 1.0]
    assert out.episode_return.tolist() == [5.0, 5.0]


def test_pong_trains_and_its_score_is_the_emulators(tmp_path: Path) -> None:
    """A thousand steps by the pipeline; then the same actions of its first environment by hand."""
    rows: list[tuple[int, float, float, bool]] = []
    config = small(
        tmp_path, "env=atari", "env.workers=0", "env.max_episode_steps=27000", "device.fused=false",
        "policy.hidden=[8]", "ppo.num_envs=1", "ppo.num_steps=250", "ppo.total_steps=1000", "ppo.update_epochs=1",
    )  # fmt: skip
    build: Callable[..., Any] = envs.make

    def spied(*arguments: Any) -> Any:
        env = build(*arguments)
        play = env.step

        def step(action: Any, out: Any) -> None:
            play(action, out)
            rows.append((int(action[0]), float(out.reward[0]), float(out.episode_return[0]), bool(out.terminated[0])))

        env.step = step
        return env

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(envs, "make", spied)
        train.run(config)
    assert len(rows) == STEPS
    hand = ByHand(PONG)
    seed = int(
        envs.host.host_seeds(envs.vector.training_seeds(config.seed, torch.zeros(1).int(), torch.zeros(1).long()))[0]
    )
    hand.begin(seed, waits(seed), 0)
    score = 0.0
    for action, reward, told, over in rows:
        wanted, ended = hand.step(action)
        score += wanted
        assert (reward, told, over) == (wanted, score, ended)
        if ended:
            break
    assert score < 0, "somebody scored"
    manifest = checkpoint.load(tmp_path).manifest
    assert manifest["env_spec"]["name"] == "Pong"
    assert manifest["env_spec"]["versions"]["ale-py"]
    assert manifest["frames"] >= len(hand.pictures) - 1
    if not any(over for *_, over in rows):
        assert manifest["frames"] == len(hand.pictures) - 1


@pytest.mark.parametrize("id", [PONG, BREAKOUT])
def test_what_is_returned_passes_the_validator(id: str) -> None:
    """The other checks begin a game some hundred times, which takes a minute: docs/environments.md tells of them."""
    plan = Plan(envs.spec("atari", 100, id=id, noop_max=30, frame_skip=4, sticky=0.0), 1, 10, 1)
    checks = list(hosted.validate(plan.spec, plan))  # type: ignore[arg-type]
    assert [check.verdict for check in checks] == ["pass"] * 3


@pytest.mark.parametrize(
    ("id", "kwargs", "text"),
    [
        ("ALE/Pong", {}, "wanted an id that Gymnasium knows; got 'ALE/Pong'"),
        ("ALE/Pung-v5", {}, "wanted an id that Gymnasium knows; got 'ALE/Pung-v5'"),
        (PONG, {"sticky": 0.5}, "got sticky, which is given by env.id"),
        (PONG, {"frameskip": 2}, "got frameskip, which is given by env.id"),
    ],
)
def test_what_is_no_game_is_told_in_a_line(id: str, kwargs: dict, text: str) -> None:
    with pytest.raises(UserError) as error:
        envs.spec("atari", None, id=id, kwargs=kwargs, noop_max=30, frame_skip=4, sticky=0.0)
    assert text in str(error.value)
    assert "\n" not in str(error.value)
