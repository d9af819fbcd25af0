"""Plays for the checks: fixed random actions into poisoned buffers, under a clock and global generators that are held.

Whatever an environment draws from the clock or from a global random state is then the same in every play, but where a
check changes it on purpose.
"""

import contextlib
import dataclasses
import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.spec import Discrete, EnvSpec, MultiDiscrete
from envs.validation import findings
from envs.validation.findings import POISON, bits
from envs.vector import StepOutput, VectorEnv, empty_output, worlds
from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError

Factory = Callable[[EnvSpec, int, int], VectorEnv]  # (spec, number of environments, run seed)

SHORT_LIMIT = 5  # a time limit that untrained play reaches
TRAIN, SELECTION, HELD_OUT = 0, 1, 2  # the two top bits of an episode seed
_GUARD = 64  # elements of poison before and after each buffer
_NOON = 1.0e9  # seconds since 1970 at which every play begins
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time")


@dataclass(frozen=True)
class Plan:
    """What to play: `steps` steps of `num_envs` environments whose training episodes follow from `run_seed`."""

    spec: EnvSpec
    num_envs: int
    steps: int
    run_seed: int

    def __post_init__(self) -> None:
        if self.steps < 2 * SHORT_LIMIT:
            raise UserError(f"validate.steps must be at least {2 * SHORT_LIMIT}, to reach an end; got {self.steps}")

    def limit(self, max_episode_steps: int) -> "Plan":
        """The same plan with another time limit."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, max_episode_steps=max_episode_steps))


class Trajectory(NamedTuple):
    """What T steps of N environments wrote. Row t of `out` is step t + 1; row t of the seeds holds after step t."""

    first: Tensor  # (N, D)
    actions: Tensor  # (T, N, ...), as they were after the steps
    out: StepOutput  # every field (T, N, ...)
    episode_seed: Tensor  # (T + 1, N) int64
    episode_index: Tensor  # (T + 1, N) int64
    guards: dict[str, Tensor]  # the poison around each buffer
    as_written: tuple[Tensor, StepOutput] | None  # copies of `first` and `out`, made at once

    @property
    def ended(self) -> Tensor:
        """(T, N) bool."""
        return findings.ended(self.out)

    def rows(self) -> Tensor:
        """(N, W) the bits of all that was observed, rewarded and ended, one row an environment."""
        return _rows(self.first, self.out)

    def first_rows(self) -> Tensor:
        """Likewise of each environment's first episode alone, which is the one that a reset's seeds are of."""
        within = findings.first_episode(self.ended)
        masks = {"observation": within & ~self.ended}  # after an end it is the next episode's
        kept = []
        for name, values in self.out._asdict().items():
            mask = masks.get(name, within)
            kept.append(values.where(mask[..., None] if values.ndim > 2 else mask, 0))
        return _rows(self.first, StepOutput(*kept))


def _rows(first: Tensor, out: StepOutput) -> Tensor:
    flags = torch.stack([out.terminated, out.truncated], dim=-1).int()
    parts = [first[None], out.observation, out.final_observation, out.reward[..., None], flags]
    return torch.cat([bits(part).transpose(0, 1).flatten(1) for part in parts], dim=1)


class StepError(Exception):
    """The environment raised an exception; `step` is 0 for the reset. The text is the first cause's."""

    def __init__(self, step: int, error: Exception) -> None:
        super().__init__(exception_text(error))
        self.step = step


