"""Atari games as agents see them: the usual preprocessing, around a game of `ale-py`.

Sources: Mnih et al., "Human-level control through deep reinforcement learning", 2015, methods; Machado et al.,
"Revisiting the Arcade Learning Environment", arXiv:1709.06009, for sticky actions.

Worker processes load this file by its path: it imports nothing of this product but `kernels.errors`.
"""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from kernels.errors import UserError

try:
    import ale_py
except ModuleNotFoundError as error:
    raise UserError(
        f"env=atari: wanted the package ale-py; {error.name} is not installed. "
        "Install it with `pip install 'lockstep[atari]'`"
    ) from error

SIZE = 84  # pixels of an observation's side
STACK = 4  # observations that are seen at once
_NOOP, _FIRE = 0, 1  # by their places in a game's action set, which begins with NOOP
_WATCHED = 120  # frames for which a game is left alone, to see whether it begins by itself


class Atari(gymnasium.Env):
    """A game in grey, 84 x 84, four observations at once, the newest last; (4, 84, 84) uint8.

    An action is held for `frame_skip` frames, fewer where the game ends within them; the reward is their sum, the raw
    score. An observation is the brighter of the last two frames, pixel by pixel. An episode begins after 1 to
    `noop_max` frames without an action, by its seed, with a stack that is full of its first observation; where FIRE
    begins the game it is pressed for one action more. A lost life is no end.

    `info["frames"]` counts the frames that the emulator made in the call, a reset's too.

    Args:
        id: `ALE/Pong-v5`.
        noop_max: 0: episodes begin at once.
        frame_skip: frames of an action, at least 1.
        sticky: the probability that a frame repeats the frame's action before it instead of taking the new one.
        kwargs: what gymnasium.make takes beside it, such as mode and difficulty.

    Raises:
        UserError: the id is none of ale-py's.
    """

    def __init__(self, id: str, noop_max: int = 30, frame_skip: int = 4, sticky: float = 0.0, **kwargs: Any) -> None:
        gymnasium.register_envs(ale_py)
        if not id.startswith("ALE/"):
            raise UserError(f"env.id: wanted a game of ale-py, such as ALE/Pong-v5; got {id!r}")
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # else each process greets
        raw: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": sticky, "max_num_frames_per_episode": 0}
        made = gymnasium.make(id, obs_type="grayscale", disable_env_checker=True, **raw, **kwargs)
        self._game: Any = made.unwrapped
        self._noop_max, self._frame_skip = noop_max, frame_skip
        self._frames: deque[np.ndarray] = deque(maxlen=2)
        self._stack: deque[np.ndarray] = deque(maxlen=STACK)
        self._count = 0
        self.action_space = self._game.action_space
        self.observation_space = spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8)
        self.fires = self._begins_by_fire()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        frame, _ = self._game.reset(seed=seed)
        self._frames.append(frame)
        self._count = 0
        waits = int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0
        for action in [_NOOP] * waits + [_FIRE] * (self._frame_skip * self.fires):
            self._frame(action)
        observation = self._seen()
        self._stack.extend([observation] * STACK)
        return np.stack(self._stack), {"frames": self._count}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):  # the emulator would count from the end
            raise ValueError(f"action must be of {self.action_space}; got {action}")
        self._count, total, ended = 0, 0.0, False
        for _ in range(self._frame_skip):
            reward, ended = self._frame(int(action))
            total += reward
            if ended:
                break
        self._stack.append(self._seen())
        return np.stack(self._stack), total, ended, False, {"frames": self._count}

    def close(self) -> None:
        self._game.close()

    def _frame(self, action: int) -> tuple[float, bool]:
        frame, reward, ended, _, _ = self._game.step(action)
        self._frames.append(frame)
        self._count += 1
        return float(reward), bool(ended)

    def _seen(self) -> np.ndarray:
        return shrunk(np.maximum(self._frames[0], self._frames[-1]))

    def _begins_by_fire(self) -> bool:
        """Whether the game has a FIRE, and its picture stands still until that is pressed."""
        if self._game.get_action_meanings()[_FIRE : _FIRE + 1] != ["FIRE"]:
            return False
        first, _ = self._game.reset(seed=0)
        return all(np.array_equal(first, self._game.step(_NOOP)[0]) for _ in range(_WATCHED))


def shrunk(picture: np.ndarray) -> np.ndarray:
    """A (height, width) uint8 picture as (84, 84): each pixel the mean of the area that it covers, rounded.

    In whole numbers, so that no machine rounds another way.
    """
    sums = _sums(_sums(picture.astype(np.uint32)).T).T
    whole = picture.size // np.gcd(picture.shape[0], SIZE) // np.gcd(picture.shape[1], SIZE)
    return ((2 * sums + whole) // (2 * whole)).astype(np.uint8)


def _sums(rows: np.ndarray) -> np.ndarray:
    """(n, m) to (84, m): sums over 84 equal shares of the n rows, in equal parts of a row."""
    size, width = rows.shape
    parts = SIZE // np.gcd(size, SIZE)
    return rows.repeat(parts, axis=0).reshape(SIZE, -1, width).sum(1)
