"""CartPole of which only the positions are seen: push left (0) or right (1). Data sheet in cartpole_masked.h."""

import dataclasses
from pathlib import Path

from envs import cartpole

SPEC = dataclasses.replace(
    cartpole.SPEC,
    name="cartpole_masked",
    version=0,
    observation_low=cartpole.SPEC.observation_low[::2],
    observation_high=cartpole.SPEC.observation_high[::2],
    header=Path(__file__).with_suffix(".h"),
)