def exception_text(error: BaseException) -> str:
    """In one line: kind and text of what an exception came of, and the file and line that it was raised in."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    place = traceback.extract_tb(error.__traceback__)
    return f"{text} ({Path(place[-1].filename).name}, line {place[-1].lineno})" if place else text


# ---------------------------------------------------------------------------------------------------------------------
# Actions and seeds
# ---------------------------------------------------------------------------------------------------------------------


def random_actions(plan: Plan) -> Tensor:
    """Actions for the whole plan, int32 or within the float32 bounds; the same on every machine."""
    source = np.random.RandomState(plan.run_seed % 2**32)  # its stream is frozen, unlike that of newer generators
    action = plan.spec.action
    if isinstance(action, Discrete):
        return torch.from_numpy((source.random_sample((plan.steps, plan.num_envs)) * action.n).astype(np.int32))
    if isinstance(action, MultiDiscrete):
        uniform = source.random_sample((plan.steps, plan.num_envs, len(action.sizes)))
        return torch.from_numpy((uniform * np.array(action.sizes)).astype(np.int32))
    low, high = finite_bounds(action.low, action.high)
    uniform = source.random_sample((plan.steps, plan.num_envs, len(low)))
    return torch.from_numpy((low + (high - low) * uniform).astype(np.float32))


def finite_bounds(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(A,) each: the bounds, and where there is none, 2 from the other one, or -1 and 1."""
    below, above = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    open_below, open_above = ~np.isfinite(below), ~np.isfinite(above)
    lowest = np.where(open_below, np.where(open_above, -1.0, above - 2.0), below)
    highest = np.where(open_above, np.where(open_below, 1.0, below + 2.0), above)
    return lowest, highest


def training_seeds(plan: Plan, episode_index: Tensor) -> Tensor:
    """Closed form of the training seeds of episodes (..., N), as int64 bit patterns."""
    environment = worlds(plan.spec, plan.num_envs).expand(episode_index.shape)
    return episode_seeds(plan.run_seed, environment.flatten().contiguous(), episode_index.flatten()).view(
        episode_index.shape
    )


def evaluation_seeds(split: int, count: int) -> Tensor:
    """The first `count` seeds of an evaluation split: the index below the split's two bits, as int64 bit patterns."""
    return torch.from_numpy((np.arange(count, dtype=np.uint64) | np.uint64(split << 62)).view(np.int64))


def split_seeds(plan: Plan, split: int) -> Tensor:
    """(N,) int64: an evaluation seed for each environment; the agents of a world have theirs in common."""
    return evaluation_seeds(split, plan.num_envs)[worlds(plan.spec, plan.num_envs)]


def rows_of(spec: EnvSpec, at: Tensor) -> Tensor:
    """(E, 2) of step and world, to (E * agents, 2) of step and environment: each agent of the world."""
    agents = torch.arange(spec.agents).repeat(len(at))
    step, world = at.repeat_interleave(spec.agents, 0).T
    return torch.stack([step, world * spec.agents + agents], 1)


# ---------------------------------------------------------------------------------------------------------------------
# Playing
# ---------------------------------------------------------------------------------------------------------------------


