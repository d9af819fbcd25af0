"""Pendulum-v1: swing a pendulum up by a torque and keep it there. Data sheet in pendulum.h."""

import math
from pathlib import Path

import numpy as np

from envs.picture import BLUE, GREY, INK, PAPER, Picture
from envs.spec import Box, EnvSpec

SPEC = EnvSpec(
    name="pendulum",
    version=1,
    observation_low=(-1.0, -1.0, -8.0),
    observation_high=(1.0, 1.0, 8.0),
    action=Box(low=(-2.0,), high=(2.0,)),
    max_episode_steps=200,
    state_size=2,
    reward_range=(-(math.pi**2 + 0.1 * 8.0**2 + 0.001 * 2.0**2), 0.0),
    header=Path(__file__).with_suffix(".h"),
)


def render(state: np.ndarray) -> np.ndarray:
    """The rod on its joint, upright is up; (H, W, 3) uint8 of a state, (2,) float32."""
    angle = float(state[0])
    end = -math.sin(angle), math.cos(angle)  # positive is counter-clockwise
    picture = Picture(x=(-1.3, 1.3), y=(-1.3, 1.3), width=360)
    picture.circle((0.0, 0.0), 1.0, GREY)
    picture.circle((0.0, 0.0), 0.98, PAPER)
    picture.line([(0.0, 0.0), end], BLUE, 0.18)
    picture.circle((0.0, 0.0), 0.05, INK)
    return picture.array()
