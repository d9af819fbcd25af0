"""Checks of what a step writes: all of it, nothing else, and what the specification says."""

import numpy as np
import torch
from torch import Tensor

from envs.validation.findings import Check, Fault, bits, conclude, difference, is_poison, suspicion, where
from envs.validation.plays import Plays

_SMALL, _LARGE = 1e-3, 1e3  # rewards beyond these are hardly learned from as they are
_STEPS = 60  # of the play whose outputs are copied
_USED = 0.01  # the share of its bounds that some component of an observation is expected to move through


def check_metadata(plays: Plays) -> Check:
    """What the environment says of itself is what was asked for: specification, number, and the sizes of the seeds."""
    plan, spec = plays.plan, plays.plan.spec
    env = plays.factory(spec, plan.num_envs, plan.run_seed)
    faults: list[Fault | None] = []
    if env.spec != spec:
        faults.append(Fault("spec", None, None, str(spec.fields()), str(env.spec.fields())))
    if env.num_envs != plan.num_envs:
        faults.append(Fault("num_envs", None, None, str(plan.num_envs), str(env.num_envs)))
    for name in ("episode_seed", "episode_index"):
        found = env.state()[name]
        if (found.dtype, tuple(found.shape)) != (torch.int64, (plan.num_envs,)):
            wanted, got = f"int64 ({plan.num_envs},)", f"{found.dtype} {tuple(found.shape)}".removeprefix("torch.")
            faults.append(Fault(name, None, None, wanted, got))
    return conclude("metadata", faults, {"environments": plan.num_envs, "observation_size": spec.observation_size})


def check_exceptions(plays: Plays) -> Check:
    """The whole plan is played without an exception."""
    return conclude("exceptions", [], {"steps": len(plays.usual.out.reward)})


def check_buffers(plays: Plays) -> Check:
    """Every step writes every element of every output, and nothing beside it (buffers are poisoned first)."""
    played = plays.usual
    faults = [_poisoned("observation", played.first[None], 0)]
    faults += [_poisoned(name, values, 1) for name, values in played.out._asdict().items()]
    for name, guard in played.guards.items():
        if not bool(is_poison(guard).all()):
            faults.append(
                Fault(name, None, None, "nothing written outside of the buffer", "an element beside it changed")
            )
    elements = sum(values[0].numel() for values in played.out)
    return conclude("buffers", faults, {"elements": elements, "steps": plays.plan.steps})


def check_aliasing(plays: Plays) -> Check:
    """A step changes neither what an earlier step wrote nor the actions that it was given."""
    given, text = plays.actions[:_STEPS], "{}, as it was first written"
    played = plays.play(given, copied=True)
    assert played.as_written
    first, out = played.as_written
    faults = [difference("observation", first[None], played.first[None], 0, text)]
    for name, values in out._asdict().items():
        faults.append(difference(name, values, getattr(played.out, name), 1, text))
    faults.append(difference("action", given, played.actions, 1, "{}, as it was given"))
    return conclude("aliasing", faults, {"steps": len(given)})


def check_finite(plays: Plays) -> Check:
    """No observation, reward or return is NaN or infinite."""
    played = plays.usual
    written = [("observation", played.first[None], 0)]
    written += [(name, values, 1) for name, values in played.out._asdict().items() if values.is_floating_point()]
    faults = [
        where(name, ~torch.isfinite(values) & ~is_poison(values), values, "a finite number", first_step)
        for name, values, first_step in written
    ]
    return conclude("finite", faults, {"steps": plays.plan.steps})


def check_bounds(plays: Plays) -> Check:
    """Observations and rewards stay within the declared bounds, flags are 0 or 1.

    A warning where nothing that is observed changes within an episode, and where no component moves through as much as
    a hundredth of its bounds: they, or the observation, may be scaled wrong.
    """
    spec, out = plays.plan.spec, plays.usual.out
    low, high = (torch.tensor(b, dtype=torch.float32) for b in (spec.observation_low, spec.observation_high))
    observed = (
        ("observation", plays.usual.first[None], 0),
        ("observation", out.observation, 1),
        ("final_observation", out.final_observation, 1),
    )
    faults: list[Fault | None] = []
    for name, values, first_step in observed:
        outside = ((values < low) | (values > high)) & values.isfinite()
        fault = where(name, outside, values, "", first_step)
        if fault is not None:
            k = int(outside.nonzero()[0, 2])
            fault = fault._replace(wanted=f"within [{spec.observation_low[k]:.6g}, {spec.observation_high[k]:.6g}]")
        faults.append(fault)
    least, most = (np.float32(bound) for bound in spec.reward_range)
    slack = 4 * np.spacing(max(abs(least), abs(most))) if np.isfinite([least, most]).all() else np.float32(0)
    outside = ((out.reward < float(least - slack)) | (out.reward > float(most + slack))) & ~is_poison(out.reward)
    faults.append(where("reward", outside, out.reward, f"within {list(spec.reward_range)}", 1))
    for name, flags in (("terminated", out.terminated), ("truncated", out.truncated)):
        faults.append(where(name, (flags > 1) & ~is_poison(flags), flags, "0 or 1", 1))

    before = torch.cat([plays.usual.first[None], out.observation[:-1]])
    evidence = {"observations": [0.0, 0.0], "rewards": [float(out.reward.min()), float(out.reward.max())]}
    if not bool((bits(before) != bits(out.final_observation)).any()):
        found = f"the same on all {plays.plan.steps} steps" if spec.observation_size else "nothing, they are of size 0"
        faults.append(suspicion("observation", None, None, "something that changes within an episode", found))
        return conclude("bounds", faults, evidence)
    lowest = torch.stack([values.amin((0, 1)) for _, values, _ in observed]).amin(0)
    highest = torch.stack([values.amax((0, 1)) for _, values, _ in observed]).amax(0)
    width = high.double() - low.double()
    if bool((width.isfinite() & (width > 0)).all()) and float((used := (highest - lowest) / width).max()) < _USED:
        k = int(used.argmax())
        wanted = f"values that move through [{low[k]:.6g}, {high[k]:.6g}]"
        found = f"{lowest[k]:.6g} to {highest[k]:.6g}, and others move less"
        faults.append(suspicion(f"observation[{k}]", None, None, wanted, found))
    evidence["observations"] = [float(lowest.min()), float(highest.max())]
    return conclude("bounds", faults, evidence)


def check_reward(plays: Plays) -> Check:
    """A warning where rewards are of a size that is hardly learned from as it is, or where whole episodes had none."""
    reward, episodes = plays.usual.out.reward, int(plays.usual.ended.sum())
    size = reward[reward.isfinite()].abs()
    largest = float(size.max()) if len(size) else 0.0
    faults = []
    if largest == 0.0 and episodes:
        shown = f"0 on every step of {episodes} episodes"
        faults.append(suspicion("reward", None, None, "a reward that random play meets", shown))
    elif largest and not _SMALL <= largest <= _LARGE:
        wanted = f"a largest reward from {_SMALL} to {_LARGE}: scale it, or normalize rewards"
        step, environment = (int(i) for i in (reward.abs() == largest).nonzero()[0])
        faults.append(suspicion("reward", environment, step + 1, wanted, repr(float(reward[step, environment]))))
    return conclude("reward", faults, {"largest": largest, "nonzero": int((reward != 0).sum())})


def _poisoned(name: str, values: Tensor, first_step: int) -> Fault | None:
    return where(name, is_poison(values), None, "to be written", first_step, "still what the buffer held before")
