"""Pendulum-v1: swing a pendulum up by a torque and keep it there. Data sheet in pendulum.h."""

import math
from pathlib import Path

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
