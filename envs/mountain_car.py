"""MountainCar-v0: rock a weak car out of a valley by pushing left (0), not at all (1) or right (2). Data sheet in
mountain_car.h.
"""

import math
from pathlib import Path

import numpy as np

from envs.picture import BLUE, GREEN, GREY, INK, Picture
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


def render(state: np.ndarray, goal: float = 0.5) -> np.ndarray:
    """The car in its valley and the flag at the goal; (H, W, 3) uint8 of a state, (2,) float32."""

    def height(x: float) -> float:
        return 0.45 * math.sin(3.0 * x)

    places = [-1.3 + 0.01 * k for k in range(201)]
    picture = Picture(x=(-1.3, 0.7), y=(-0.65, 0.75))
    picture.polygon([(-1.3, -0.65), *((x, height(x)) for x in places), (0.7, -0.65)], GREY)
    top = height(goal) + 0.2
    picture.line([(goal, height(goal)), (goal, top)], INK, 0.012)
    picture.polygon([(goal, top), (goal + 0.1, top - 0.035), (goal, top - 0.07)], GREEN)

    x, slope = float(state[0]), math.atan(1.35 * math.cos(3.0 * float(state[0])))
    along, up = (math.cos(slope), math.sin(slope)), (-math.sin(slope), math.cos(slope))

    def on_car(ahead: float, above: float) -> tuple[float, float]:
        return x + ahead * along[0] + above * up[0], height(x) + ahead * along[1] + above * up[1]

    picture.polygon([on_car(-0.07, 0.03), on_car(0.07, 0.03), on_car(0.05, 0.085), on_car(-0.05, 0.085)], BLUE)
    for wheel in (-0.045, 0.045):
        picture.circle(on_car(wheel, 0.025), 0.024, INK)
    return picture.array()
