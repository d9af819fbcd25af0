"""Checks of an environment of others before it is one of a vector: what its `reset` and `step` return.

The vector copies and converts what it is given, so that it cannot tell.
"""

import copy
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from envs import player
from envs.envpool_adapter import Alone, EnvPoolSpec
from envs.gymnasium_adapter import GymnasiumSpec, HostSpec, WorldSpec
from envs.validation import plays as playing
from envs.validation.findings import Check, Fault, conclude
from envs.validation.plays import Plan

_STEPS = 200  # at most
_VALUES = {"reset": ("observation", "info"), "step": ("observation", "reward", "terminated", "truncated", "info")}
_OUTSIDE = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)  # Gymnasium's, put around all


class Call(NamedTuple):
    """A reset or a step and what came of it. Steps are counted over all episodes, 0 is the first reset."""

    name: str
    step: int
    action: Any  # None for a reset
    action_before: Any  # a copy made before the call
    returned: Any  # None where it raised
    observation: Any  # a copy made at once
    error: Exception | None


class Calls:
    """One environment of the plan, played alone; after an end it is reset with the next seed."""

    def __init__(self, spec: HostSpec, plan: Plan) -> None:
        self.plan = plan
        self.environment = _made(spec)
        self.space: gymnasium.Space = self.environment.observation_space

    @cached_property
    def all(self) -> list[Call]:
        """Every reset and step of the plan, until one raises or returns what no other can follow."""
        with playing.held():
            calls = list(self._play())
        self.environment.close()
        return calls

    def _play(self) -> Iterator[Call]:
        actions = playing.random_actions(self.plan)[:_STEPS, :1]
        decode = player.decoder(self.environment.action_space)
        limit, seed, age, step = self.plan.spec.max_episode_steps, 0, 0, 0
        ended = True
        while step < len(actions):
            if ended:
                call = self._call("reset", step, None, lambda _: self.environment.reset(seed=seed))
                seed, age = seed + 1, 0
            else:
                action = decode(actions[step].reshape(1, -1).numpy())[0]
                step, age = step + 1, age + 1
                call = self._call("step", step, action, self.environment.step)
                if call.error:
                    return  # whether for its action or not, the checks of the vector tell
            yield call
            if not isinstance(call.returned, tuple) or len(call.returned) != len(_VALUES[call.name]):
                return
            ended = call.name == "step" and (age >= limit or any(bool(np.any(flag)) for flag in call.returned[2:4]))

    def _call(self, name: str, step: int, action: Any, function: Callable[[Any], Any]) -> Call:
        before = copy.deepcopy(action)
        try:
            returned = function(action)
        except Exception as error:  # whatever an environment raises
            return Call(name, step, action, before, None, None, error)
        observation = copy.deepcopy(returned[0]) if isinstance(returned, tuple) and returned else None
        return Call(name, step, action, before, returned, observation, None)


def validate(spec: HostSpec, plan: Plan) -> Iterator[Check]:
    """What is returned, whether it lies in the spaces, and whether it stays; the first failure ends them."""
    if isinstance(spec, WorldSpec):
        for each in CHECKS:
            name = each.__name__.removeprefix("check_")
            yield Check(name, "not applicable", {"reason": "worlds return dicts of agents; run parallel_api_test"})
        return
    calls = Calls(spec, plan)
    for check in CHECKS:
        done = check(calls)
        yield done
        if done.verdict == "fail":
            return


def check_returns(calls: Calls) -> Check:
    """`reset(seed=...)` returns an observation and a dict, `step` besides a reward, one number, and two flags."""
    for call in calls.all:
        fault = _return_fault(call)
        if fault is not None:
            return conclude("returns", [fault], {})
    return conclude("returns", [], {"calls": len(calls.all)})


def check_spaces(calls: Calls) -> Check:
    """Observations are of the declared space: their structure, shape and dtype, and choices within their number."""
    for call in calls.all:
        for element, wanted, found in _space_faults("observation", calls.space, call.observation):
            return conclude("spaces", [Fault(element, 0, call.step, wanted, found)], {})
    leaves = len(player.parts(calls.space))
    return conclude("spaces", [], {"observations": len(calls.all), "parts": leaves})


