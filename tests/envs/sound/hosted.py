"""Classes of Gymnasium that are sound and odd."""

from typing import Any

import numpy as np
from broken.hosted import LIMIT, Walk
from gymnasium import spaces

import envs
from envs.validation import Plan
from envs.vector import VectorEnv
from sound import Sound


class OneStep(Walk):
    """An episode is one step long."""

    def dead(self) -> Any:
        return True


class NeverDies(Walk):
    """Comes back on the other side; only the time limit ends an episode."""

    def move(self, push: float) -> None:
        super().move(push)
        self.place = (self.place + 1.0) % 2.0 - 1.0


class BothAtOnce(Walk):
    """Where it dies it truncates too."""

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, terminated, info


class GivesUp(Walk):
    """Truncates by itself, where it is fast."""

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, bool(self.speed > 0.15), info


class FixedStart(Walk):
    def begin(self) -> None:
        self.place, self.speed = 0.0, 0.1


class ByChance(FixedStart):
    """Begins alike, and goes on by chance."""

    def move(self, push: float) -> None:
        super().move(push + 0.05 * float(self.np_random.standard_normal()))


class Unbounded(Walk):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Doubles(Walk):
    """All in float64, the reward too."""

    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float64)

    def observe(self) -> Any:
        return np.array([self.place, self.speed])

    def reward(self) -> Any:
        return np.float64(super().reward())


class Picture(Walk):
    """Sees itself as a bright column of pixels; what it earns is an integer."""

    observation_space = spaces.Box(0, 255, (2, 8), np.uint8)

    def observe(self) -> Any:
        picture = np.zeros((2, 8), np.uint8)
        picture[:, int(np.clip(4 + 3 * self.place, 0, 7))] = 255
        picture[1, 0] = int(255 * (0.5 + self.speed))
        return picture

    def reward(self) -> Any:
        return 1 if abs(self.place) < 0.5 else 0


class Parts(Walk):
    """A dict of a box, a choice, and a tuple of bits and choices."""

    observation_space = spaces.Dict(
        {
            "speed": spaces.Box(-1.0, 1.0, (1,), np.float32),
            "side": spaces.Discrete(2, start=5),
            "place": spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([7, 2]))),
        }
    )

    def observe(self) -> Any:
        cell = int(np.clip(3.5 + 3 * self.place, 0, 6))
        binary = np.array([cell >> k & 1 for k in range(3)], np.int8)
        return {
            "speed": np.array([self.speed], np.float32),
            "side": 6 if self.place > 0 else 5,
            "place": (binary, np.array([cell, self.place > 0], np.int64)),
        }


class NegativeStart(Walk):
    """Its actions are -1, 0 and 1."""

    action_space = spaces.Discrete(3, start=-1)

    def push(self, action: Any) -> float:
        return 0.1 * float(action)


class Several(Walk):
    """Two choices, of which the second doubles the push."""

    action_space = spaces.MultiDiscrete([2, 2])

    def push(self, action: Any) -> float:
        return (0.1 if action[0] == 1 else -0.1) * (1 + float(action[1]))


class Continuous(Walk):
    action_space = spaces.Box(-0.2, 0.1, (1,), np.float32)

    def push(self, action: Any) -> float:
        return float(action[0])

    def step(self, action: Any) -> tuple[Any, ...]:
        self.move(self.push(action))
        return self.observe(), self.reward(), self.dead(), False, {}


class Sparse(Walk):
    """Earns something only far away."""

    def reward(self) -> Any:
        return float(self.place > 1.6)


class PaysLater(Walk):
    """Pays for what was done two steps ago."""

    def begin(self) -> None:
        super().begin()
        self.owed = [0.0, 0.0]

    def reward(self) -> Any:
        self.owed.append(super().reward())
        return self.owed.pop(0)


class Idle(Walk):
    """Its last action does what the first does."""

    action_space = spaces.Discrete(3)


class Blind(Walk):
    """Sees the same always."""

    def observe(self) -> Any:
        return np.zeros(2, np.float32)


def make(spec: envs.EnvSpec, num_envs: int, run_seed: int) -> VectorEnv:
    from broken.native import CPU

    return envs.make(spec, num_envs, run_seed, CPU)


def hosted(kind: type[Walk], *warnings: str) -> Sound:
    def plan(num_envs: int, steps: int) -> Plan:
        id = f"{kind.__module__}:{kind.__name__}"
        spec = envs.spec("gymnasium", id=id, max_episode_steps=LIMIT, workers=0)
        return Plan(spec, num_envs, steps, 1)

    return Sound(f"gymnasium-{kind.__name__}", make, plan, warnings)


SOUND: tuple[Sound, ...] = (
    hosted(Walk),
    hosted(OneStep),
    hosted(NeverDies),
    hosted(BothAtOnce, "time_limit"),
    hosted(GivesUp, "time_limit"),
    hosted(FixedStart, "seeds"),
    hosted(ByChance, "seeds"),
    hosted(Unbounded),
    hosted(Doubles),
    hosted(Picture),
    hosted(Parts),
    hosted(NegativeStart),
    hosted(Several),
    hosted(Continuous),
    hosted(Sparse, "reward"),
    hosted(PaysLater, "timing"),
    hosted(Idle, "timing"),
    hosted(Blind, "bounds", "seeds"),
)
