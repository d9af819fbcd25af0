"""Classes of Gymnasium with one fault each. All of them walk along a line, `Walk`, which is sound."""

import random
import time
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from broken import Broken

LIMIT = 25


class Walk(gymnasium.Env):
    """A walker on a line that is pushed to either side; it dies beyond 1 or -1, and earns more near 0."""

    observation_space: spaces.Space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    action_space: spaces.Space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.begin()
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        assert self.action_space.contains(action), f"{action} is no action"
        self.move(self.push(action))
        return self.observe(), self.reward(), self.dead(), False, {}

    def begin(self) -> None:
        self.place, self.speed = self.np_random.uniform(-0.3, 0.3, 2)

    def push(self, action: Any) -> float:
        return 0.1 if action == 1 else -0.1

    def move(self, push: float) -> None:
        self.speed = float(np.clip(self.speed + push, -0.2, 0.2))
        self.place += self.speed

    def observe(self) -> Any:
        return np.array([self.place, self.speed], np.float32)

    def reward(self) -> Any:
        return 1.0 - abs(float(self.place))

    def dead(self) -> Any:
        return bool(abs(self.place) > 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# What is returned
# ---------------------------------------------------------------------------------------------------------------------


class OldReset(Walk):
    """Returns the observation alone."""

    def reset(self, **options: Any) -> Any:  # type: ignore[override]
        return super().reset(**options)[0]


class OldStep(Walk):
    """Returns one flag for both ends."""

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class TakesNoSeed(Walk):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class PaysAnArray(Walk):
    def reward(self) -> Any:
        return np.array([super().reward()])


class PaysAVector(Walk):
    """A reward for each of two aims."""

    def reward(self) -> Any:
        return np.array([super().reward(), -1.0])


class TellsAString(Walk):
    def dead(self) -> Any:
        return "yes" if super().dead() else ""


class TellsANumber(Walk):
    def dead(self) -> Any:
        return int(super().dead())


class InformsWithNone(Walk):
    def step(self, action: Any) -> tuple[Any, ...]:
        return *super().step(action)[:4], None


class RaisesInTheMidst(Walk):
    def move(self, push: float) -> None:
        super().move(push)
        if abs(self.place) > 0.7:
            raise ValueError("off the track")


# ---------------------------------------------------------------------------------------------------------------------
# Spaces and buffers
# ---------------------------------------------------------------------------------------------------------------------


class ObservesDoubles(Walk):
    def observe(self) -> Any:
        return np.array([self.place, self.speed])


class ObservesAList(Walk):
    def observe(self) -> Any:
        return [self.place, self.speed]


class ObservesAColumn(Walk):
    def observe(self) -> Any:
        return super().observe()[:, None]


class ForgetsAPart(Walk):
    observation_space = spaces.Dict({"place": spaces.Box(-2.0, 2.0, (1,)), "speed": spaces.Box(-2.0, 2.0, (1,))})

    def observe(self) -> Any:
        return {"place": super().observe()[:1]}


class CountsPlacesFromOne(Walk):
    """Of 4 places it observes 1 to 4."""

    observation_space = spaces.Discrete(4)

    def observe(self) -> Any:
        return int(np.clip(3 + 2 * self.place, 1, 4))


class SharesItsBuffer(Walk):
    """Returns one array, which it writes again and again."""

    def begin(self) -> None:
        self.buffer = getattr(self, "buffer", np.zeros(2, np.float32))
        super().begin()

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class SquaresActions(Walk):
    """Works on the action that it was given in place."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def push(self, action: Any) -> float:
        action *= 0.1
        return float(action[0])


class LeavesItsBox(Walk):
    observation_space = spaces.Box(-0.5, 0.5, (2,), np.float32)


class ObservesNotANumber(Walk):
    def observe(self) -> Any:
        return np.where(self.place < -0.5, np.float32(np.nan), super().observe())


class ScalesPixels(Walk):
    """Divides by 255 although its bounds are those of the pixels."""

    observation_space = spaces.Box(0.0, 255.0, (2,), np.float32)

    def observe(self) -> Any:
        return np.clip(0.5 + 0.25 * super().observe(), 0.0, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Actions
# ---------------------------------------------------------------------------------------------------------------------


class IgnoresTheStart(Walk):
    """Its actions are 1 and 2, and it looks them up from 0."""

    action_space = spaces.Discrete(2, start=1)

    def push(self, action: Any) -> float:
        return (-0.1, 0.1)[action]


class DeclaresOneTooMany(Walk):
    action_space = spaces.Discrete(3)

    def push(self, action: Any) -> float:
        return (-0.1, 0.1)[action]


class TakesAnything(Walk):
    """What is not 1 pushes to the left, 17 too."""

    def step(self, action: Any) -> tuple[Any, ...]:
        self.move(self.push(action))
        return self.observe(), self.reward(), self.dead(), False, {}


class ActsAlike(Walk):
    def push(self, action: Any) -> float:
        return 0.1


class ActsLate(Walk):
    """Plays the action of the step before."""

    def begin(self) -> None:
        super().begin()
        self.last = 0.0

    def push(self, action: Any) -> float:
        last, self.last = self.last, super().push(action)
        return last


# ---------------------------------------------------------------------------------------------------------------------
# Repetition
# ---------------------------------------------------------------------------------------------------------------------


class IgnoresItsSeed(Walk):
    """A generator of its own, seeded by the system."""

    def begin(self) -> None:
        self.place, self.speed = np.random.default_rng().uniform(-0.3, 0.3, 2)


class SeedsWhenMade(Walk):
    """A generator of its own, seeded once, so that each reset goes on where the last one stopped."""

    def __init__(self) -> None:
        self.source = np.random.default_rng(0)

    def begin(self) -> None:
        self.place, self.speed = self.source.uniform(-0.3, 0.3, 2)


class SeedsWithAConstant(Walk):
    """Every episode is the same, whatever the seed."""

    def begin(self) -> None:
        self.place, self.speed = np.random.default_rng(0).uniform(-0.3, 0.3, 2)


class SharesARandomState(Walk):
    def move(self, push: float) -> None:
        super().move(push + 1e-3 * np.random.randn())


class DrawsFromPython(Walk):
    def begin(self) -> None:
        super().begin()
        self.place += 0.1 * random.random()


class LooksAtTheClock(Walk):
    def move(self, push: float) -> None:
        super().move(push + 1e-2 * (time.monotonic() % 1.0))


class CountsItsObjects(Walk):
    """Each object that is made walks on another slope."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.slope = 1e-3 * self.made

    def move(self, push: float) -> None:
        super().move(push + self.slope)


class SharesItsPlace(Walk):
    """The place belongs to the class: all walkers stand in one."""

    where: ClassVar[list[float]] = [0.0]

    @property
    def place(self) -> float:
        return self.where[0]

    @place.setter
    def place(self, value: float) -> None:
        self.where[0] = value


# ---------------------------------------------------------------------------------------------------------------------
# Episodes
# ---------------------------------------------------------------------------------------------------------------------


class DoesNotReset(Walk):
    """A reset after a death goes on."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    begun = False

    def begin(self) -> None:
        if not self.begun or not self.dead():
            self.begun = True
            super().begin()


class KeepsItsWind(Walk):
    """The wind that an episode raises blows on in the next."""

    wind = 0.0

    def move(self, push: float) -> None:
        super().move(push + self.wind)
        self.wind += 1e-4


class CallsItsLimitADeath(Walk):
    """Has a time limit of its own, 12 steps, and calls it a death."""

    def begin(self) -> None:
        super().begin()
        self.age = 0

    def move(self, push: float) -> None:
        self.age += 1
        self.speed = 0.5 * self.speed + push
        self.place = 0.5 * self.place + self.speed

    def dead(self) -> Any:
        return self.age == 12


class CallsADeathItsLimit(Walk):
    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, False, terminated, info


# ---------------------------------------------------------------------------------------------------------------------
# Timing
# ---------------------------------------------------------------------------------------------------------------------


class PaysForTheStepBefore(Walk):
    def begin(self) -> None:
        super().begin()
        self.owed = 0.0

    def reward(self) -> Any:
        owed, self.owed = self.owed, super().reward()
        return owed


class ShowsTheStepBefore(Walk):
    def begin(self) -> None:
        super().begin()
        self.shown = super().observe()

    def observe(self) -> Any:
        shown, self.shown = self.shown, super().observe()
        return shown


class PaysMillions(Walk):
    def reward(self) -> Any:
        return 1e6 * super().reward()


FAULTS: tuple[Broken, ...] = (
    Broken(OldReset, "gymnasium", "returns", "reset"),
    Broken(OldStep, "gymnasium", "returns", "step"),
    Broken(TakesNoSeed, "gymnasium", "returns", "reset"),
    Broken(PaysAnArray, "gymnasium", "returns", "reward"),
    Broken(PaysAVector, "gymnasium", "returns", "reward"),
    Broken(TellsAString, "gymnasium", "returns", "terminated"),
    Broken(TellsANumber, "gymnasium", "returns", "terminated"),
    Broken(InformsWithNone, "gymnasium", "returns", "info"),
    Broken(RaisesInTheMidst, "gymnasium", "exceptions", "step"),
    Broken(ObservesDoubles, "gymnasium", "spaces", "observation"),
    Broken(ObservesAList, "gymnasium", "spaces", "observation"),
    Broken(ObservesAColumn, "gymnasium", "spaces", "observation"),
    Broken(ForgetsAPart, "gymnasium", "spaces", "observation"),
    Broken(CountsPlacesFromOne, "gymnasium", "spaces", "observation"),
    Broken(SharesItsBuffer, "gymnasium", "overwriting", "observation[0]"),
    Broken(SquaresActions, "gymnasium", "overwriting", "action[0]"),
    Broken(LeavesItsBox, "gymnasium", "bounds", "observation[0]"),
    Broken(ObservesNotANumber, "gymnasium", "finite", "observation[0]"),
    Broken(ScalesPixels, "gymnasium", "bounds", "observation[0]", "warning"),
    Broken(IgnoresTheStart, "gymnasium", "actions", "action"),
    Broken(DeclaresOneTooMany, "gymnasium", "actions", "action"),
    Broken(TakesAnything, "gymnasium", "actions", "action", "warning"),
    Broken(ActsAlike, "gymnasium", "timing", "action", "warning"),
    Broken(ActsLate, "gymnasium", "timing", "observation", "warning"),
    Broken(IgnoresItsSeed, "gymnasium", "determinism", "observation[0]"),
    Broken(SeedsWhenMade, "gymnasium", "reseeding", "observation[0]"),
    Broken(SeedsWithAConstant, "gymnasium", "seeds", "observation", "warning"),
    Broken(SharesARandomState, "gymnasium", "surroundings", "observation[0]"),
    Broken(DrawsFromPython, "gymnasium", "surroundings", "observation[0]"),
    Broken(LooksAtTheClock, "gymnasium", "surroundings", "observation[0]"),
    Broken(CountsItsObjects, "gymnasium", "determinism", "observation[0]"),
    Broken(SharesItsPlace, "gymnasium", "alone", "observation[0]"),
    Broken(DoesNotReset, "gymnasium", "resets", "observation[0]"),
    Broken(KeepsItsWind, "gymnasium", "carryover", "observation[0]"),
    Broken(CallsItsLimitADeath, "gymnasium", "time_limit", "terminated", "warning"),
    Broken(CallsADeathItsLimit, "gymnasium", "time_limit", "truncated", "warning"),
    Broken(PaysForTheStepBefore, "gymnasium", "timing", "reward", "warning"),
    Broken(ShowsTheStepBefore, "gymnasium", "timing", "observation", "warning"),
    Broken(PaysMillions, "gymnasium", "reward", "reward", "warning"),
)