def check_overwriting(calls: Calls) -> Check:
    """An observation stays what it was when it was returned, whatever is called later, and so does an action given."""
    for call in calls.all:
        for element, wanted, found in (
            *_changes("observation", call.observation, call.returned[0]),
            *_changes("action", call.action_before, call.action),
        ):
            text = f"{wanted}, as it was {'returned' if element.startswith('observation') else 'given'}"
            return conclude("overwriting", [Fault(element, 0, call.step, text, found)], {})
    return conclude("overwriting", [], {"observations": len(calls.all)})


CHECKS: tuple[Callable[[Calls], Check], ...] = (check_returns, check_spaces, check_overwriting)


def _made(spec: HostSpec) -> Any:
    """One environment, without the wrappers that Gymnasium puts around all."""
    if isinstance(spec, EnvPoolSpec):
        return Alone(spec)
    assert isinstance(spec, GymnasiumSpec)
    environment = player.make(spec.id, spec.kwargs, spec.max_episode_steps)
    while isinstance(environment, _OUTSIDE):
        environment = environment.env
    return environment


def _return_fault(call: Call) -> Fault | None:
    if call.error is not None:
        return Fault(call.name, 0, call.step, "no exception", playing.exception_text(call.error))
    names, returned = _VALUES[call.name], call.returned
    if not isinstance(returned, tuple) or len(returned) != len(names):
        found = f"{len(returned)} values" if isinstance(returned, tuple) else _kind(returned)
        return Fault(call.name, 0, call.step, f"the values {', '.join(names)}", found)
    values = dict(zip(names, returned, strict=True))
    if not isinstance(values["info"], dict):
        return Fault("info", 0, call.step, "a dict", _kind(values["info"]))
    if call.name == "step":
        if not isinstance(values["reward"], int | float | np.integer | np.floating):
            return Fault("reward", 0, call.step, "one number", _kind(values["reward"]))
        for name in ("terminated", "truncated"):
            if not isinstance(values[name], bool | np.bool_):
                return Fault(name, 0, call.step, "True or False", f"{_kind(values[name])} {values[name]!r}")
    return None


def _space_faults(element: str, space: gymnasium.Space, value: Any) -> Iterator[tuple[str, str, str]]:
    """Element, what was wanted and what was found."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        named = isinstance(space, spaces.Dict)
        parts: dict[Any, Any] = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
        if not isinstance(value, dict if named else tuple):
            yield element, "a dict" if named else "a tuple", _kind(value)
        elif set(found := list(value) if named else list(range(len(value)))) != set(parts):
            yield element, f"the parts {list(parts)}", str(found)
        else:
            for key, part in parts.items():
                yield from _space_faults(f"{element}[{key!r}]", part, value[key])
    elif isinstance(space, spaces.Discrete):
        if not isinstance(value, int | np.integer) and not (isinstance(value, np.ndarray) and value.shape == ()):
            yield element, "an integer", _kind(value)
        elif not space.start <= value < space.start + space.n:
            yield element, f"{space.start} to {space.start + space.n - 1}", str(value)
    elif not isinstance(value, np.ndarray):
        yield element, f"an array of {space.dtype} {space.shape}", _kind(value)
    elif value.shape != space.shape:
        yield element, f"shape {space.shape}", f"shape {value.shape}"
    elif value.dtype != space.dtype:
        yield element, f"dtype {space.dtype}", f"dtype {value.dtype}"
    elif not isinstance(space, spaces.Box) and not space.contains(value):
        yield element, f"a value of {space}", str(value.tolist())


def _changes(element: str, before: Any, now: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(before, dict):
        for key in before:
            yield from _changes(f"{element}[{key!r}]", before[key], now[key])
    elif isinstance(before, tuple):
        for key, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _changes(f"{element}[{key}]", old, new)
    elif isinstance(before, np.ndarray):
        same = (before == now) | ((before != before) & (now != now))  # NaN stays NaN
        if not np.all(same):
            at = tuple(np.argwhere(~np.atleast_1d(same))[0].tolist()) if before.shape else ()
            yield element + "".join(f"[{i}]" for i in at), repr(before[at].item()), repr(now[at].item())


def _kind(value: Any) -> str:
    kind = type(value).__name__
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a value of type {kind}"
