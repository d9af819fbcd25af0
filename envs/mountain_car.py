"""MountainCar-v0: rock a weak car out of a valley by pushing left (0), not at all (1) or right (2). Data sheet in
mountain_car.h.
"""

from pathlib import Path

from envs.spec import Discrete, EnvSpec

SPEC = EnvSpec(
    name="mountain_car",
    version=0,
    observation_low=(-1.2, -0.07),
    observation_high=(0.6, 0.07),
    action=Discrete(3),
    max_episode_steps=200,
    state_size=2,
    reward_range=(-1.0, -1.0),
    header=Path(__file__).with_suffix(".h"),
)
