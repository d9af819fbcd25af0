"""Checks of actions: which are taken, which refused, what each changes and when."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from envs.spec import Box, Discrete, EnvSpec, MultiDiscrete
from envs.validation import plays as playing
from envs.validation.findings import (
    Check,
    Fault,
    bits,
    conclude,
    first_episode,
    is_poison,
    suspicion,
)
from envs.validation.plays import SHORT_LIMIT, Plays, StepError, Trajectory
from envs.validation.repeats import cut

_CHOICES = 64  # at most, that are played one by one
_AT = 2  # the row of the action that is changed: that of the third step

Action = int | float | Sequence[int] | Sequence[float]


def check_actions(plays: Plays) -> Check:
    """Every declared action is accepted, and what is none is refused: by an exception, or with NaN as its reward or in
    what is observed.

    A warning where it is played like an action: a policy that is off by one would go unseen.
    """
    spec = plays.plan.spec
    faults: list[Fault | None] = []
    declared = declared_actions(spec)
    for action in declared:
        try:
            refused = _refused(_held(plays, action, 1))
        except StepError as error:
            refused, found = torch.ones(1, dtype=torch.bool), str(error)
        else:
            found = "NaN"
        if bool(refused.all()) and not _always_refuses(plays, declared, action):
            faults.append(Fault("action", 0, 1, f"{action} to be accepted, as declared", found))
    undeclared = undeclared_actions(spec)
    faults += [_acceptance(plays, action) for action in undeclared]
    return conclude("actions", faults, {"accepted": len(declared), "refused": len(undeclared)})


def check_clipping(plays: Plays) -> Check:
    """A continuous action beyond its bounds acts as the bound."""
    action, faults = plays.plan.spec.action, []
    if isinstance(action, Box):
        ends = playing.finite_bounds(action.low, action.high)
        for bounds, end, sign in zip((action.low, action.high), ends, (-1.0, 1.0), strict=True):
            beyond = np.where(np.isfinite(bounds), end + sign * (1.0 + abs(end)), end)
            differs = (_held(plays, beyond.tolist()).rows() != _held(plays, end.tolist()).rows()).any(1)
            if bool(differs.any()):
                wanted = f"{beyond.tolist()} to act as the bound {end.tolist()}"
                faults.append(Fault("action", int(differs.nonzero()[0]), None, wanted, "another trajectory"))
    return conclude("clipping", faults, {"continuous": isinstance(action, Box)})


def check_timing(plays: Plays) -> Check:
    """What an action changes, and when: the same seeds and actions, and another action on one step.

    Warnings: actions that act alike; observations, or only rewards, that react a fixed number of steps too late.
    """
    spec = plays.plan.spec
    actions = plays.actions[: 2 * SHORT_LIMIT]
    usual, changed = cut(plays.usual, len(actions)), actions.clone()
    changed[_AT] = another(spec, actions[_AT])
    altered = plays.play(changed)

    ended = usual.ended[_AT:] | altered.ended[_AT:]
    within = first_episode(ended)
    observed = (bits(usual.out.final_observation) != bits(altered.out.final_observation)).any(2)[_AT:] & within
    rewarded = (bits(usual.out.reward) != bits(altered.out.reward))[_AT:] & within
    flagged = (usual.ended != altered.ended)[_AT:] & within
    observation, reward = _lag(observed), _lag(rewarded)
    lived = within.sum(0)
    saw = torch.where(observation == 0, lived, 0)  # a reward is late where the observation was not
    faults = [_late("observation", observation, lived), _late("reward", reward, saw)]
    acted = observed.any() | rewarded.any() | flagged.any()
    alike = _alike(plays)
    if alike or not bool(acted):
        names = f"{alike[0]} and {alike[1]}" if alike else "an action"
        wanted = f"actions {names} to differ" if alike else "an action to change something"
        found = f"the same play of {plays.plan.num_envs} environments for {2 * SHORT_LIMIT} steps"
        faults.append(suspicion("action", None, None if alike else _AT + 1, wanted, found))
    lags = {"observation": observation, "reward": reward}
    evidence = {f"{name}_lag": _usual_lag(lag, len(within)) for name, lag in lags.items()}
    return conclude("timing", faults, evidence)


def declared_actions(spec: EnvSpec) -> Sequence[Action]:
    """Each choice, one at a time; of continuous actions the two ends and the middle. At most 64."""
    action = spec.action
    if isinstance(action, Discrete):
        return list(range(action.n))[:_CHOICES]
    if isinstance(action, MultiDiscrete):
        return _one_choice_at_a_time(action)[:_CHOICES]
    low, high = playing.finite_bounds(action.low, action.high)
    return [low.tolist(), high.tolist(), (0.5 * (low + high)).tolist()]


def undeclared_actions(spec: EnvSpec) -> list[Action]:
    """The nearest integers that are no choice; of continuous actions NaN."""
    action = spec.action
    if isinstance(action, Discrete):
        return [action.n, -1]
    if isinstance(action, MultiDiscrete):
        return [list(action.sizes), [-1] * len(action.sizes)]
    return [[float("nan")] * len(action.low)]


def beside(plays: Plays, action: Action) -> Tensor:
    """(1, N, ...) The first actions of the plan, but this one in environment 0."""
    actions = plays.actions[:1].clone()
    actions[0, 0] = torch.tensor(action, dtype=actions.dtype)
    return actions


def another(spec: EnvSpec, actions: Tensor) -> Tensor:
    """(N, ...) Another action for each: the next choice, or the end of the bounds that is farther away."""
    action = spec.action
    if isinstance(action, Discrete):
        return (actions + 1) % action.n
    if isinstance(action, MultiDiscrete):
        return (actions + 1) % torch.tensor(action.sizes, dtype=torch.int32)
    low, high = (torch.tensor(bound, dtype=torch.float32) for bound in playing.finite_bounds(action.low, action.high))
    return torch.where(actions > 0.5 * (low + high), low, high)


def _one_choice_at_a_time(action: MultiDiscrete) -> list[Action]:
    """Every action in which at most one choice is not 0."""
    wide = range(len(action.sizes))
    others = [[value * (k == choice) for k in wide] for choice in wide for value in range(1, action.sizes[choice])]
    return [[0 for _ in wide], *others]


def _held(plays: Plays, action: Action, steps: int = 2 * SHORT_LIMIT) -> Trajectory:
    """The same action in all environments for some steps."""
    sample = plays.actions[:steps]
    return plays.play(torch.tensor(action, dtype=sample.dtype).expand_as(sample).contiguous())


def _refused(played: Trajectory) -> Tensor:
    """(N,) bool: the first step's reward or observation is NaN, written by the environment."""
    out = played.out
    seen = out.final_observation[0].isnan() & ~is_poison(out.final_observation[0])
    return (out.reward[0].isnan() & ~is_poison(out.reward[0])) | seen.any(1)


