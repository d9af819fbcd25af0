"""Snake for four: each an agent that goes straight on (0) or turns left (1) or right (2). Data sheet in snake.h."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from envs.spec import Discrete, EnvSpec

_WINDOW, _AGENTS = 5 * 5 - 1, 4

SPEC = EnvSpec(
    name="snake",
    version=0,
    observation_low=(*_WINDOW * (0.0,), -1.0, -1.0, 0.0),
    observation_high=(*_WINDOW * (1.0,), 1.0, 1.0, 1.0),
    action=Discrete(3),
    max_episode_steps=256,
    state_size=6,
    reward_range=(-1.0, 1.0),
    header=Path(__file__).with_suffix(".h"),
    agents=_AGENTS,
)

_CELL, _CELLS = 36, 11  # pixels, cells on a side
_STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # of each direction
_COLORS = ("#2c5f8a", "#8a4f7d", "#6b8f3c", "#b5533c")


def cells(state: np.ndarray) -> list[tuple[int, int]]:
    """(6,) float32, the state of a row, to the (x, y) of its snake's pieces, the head first."""
    x, y, segments, body = (int(value) for value in state[:4])
    found = [(x, y)]
    for k in range(segments):
        to_x, to_y = _STEPS[body >> 2 * k & 3]
        found.append((found[-1][0] + to_x, found[-1][1] + to_y))
    return found


def render(state: np.ndarray) -> np.ndarray:
    """(24,) float32, the state of a world, one row's after the other, to a picture (396, 396, 3) uint8."""
    picture = Image.new("RGB", (_CELL * _CELLS, _CELL * _CELLS), "#f6f4ee")
    draw = ImageDraw.Draw(picture)

    def box(x: int, y: int, margin: int) -> tuple[int, int, int, int]:
        left, top = x * _CELL + margin, (_CELLS - 1 - y) * _CELL + margin
        return left, top, left + _CELL - 2 * margin - 1, top + _CELL - 2 * margin - 1

    for x in range(_CELLS):
        for y in range(_CELLS):
            draw.rectangle(box(x, y, 1), "#ece8de")
    for row, color in zip(state.reshape(_AGENTS, -1), _COLORS, strict=True):
        draw.ellipse(box(int(row[4]), int(row[5]), 10), "#d9822b")
        pieces = cells(row)
        for (x, y), (next_x, next_y) in zip(pieces, pieces[1:], strict=False):
            one, other = box(x, y, 7), box(next_x, next_y, 7)
            draw.rectangle((*map(min, one[:2], other[:2]), *map(max, one[2:], other[2:])), color)
        for x, y in pieces:
            draw.rounded_rectangle(box(x, y, 7), 5, color)
        draw.rounded_rectangle(box(*pieces[0], 3), 9, color)
        draw.ellipse(box(*pieces[0], 13), "white")
    return np.asarray(picture)
