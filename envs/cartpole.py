"""CartPole-v1: balance a pole on a cart by pushing it left (0) or right (1). Data sheet in cartpole.h."""

import math
from pathlib import Path

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
