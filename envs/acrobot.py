"""Acrobot-v1: swing the free end of two links up by a torque between them of -1 (0), 0 (1) or 1 N m (2). Data sheet in
acrobot.h.
"""

import math
from pathlib import Path

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
