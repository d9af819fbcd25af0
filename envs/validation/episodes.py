"""Checks of how episodes begin, end and are counted, and of what survives an end that should not."""

import torch
from torch import Tensor

from envs.validation import findings
from envs.validation import plays as playing
from envs.validation.effects import another
from envs.validation.findings import (
    Check,
    Fault,
    bits,
    conclude,
    difference,
    first_episode,
    identities,
    is_coincidence,
    output_differences,
    suspicion,
    where,
)
from envs.validation.plays import SHORT_LIMIT, Plan, Plays, Trajectory, record
from envs.validation.repeats import cut, differences
from envs.vector import StepOutput

_STEPS = 60  # played before and after a reset
_EPISODES = 64  # at most, that are played once more
_ENDS = 200  # at most, whose last observations are compared with each other


def check_resets(plays: Plays) -> Check:
    """After an end the observation is the next episode's first, and the final observation the old one's last.

    Where later episodes take no seed, the first is told by their play alone (`check_carryover`). A warning where no
    death ever changes what is observed, though other steps do: the last observation may be missing.
    """
    faults = [_next_fault(plays, plays.usual), *_final_faults(plays.usual)]

    # Truncated early, an episode leaves as its final observation what it would have gone on from.
    actions = plays.actions[:SHORT_LIMIT]
    short, uncut = cut(plays.short, SHORT_LIMIT), plays.play(actions, plays.plan.limit(SHORT_LIMIT + 1))
    faults.append(_next_fault(plays, short))
    going_on = ~uncut.ended.any(0)
    expected = torch.where(going_on[:, None], uncut.out.observation[-1], short.out.final_observation[-1])
    faults.append(difference("final_observation", expected[None], short.out.final_observation[-1:], SHORT_LIMIT))
    evidence: dict[str, object] = {"ends": int(plays.usual.ended.sum()), "truncations": int(going_on.sum())}
    if not plays.plan.spec.seeded_at_reset:
        evidence["first_observations"] = "not compared: only the first episode takes a seed"
    return conclude("resets", faults, evidence)


def check_ends(plays: Plays) -> Check:
    """Every episode ends, by the time limit at the latest, and a new one begins where an end is told and only there."""
    faults: list[Fault | None] = []
    for played in (plays.usual, plays.short):
        told = torch.cat([torch.zeros_like(played.episode_index[:1]), played.ended.long().cumsum(0)])
        faults.append(difference("episode_index", told, played.episode_index, 0, "{}, the ends that the flags tell"))
    ended = plays.short.ended[: 2 * SHORT_LIMIT]
    endless = ~ended.any(0)
    if bool(endless.any()):
        wanted, found = f"an end within {SHORT_LIMIT} steps, the time limit given", f"none in {len(ended)} steps"
        faults.append(Fault("truncated", int(endless.nonzero()[0]), SHORT_LIMIT, wanted, found))
    return conclude("ends", faults, {"ends": int(plays.usual.ended.sum() + plays.short.ended.sum())})


def check_time_limit(plays: Plays) -> Check:
    """Episodes are truncated at the limit; it is not called a death; both may fall on one step.

    A warning where an episode is truncated before the limit, and where all die at the same age whatever they do: a time
    limit of the environment's own, which is told as a death, looks so.
    """
    plan, short = plays.plan, plays.short
    limit = plan.spec.max_episode_steps
    free = plays.usual if limit > plan.steps else plays.play(plays.actions, plan.limit(plan.steps + 1))
    faults: list[Fault | None] = []
    for played, limited in ((short, SHORT_LIMIT), (plays.usual, limit)):
        length, truncated = _lengths(played), played.out.truncated
        missing = (length >= limited) & (truncated == 0)
        faults.append(where("truncated", missing, truncated, f"1 at the time limit of {limited} steps", 1))
        early = (length < limited) & (truncated == 1)
        if fault := where("truncated", early, truncated, f"0 before the time limit of {limited} steps", 1):
            faults.append(fault._replace(verdict="warning"))
    alive = first_episode(free.ended[:SHORT_LIMIT])  # till then both play the same, so they die alike
    deaths = torch.where(alive, free.out.terminated[:SHORT_LIMIT], short.out.terminated[:SHORT_LIMIT])
    faults.append(difference("terminated", deaths, short.out.terminated[:SHORT_LIMIT], 1))

    evidence = {"truncated": int(short.out.truncated.sum()), "terminated": int(free.out.terminated.sum())}
    died = (free.out.terminated == 1).nonzero()
    if len(died) and not any(faults):
        ages = _lengths(free)[free.out.terminated == 1]
        age = int(ages[0])
        step, environment = int(died[0, 0]), int(died[0, 1])  # the earliest: a first episode
        if len(ages) > 3 and age > 1 and bool((ages == age).all()):
            found = f"{len(ages)} deaths, all on step {age} of their episode"
            faults.append(suspicion("terminated", environment, step + 1, "deaths at several ages", found))
        both = plays.play(plays.actions[: step + 1], plan.limit(step + 1)).out
        for name, flags in (("terminated", both.terminated), ("truncated", both.truncated)):
            if int(flags[step, environment]) != 1:
                wanted = f"1: it died on the very step of the time limit {step + 1}"
                faults.append(Fault(name, environment, step + 1, wanted, str(int(flags[step, environment]))))
        evidence["both"] = int(((both.terminated[step] == 1) & (both.truncated[step] == 1)).sum())
    return conclude("time_limit", faults, evidence)


