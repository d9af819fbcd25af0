"""Breakout: move a paddle left (1), right (2) or not at all (0), so that a ball breaks a wall of bricks. Data sheet in
breakout.h.
"""

from pathlib import Path

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
