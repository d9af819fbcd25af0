"""MountainCarContinuous-v0: rock a weak car out of a valley with as little force as it takes. Data sheet in
mountain_car_continuous.h.
"""

from pathlib import Path

import numpy as np

from envs import mountain_car
from envs.spec import Box, EnvSpec

SPEC = EnvSpec(
    name="mountain_car_continuous",
    version=0,
    observation_low=(-1.2, -0.07),
    observation_high=(0.6, 0.07),
    action=Box(low=(-1.0,), high=(1.0,)),
    max_episode_steps=999,
    state_size=2,
    reward_range=(-0.1, 100.0),
    header=Path(__file__).with_suffix(".h"),
)


def render(state: np.ndarray) -> np.ndarray:
    """The car in its valley and the flag at the goal; (H, W, 3) uint8 of a state, (2,) float32."""
    return mountain_car.render(state, goal=0.45)