def check_accounting(plays: Plays) -> Check:
    """Episode length and return count what was played, the last step included, and start again after an end."""
    faults: list[Fault | None] = []
    for played in (plays.usual, plays.short):
        length, rewards = _lengths(played), played.out.reward.double()
        faults.append(difference("episode_length", length.to(torch.int32), played.out.episode_length, 1))
        expected, size = _running_sum(rewards, length), _running_sum(rewards.abs(), length)
        found = played.out.episode_return
        # Of a float32 sum in any order: half an ulp of what is added up, for each addition.
        wrong = ~((found.double() - expected).abs() <= 2.0**-24 * length * size)
        fault = where("episode_return", wrong, found, "", 1)
        if fault is not None and fault.step is not None and fault.environment is not None:
            fault = fault._replace(wanted=repr(float(expected[fault.step - 1, fault.environment])))
        faults.append(fault)
    return conclude("accounting", faults, {"episodes": int(plays.usual.ended.sum())})


def check_carryover(plays: Plays) -> Check:
    """Nothing of an episode reaches the next one: each plays as it does from its seed in a new environment.

    Where later episodes take no seed, a warning where the second one depends on what was done in the first.
    """
    steps = min(_STEPS, plays.plan.steps)
    with playing.held():
        env = plays.factory(plays.plan.spec, plays.plan.num_envs, plays.plan.run_seed)
        record(env, plays.actions[:steps])
    with playing.held():
        again = record(env, plays.actions[:steps])
    faults = differences(cut(plays.usual, steps), again, "{}, as before the reset")
    if not plays.plan.spec.seeded_at_reset:
        fault, episodes = _second_fault(plays)
        return conclude("carryover", [*faults, fault], {"episodes": episodes, "steps": 2 * steps})
    episodes = 0
    for played, plan in ((plays.usual, plays.plan), (plays.short, plays.plan.limit(SHORT_LIMIT))):
        # The steps after which an episode begins that is played on, one for each world.
        begun = played.ended[:-1, :: plan.spec.agents].nonzero()
        chosen = begun[:: -(-len(begun) // _EPISODES)] if len(begun) else begun
        episodes += len(chosen)
        faults += _later_faults(plays, plan, played, playing.rows_of(plan.spec, chosen))
    return conclude("carryover", faults, {"episodes": episodes, "steps": 2 * steps})


def _second_fault(plays: Plays) -> tuple[Fault | None, int]:
    """Differences of second episodes after other actions in the first, and how many there were to compare.

    Only after first episodes as long as the time limit: shorter ones may have drawn less from the same generator.
    """
    actions = plays.actions[: 2 * SHORT_LIMIT].clone()
    usual = plays.play(actions, plays.plan.limit(SHORT_LIMIT))
    actions[:SHORT_LIMIT] = torch.stack([another(plays.plan.spec, row) for row in actions[:SHORT_LIMIT]])
    altered = plays.play(actions, plays.plan.limit(SHORT_LIMIT))
    alike = ~usual.ended[: SHORT_LIMIT - 1].any(0) & ~altered.ended[: SHORT_LIMIT - 1].any(0)
    text = "{}, as after other actions in the episode before"
    first = [played.out.observation[SHORT_LIMIT - 1 : SHORT_LIMIT] for played in (altered, usual)]
    expected = torch.where(alike[:, None], first[0], first[1])
    faults = [difference("observation", expected, first[1], SHORT_LIMIT, text)]
    wanted, found = (StepOutput(*(values[SHORT_LIMIT:] for values in played.out)) for played in (altered, usual))
    within = alike & first_episode(findings.ended(wanted) | findings.ended(found))
    later = output_differences(wanted, found, text, within)
    faults += [fault and fault._replace(step=(fault.step or 0) + SHORT_LIMIT) for fault in later]
    worst = next((fault for fault in faults if fault), None)
    return worst and worst._replace(verdict="warning"), int(alike.sum())


def _later_faults(plays: Plays, plan: Plan, played: Trajectory, begun: Tensor) -> list[Fault | None]:
    """Differences of episodes that begin after the steps `begun`, (E, 2) of step and environment, from new ones."""
    if not len(begun):
        return []
    steps, environments = begun[:, 0] + 1, begun[:, 1]
    count = len(played.out.reward) - int(steps.min())
    rows = steps + torch.arange(count)[:, None]  # (count, E): the step of each
    there = rows < len(played.out.reward)
    rows = rows.clamp(max=len(played.out.reward) - 1)
    out = StepOutput(*(values[rows, environments] for values in played.out))
    within = there & first_episode((out.terminated == 1) | (out.truncated == 1))
    count = int(within.any(1).sum())
    alone = plays.play(played.actions[rows, environments][:count], plan, played.episode_seed[steps, environments])
    faults = output_differences(
        alone.out, StepOutput(*(values[:count] for values in out)), "{}, as in a new environment", within[:count]
    )
    return [
        fault._replace(environment=int(environments[e]), step=int(steps[e]) + fault.step)
        for fault in faults
        if fault is not None and (e := fault.environment) is not None and fault.step is not None
    ]


def _final_faults(played: Trajectory) -> list[Fault | None]:
    """`final_observation` equals `observation` where nothing ended; at an end it is neither stale nor the next one.

    Where observations repeat, equal ones prove nothing: what is compared with is how often others are alike.
    """
    out, ended = played.out, played.ended
    expected = torch.where(ended[..., None], out.final_observation, out.observation)
    fault = difference("final_observation", expected, out.final_observation, 1)
    before = torch.cat([played.first[None], out.observation[:-1]])
    ends = ended.nonzero()[:_ENDS]
    if fault is not None or not len(ends):
        return [fault]
    at = tuple(ends.T)
    final, following, last = (bits(values[at]) for values in (out.final_observation, out.observation, before))

    def place(which: Tensor) -> tuple[int, int]:
        step, environment = ends[which][0].tolist()
        return environment, step + 1

    reset = (final == following).all(1)
    one, other = identities(torch.cat([final, following])).chunk(2)
    alike = int((one[:, None] == other).sum()) - int(reset.sum())  # of an end and another one
    chance = (alike + 1) / (len(ends) * (len(ends) - 1) + 1)
    faults: list[Fault | None] = []
    if not is_coincidence(int(reset.sum()), len(ends), chance):
        wanted, found = "the old episode's last", "the new episode's first"
        faults.append(Fault("final_observation", *place(reset), wanted, found))
    stale = (final == last).all(1) & (out.truncated[at] == 0)
    died = int((out.truncated[at] == 0).sum())
    moved = (bits(before) != bits(out.observation)).any(2)[~ended]
    if died > 1 and int(stale.sum()) == died and len(moved) and float(moved.double().mean()) > 0.9:
        wanted, found = "the observation after the last step", f"the one before it, at all {died} deaths"
        faults.append(suspicion("final_observation", *place(stale), wanted, found))
    return faults


def _next_fault(plays: Plays, played: Trajectory) -> Fault | None:
    """The observation after an end against that of a reset with the seed of the new episode, if it took one."""
    spec = plays.plan.spec
    ends = played.ended[:, :: spec.agents].nonzero()  # one for each world
    if not len(ends) or not spec.seeded_at_reset:
        return None
    chosen = ends[:: -(-len(ends) // _ENDS)]
    count = min(len(chosen), plays.plan.num_envs // spec.agents)
    with playing.held():
        env = plays.factory(spec, count * spec.agents, plays.plan.run_seed)
        expected = played.out.observation.clone()
        for share in torch.arange(len(chosen)).split(count):
            turn = torch.cat([share, share[:1].expand(count - len(share))])  # as many as there are environments
            at = tuple(playing.rows_of(spec, chosen[turn]).T)
            expected[at] = record(env, plays.actions[:0, : count * spec.agents], played.episode_seed[1:][at]).first
    return difference("observation", expected, played.out.observation, 1, "{}, as after a reset with its seed")


def _lengths(played: Trajectory) -> Tensor:
    """(T, N) int64: steps of the episode that each step belongs to, itself included, counted from the flags."""
    lengths, count = [], torch.zeros(played.ended.shape[1], dtype=torch.int64)
    for ended in played.ended:
        count = count + 1
        lengths.append(count)
        count = torch.where(ended, 0, count)
    return torch.stack(lengths)


def _running_sum(values: Tensor, length: Tensor) -> Tensor:
    """(T, N): the sum over an episode so far, where `length` is 1 at its first step."""
    sums, total = [], torch.zeros_like(values[0])
    for value, age in zip(values, length, strict=True):
        total = torch.where(age == 1, value, total + value)
        sums.append(total)
    return torch.stack(sums)
