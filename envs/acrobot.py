"""Acrobot-v1: swing the free end of two links up by a torque between them of -1 (0), 0 (1) or 1 N m (2). Data sheet in
acrobot.h.
"""

import math
from pathlib import Path

import numpy as np

from envs.picture import BLUE, GREEN, GREY, INK, ORANGE, Picture
from envs.spec import Discrete, EnvSpec

_HIGH = (1.0, 1.0, 1.0, 1.0, 4.0 * math.pi, 9.0 * math.pi)

SPEC = EnvSpec(
    name="acrobot",
    version=1,
    observation_low=tuple(-bound for bound in _HIGH),
    observation_high=_HIGH,
    action=Discrete(3),
    max_episode_steps=500,
    state_size=4,
    reward_range=(-1.0, 0.0),
    header=Path(__file__).with_suffix(".h"),
)


def render(state: np.ndarray) -> np.ndarray:
    """Both links and the line to be reached; (H, W, 3) uint8 of a state, (4,) float32."""
    first, second = float(state[0]), float(state[0] + state[1])
    elbow = math.sin(first), -math.cos(first)
    tip = elbow[0] + math.sin(second), elbow[1] - math.cos(second)
    picture = Picture(x=(-2.3, 2.3), y=(-2.3, 2.3), width=400)
    picture.line([(-2.3, 1.0), (2.3, 1.0)], GREEN, 0.03)
    picture.line([(0.0, 0.0), elbow], BLUE, 0.2)
    picture.line([elbow, tip], ORANGE, 0.2)
    for joint, colour in (((0.0, 0.0), INK), (elbow, INK), (tip, GREY)):
        picture.circle(joint, 0.06, colour)
    return picture.array()