def _always_refuses(plays: Plays, declared: Sequence[Action], action: Action) -> bool:
    """Whether all other declared actions end likewise: the fault is then none of this one's."""
    for other in declared:
        try:
            if other != action and not bool(_refused(_held(plays, other, 1)).all()):
                return False
        except StepError:
            continue
    return True


def _acceptance(plays: Plays, action: Action) -> Fault | None:
    """Environment 0 is given what is no action."""
    try:
        found = plays.play(beside(plays, action))
    except StepError:
        return None
    if bool(_refused(found)[0]):
        return None
    wanted = f"{action} to be refused, which is no action: by an exception, or with NaN"
    return suspicion("action", 0, 1, wanted, f"reward {float(found.out.reward[0, 0])!r}")


def _alike(plays: Plays) -> tuple[Action, Action] | None:
    """The first two actions that, held, act alike."""
    played = [(action, _held(plays, action).rows()) for action in declared_actions(plays.plan.spec)]
    for (action, rows), (other, others) in itertools.combinations(played, 2):
        if torch.equal(rows, others):
            return action, other
    return None


def _lag(differs: Tensor) -> Tensor:
    """(N,) int64: the first row of (T, N) that is true; T where none is."""
    return torch.where(differs.any(0), differs.long().argmax(0), len(differs))


def _late(element: str, lag: Tensor, lived: Tensor) -> Fault | None:
    """A warning where half or more of those that `lived` so long react, all the same number of steps late."""
    reacted = lag < lived
    count, steps = int(reacted.sum()), int(lag[reacted].min()) if bool(reacted.any()) else 0
    able = int((lived > steps).sum())
    if steps == 0 or count < max(2, able / 2) or int(lag[reacted].max()) > steps:
        return None
    wanted, found = "to react on the step of an action", f"{steps} later, in {count} of {able} environments"
    return suspicion(element, int(reacted.nonzero()[0]), _AT + 1 + steps, wanted, found)


def _usual_lag(lag: Tensor, never: int) -> int | None:
    """The commonest of those that reacted."""
    reacted = Counter(lag[lag < never].tolist())
    return reacted.most_common(1)[0][0] if reacted else None