def seed_globally(seed: int) -> None:
    """Seeds the random states that a process shares: Python's, NumPy's and torch's."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def global_states() -> dict[str, bytes]:
    """The random states that a process shares, by the name of their module."""
    legacy = np.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    return {
        "random": repr(random.getstate()).encode(),
        "numpy.random": legacy["state"]["key"].tobytes() + repr(legacy["state"]["pos"]).encode(),
        "torch": torch.default_generator.get_state().numpy().tobytes(),
    }


@contextlib.contextmanager
def held(seconds: float = 0.0) -> Iterator[None]:
    """Within, the global random states are seeded with 0 and a clock begins `seconds` after noon, a millisecond a look.

    They are as before afterwards. The clock is what the functions of `time` say.
    """
    python, legacy, tensor = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    clocks = {name: getattr(time, name) for each in _CLOCKS for name in (each, f"{each}_ns")}
    looks = 0

    def now() -> float:
        nonlocal looks
        looks += 1
        return _NOON + seconds + 1e-3 * looks

    try:
        seed_globally(0)
        for name in clocks:
            setattr(time, name, (lambda: int(now() * 1e9)) if name.endswith("_ns") else now)
        yield
    finally:
        for name, clock in clocks.items():
            setattr(time, name, clock)
        random.setstate(python)
        np.random.set_state(legacy)
        torch.default_generator.set_state(tensor)


def record(
    env: VectorEnv,
    actions: Tensor,
    seeds: Tensor | None = None,
    before: Callable[[int], object] | None = None,
    copied: bool = False,
) -> Trajectory:
    """Resets and plays `actions` into poisoned buffers with poison around them; the result lies on the CPU.

    `before` is called with the number of each step, 0 for the reset, ahead of it. `copied`: what a call writes is
    copied before the next one.
    """
    steps, num_envs = actions.shape[:2]
    device, size = env.device, env.spec.observation_size
    guarded = {"first": _poisoned_buffer((num_envs, size), torch.float32, device)}
    for name, row in empty_output(env.spec, num_envs, torch.device("meta"))._asdict().items():
        guarded[name] = _poisoned_buffer((steps, *row.shape), row.dtype, device)
    first = guarded["first"][0]
    out = StepOutput(**{name: buffer for name, (buffer, _) in guarded.items() if name != "first"})
    sent = actions.to(device, copy=True)
    copies: list[tuple[Tensor, ...]] = []

    step = 0
    try:
        if before:
            before(0)
        env.reset(first, None if seeds is None else seeds.to(device))
        if copied:
            copies.append((first.clone(),))
        states = [_identity(env)]
        for step in range(1, steps + 1):
            if before:
                before(step)
            row = StepOutput(*(values[step - 1] for values in out))
            env.step(sent[step - 1], row)
            if copied:
                copies.append(tuple(values.clone() for values in row))
            states.append(_identity(env))
    except MemoryError:
        raise
    except Exception as error:  # whatever an environment raises
        raise StepError(step, error) from error
    return Trajectory(
        first=first.cpu(),
        actions=sent.cpu(),
        out=StepOutput(*(values.cpu() for values in out)),
        episode_seed=torch.stack([seed for seed, _ in states]),
        episode_index=torch.stack([index for _, index in states]),
        guards={name: torch.cat([all_[:_GUARD], all_[-_GUARD:]]).cpu() for name, (_, all_) in guarded.items()},
        as_written=(
            copies[0][0].cpu(),
            StepOutput(*(torch.stack(rows).cpu() for rows in zip(*copies[1:], strict=True))),
        )
        if copied
        else None,
    )


def _identity(env: VectorEnv) -> tuple[Tensor, Tensor]:
    state = env.state()
    return state["episode_seed"].to("cpu", copy=True), state["episode_index"].to("cpu", copy=True)


def _poisoned_buffer(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """A buffer full of poison and the whole allocation, which has poison before and after it too."""
    count = int(np.prod(shape))
    whole = torch.empty(count + 2 * _GUARD, dtype=dtype, device=device)
    bits(whole).fill_(POISON[dtype])
    return whole[_GUARD : _GUARD + count].view(shape), whole


class Plays:
    """A factory and a plan; what several checks look at is played once. Each play has an environment of its own."""

    def __init__(self, factory: Factory, plan: Plan) -> None:
        self.factory, self.plan = factory, plan

    @cached_property
    def actions(self) -> Tensor:
        """(T, N, ...) of the whole plan."""
        return random_actions(self.plan)

    @cached_property
    def usual(self) -> Trajectory:
        """The whole plan."""
        return self.play(self.actions)

    @cached_property
    def short(self) -> Trajectory:
        """With a time limit that every episode meets, long enough for some episodes of each environment."""
        return self.play(self.actions[: 4 * SHORT_LIMIT], self.plan.limit(SHORT_LIMIT))

    @cached_property
    def alike(self) -> Tensor:
        """(5, N, ...) Few actions, the same in all environments: what differs then is their seeds'."""
        return self.actions[:SHORT_LIMIT, :1].expand_as(self.actions[:SHORT_LIMIT]).contiguous()

    @cached_property
    def training(self) -> Trajectory:
        """These, on the first training episodes."""
        return self.play(self.alike)

    def play(
        self,
        actions: Tensor,
        plan: Plan | None = None,
        seeds: Tensor | None = None,
        copied: bool = False,
    ) -> Trajectory:
        """These actions by a new vector of as many environments."""
        plan = plan or self.plan
        with held():
            return record(self.factory(plan.spec, actions.shape[1], plan.run_seed), actions, seeds, copied=copied)
