"""Squared: walk right (1), up (2), left (3), down (4) or not at all (0) to the targets on the edge of a square. Data sheet
in squared.h.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from envs.spec import Discrete, EnvSpec

_TARGETS = 4

SPEC = EnvSpec(
    name="squared",
    version=0,
    observation_low=(-1.0, -1.0, *_TARGETS * (0.0, -1.0, -1.0)),
    observation_high=(1.0, 1.0, *_TARGETS * (1.0, 1.0, 1.0)),
    action=Discrete(5),
    max_episode_steps=100,
    state_size=2 + _TARGETS,
    reward_range=(-0.1, 1.0),
    header=Path(__file__).with_suffix(".h"),
)

_CELL, _CELLS = 36, 11  # pixels, cells on a side


def render(state: np.ndarray) -> np.ndarray:
    """(6,) float32, the state, to a picture (396, 396, 3) uint8."""
    edge = _CELLS - 1
    picture = Image.new("RGB", (_CELL * _CELLS, _CELL * _CELLS), "#f6f4ee")
    draw = ImageDraw.Draw(picture)

    def box(x: int, y: int, margin: int) -> tuple[int, int, int, int]:
        left, top = x * _CELL + margin, (edge - y) * _CELL + margin
        return left, top, left + _CELL - 2 * margin - 1, top + _CELL - 2 * margin - 1

    for x in range(_CELLS):
        for y in range(_CELLS):
            rim = x in (0, edge) or y in (0, edge)
            draw.rectangle(box(x, y, 1), "#e4dfd2" if rim else "#ece8de")
    for side, along in enumerate(state[2:].astype(int).tolist()):
        if along < edge:
            x, y = ((along, 0), (edge, along), (edge - along, edge), (0, edge - along))[side]
            draw.rounded_rectangle(box(x, y, 5), 5, "#d9822b")
    draw.ellipse(box(int(state[0]), int(state[1]), 5), "#2c5f8a")
    return np.asarray(picture)
