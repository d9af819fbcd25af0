"""CartPole-v1: balance a pole on a cart by pushing it left (0) or right (1). Data sheet in cartpole.h."""

import math
from pathlib import Path

import numpy as np

from envs.picture import BLUE, GREY, INK, ORANGE, Picture
from envs.spec import Discrete, EnvSpec

_HIGH = (4.8, math.inf, math.radians(24.0), math.inf)  # twice the distance at which the episode ends

SPEC = EnvSpec(
    name="cartpole",
    version=1,
    observation_low=tuple(-bound for bound in _HIGH),
    observation_high=_HIGH,
    action=Discrete(2),
    max_episode_steps=500,
    state_size=4,
    reward_range=(1.0, 1.0),
    header=Path(__file__).with_suffix(".h"),
)


def render(state: np.ndarray) -> np.ndarray:
    """The track between its ends, the cart and a pole of the usual length; (H, W, 3) uint8 of a state, (4,)."""
    cart, angle = float(state[0]), float(state[2])
    picture = Picture(x=(-2.8, 2.8), y=(-0.6, 1.6))
    picture.line([(-2.4, -0.12), (2.4, -0.12)], GREY, 0.03)
    for end in (-2.4, 2.4):
        picture.line([(end, -0.22), (end, -0.02)], GREY, 0.03)
    picture.rectangle((cart - 0.25, -0.1), (cart + 0.25, 0.12), INK, radius=0.04)
    for wheel in (cart - 0.14, cart + 0.14):
        picture.circle((wheel, -0.1), 0.06, INK)
    joint = cart, 0.08
    picture.line([joint, (cart + math.sin(angle), 0.08 + math.cos(angle))], ORANGE, 0.09)
    picture.circle(joint, 0.04, BLUE)
    return picture.array()
