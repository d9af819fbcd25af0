"""Breakout: move a paddle left (1), right (2) or not at all (0), so that a ball breaks a wall of bricks. Data sheet in
breakout.h.
"""

from pathlib import Path

import numpy as np

from envs.picture import Picture
from envs.spec import Discrete, EnvSpec

_BRICKS = 6 * 18
_LOW = (-5.0, -6.0, -4.0, -4.5, -3.0, 0.0, 0.0)
_HIGH = (5.0, 6.0, 4.0, 4.5, 3.0, 1.0, 1.0)

SPEC = EnvSpec(
    name="breakout",
    version=0,
    observation_low=_LOW + _BRICKS * (0.0,),
    observation_high=_HIGH + _BRICKS * (1.0,),
    action=Discrete(3),
    max_episode_steps=10000,
    state_size=13,
    reward_range=(0.0, 7.0),
    header=Path(__file__).with_suffix(".h"),
)


_ROWS = ("#4a7bd0", "#3a9d6e", "#a8a23a", "#d0a03a", "#d07a3a", "#c8473d")


def render(state: np.ndarray) -> np.ndarray:
    """The wall, the ball, the paddle and, below, the balls left; (H, W, 3) uint8 of a state, (13,) float32."""
    paddle, x, y, left = (float(state[k]) for k in (0, 1, 2, 5))
    picture = Picture(x=(-0.5, 36.5), y=(-3.0, 24.5), ground="#c9cfd4")
    picture.rectangle((0.0, -3.0), (36.0, 24.0), "#17202a")
    for row, colour in enumerate(_ROWS):
        for column in range(18):
            if int(state[7 + row]) >> column & 1:
                low = 2.0 * column, 14.0 + row
                picture.rectangle((low[0] + 0.06, low[1] + 0.06), (low[0] + 1.94, low[1] + 0.94), colour, radius=0.15)
    picture.rectangle((paddle - 3.0, -0.7), (paddle + 3.0, 0.0), "#e8ecef", radius=0.3)
    picture.circle((x, y), 0.4, "#ffffff")
    for ball in range(int(left)):
        picture.circle((1.2 + 1.4 * ball, -2.0), 0.4, "#c9cfd4")
    return picture.array()
