"""Memory: four symbols are shown, later they are to be said in order: A (1), B (2), or silence (0). Data sheet in memory.h."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from envs.spec import Discrete, EnvSpec

SPEC = EnvSpec(
    name="memory",
    version=0,
    observation_low=(0.0, 0.0, 0.0),
    observation_high=(1.0, 1.0, 1.0),
    action=Discrete(3),
    max_episode_steps=20,
    state_size=3,
    reward_range=(-0.05, 0.25),
    header=Path(__file__).with_suffix(".h"),
)

_CELL, _SYMBOLS, _LONGEST = 36, 4, 16  # pixels of a time; times


def render(state: np.ndarray) -> np.ndarray:
    """(3,) float32, the state, to a picture (180, 612, 3) uint8: what is shown, and where in the episode that is."""
    time, symbols, speak = (int(value) for value in state)
    end = speak + _SYMBOLS
    picture = Image.new("RGB", (_CELL * (_LONGEST + 1), 5 * _CELL), "#f6f4ee")
    draw = ImageDraw.Draw(picture)
    shown = "AB"[symbols >> time & 1] if time < _SYMBOLS else "?" if speak <= time < end else ""
    colors = {"A": "#2c5f8a", "B": "#d9822b", "?": "#6b8f3c", "": "#ece8de"}
    middle, top, half = picture.width // 2, _CELL // 2, _CELL * 5 // 4
    draw.rounded_rectangle((middle - half, top, middle + half, top + 2 * half), 12, colors[shown])
    draw.text((middle, top + half), shown, "white", ImageFont.load_default(56), anchor="mm")
    for at in range(end):
        left, y = (picture.width - end * _CELL) // 2 + at * _CELL, 4 * _CELL
        shade = "#b9c9d6" if at < _SYMBOLS else "#c5d3ad" if at >= speak else "#e4dfd2"
        draw.rounded_rectangle((left + 3, y, left + _CELL - 4, y + _CELL // 3), 4, "#3b3b38" if at == time else shade)
    return np.asarray(picture)
