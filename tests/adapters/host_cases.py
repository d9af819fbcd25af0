"""Gymnasium environments for the tests, small enough to know every number of: `env.id=host_cases:Counting`."""

import os
import signal
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv


class Counting(gymnasium.Env):
    """Observes how many steps its episode has had and earns as much; action 1 is a death."""

    observation_space = spaces.Box(0, np.inf, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.full(1, self.count, np.float32), self.count, action == 1, False, {}


class Seen(Counting):
    """Observes the seed of its episode, its upper and its lower 16 bits; earns a number that its generator draws."""

    observation_space = spaces.Box(0, 2**16, (2,), np.int64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed = divmod(int(seed), 2**16)
        return np.array(self.seed), {}

    def step(self, action: Any) -> Any:
        _, _, terminated, truncated, _ = super().step(action)
        return np.array(self.seed), self.np_random.random(), terminated, truncated, {}


class Mixed(Counting):
    """An observation of every kind that there is, the same at each step."""

    observation_space = spaces.Dict(
        {
            "wide": spaces.Box(-1e300, 1.0, (2, 2), np.float64),
            "pixels": spaces.Box(0, 255, (3,), np.uint8),
            "choice": spaces.Discrete(3, start=-1),
            "choices": spaces.MultiDiscrete([2, 3], start=[5, 0]),
            "bits": spaces.MultiBinary(2),
            "pair": spaces.Tuple((spaces.Box(0, 9, (1,)), spaces.Discrete(2))),
        }
    )
    value = {  # noqa: RUF012
        "wide": np.array([[1 / 3, -2.0], [0.5, 1.0]]),
        "pixels": np.array([0, 51, 255], np.uint8),
        "choice": np.int64(1),
        "choices": np.array([6, 1]),
        "bits": np.array([1, 0], np.int8),
        "pair": (np.array([7.0], np.float32), 1),
    }

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        return self.value, {}

    def step(self, action: Any) -> Any:
        return self.value, *super().step(action)[1:]


class Echo(gymnasium.Env):
    """Observes the action that it is given; its space is an argument, in words."""

    def __init__(self, space: str = "spaces.Discrete(2)") -> None:
        self.action_space = eval(space)
        self.size = int(np.prod(self.action_space.shape or (1,)))
        self.observation_space = spaces.Box(-np.inf, np.inf, (self.size,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(self.size, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), (action, self.action_space)
        return np.asarray(action, np.float32).reshape(-1), 0.0, False, False, {}


class Faulty(Counting):
    """At the third step of an episode whose seed is odd it raises, hangs, dies, or observes what it must not."""

    def __init__(self, how: str) -> None:
        self.how = how

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.odd = bool(int(seed) % 2)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        answer = super().step(action)
        if self.odd and self.count == 3:
            if self.how == "raises":
                raise ValueError("out\nof rope")
            if self.how == "hangs":
                time.sleep(60)
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "shape":
                return np.zeros((4, 1)), *answer[1:]
            if self.how == "reward":
                return answer[0], np.zeros(2), *answer[2:]
            if self.how == "nan":
                return answer[0], float("nan"), *answer[2:]
        return answer


class Slow(CartPoleEnv):
    """A step takes a fiftieth of a second, in which nothing is computed."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return super().step(action)


class Text(Counting):
    observation_space = spaces.Dict({"a": spaces.Dict({"note": spaces.Text(5)})})


class Unlimited(Counting):
    action_space = spaces.Box(-np.inf, np.inf, (1,))


class Whole(Counting):
    action_space = spaces.Box(0, 3, (1,), np.int64)


class Nested(Counting):
    action_space = spaces.Dict({"a": spaces.Discrete(2)})


class Empty(Counting):
    observation_space = spaces.Box(0, 1, (0,))


class Stranger:
    """No environment of Gymnasium's."""


number = 3
