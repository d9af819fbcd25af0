"""GridMaze: walk right (0), up (1), left (2) or down (3) to the goal of a maze never seen before. Data sheet in gridmaze.h."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from envs.spec import Discrete, EnvSpec

_WINDOW = 7 * 7 - 1

SPEC = EnvSpec(
    name="gridmaze",
    version=0,
    observation_low=(*_WINDOW * (0.0,), -1.0, -1.0),
    observation_high=(*_WINDOW * (1.0,), 1.0, 1.0),
    action=Discrete(4),
    max_episode_steps=100,
    state_size=8,
    reward_range=(-0.01, 0.99),
    header=Path(__file__).with_suffix(".h"),
)

_CELL, _CELLS = 44, 8  # pixels, cells on a side


def walls(state: np.ndarray) -> np.ndarray:
    """(8,) float32, the state, to (8, 8) bool, [y, x]: where there is wall."""
    rows = [int(word) >> shift & 255 for word in state[4:] for shift in (0, 8)]
    return np.array([[row >> x & 1 for x in range(_CELLS)] for row in rows], dtype=bool)


def render(state: np.ndarray) -> np.ndarray:
    """(8,) float32, the state, to a picture (396, 396, 3) uint8."""
    rim = _CELL // 2
    picture = Image.new("RGB", (_CELL * _CELLS + 2 * rim, _CELL * _CELLS + 2 * rim), "#3b4a54")
    draw = ImageDraw.Draw(picture)

    def box(x: int, y: int, margin: int) -> tuple[int, int, int, int]:
        left, top = rim + x * _CELL + margin, rim + (_CELLS - 1 - y) * _CELL + margin
        return left, top, left + _CELL - 2 * margin - 1, top + _CELL - 2 * margin - 1

    for (y, x), wall in np.ndenumerate(walls(state)):
        if not wall:
            draw.rectangle(box(x, y, 0), "#f6f4ee")
            draw.rectangle(box(x, y, 1), "#efebe1")
    x, y, goal_x, goal_y = state[:4].astype(int).tolist()
    draw.rounded_rectangle(box(goal_x, goal_y, 8), 6, "#d9822b")
    draw.ellipse(box(x, y, 9), "#2c5f8a")
    return np.asarray(picture)
