"""Checks of what an environment repeats and what it does not: the same seed, another seed, another hour."""

import dataclasses

import torch

from envs.validation import plays as playing
from envs.validation.findings import (
    Check,
    Fault,
    collision,
    conclude,
    difference,
    is_coincidence,
    output_differences,
    suspicion,
    where,
)
from envs.validation.plays import HELD_OUT, SELECTION, SHORT_LIMIT, TRAIN, Plays, Trajectory, record

_LATER = 3.0e7 + 4321.37  # seconds: about a year, and another time of day
_RUNS = 4  # run seeds, and environments at least, that are all alike by no chance
_STEPS = 40  # of plays that are only to be repeated


def check_determinism(plays: Plays) -> Check:
    """The same seeds and actions give the same bits in another object, at the same hour, from the same global state."""
    faults = differences(plays.usual, plays.play(plays.actions), "{}, as in an equal environment's run")
    return conclude("determinism", faults, {"steps": plays.plan.steps, "episodes": int(plays.usual.ended.sum())})


def check_surroundings(plays: Plays) -> Check:
    """Neither the clock nor a global random state enters what is played.

    A warning where a global random state is moved without any effect: whoever else draws from it is disturbed.
    """
    plan, actions = plays.plan, plays.actions[:_STEPS]
    steps = len(actions)

    def make() -> playing.VectorEnv:
        return plays.factory(plan.spec, plan.num_envs, plan.run_seed)

    with playing.held():
        playing.seed_globally(1)
        shaken = record(make(), actions, before=lambda step: playing.seed_globally(2 + step))
    faults = differences(cut(plays.usual, steps), shaken, "{}, whatever the global random states")
    if not any(faults):
        with playing.held(_LATER):
            faults = differences(cut(plays.usual, steps), record(make(), actions), "{}, whatever the time of day")
    if not any(faults):
        with playing.held():
            before = playing.global_states()
            record(make(), actions)
            moved = [name for name, state in playing.global_states().items() if state != before[name]]
        faults += [
            suspicion(name, None, None, "a global state that is left alone", "drawn or seeded") for name in moved
        ]
    return conclude("surroundings", faults, {"steps": steps, "plays": 3})


def check_reseeding(plays: Plays) -> Check:
    """Each reset seeds anew: after other resets the same seeds begin the same episodes."""
    if not plays.plan.spec.seeded_at_reset:
        return Check("reseeding", "not applicable", {"reason": "seeds are taken at creation, never at a reset"})
    plan, actions = plays.plan, plays.actions[:SHORT_LIMIT]
    seeds, others = (playing.split_seeds(plan, split) for split in (SELECTION, HELD_OUT))
    wanted = plays.play(actions, seeds=seeds)
    with playing.held():
        env = plays.factory(plan.spec, plan.num_envs, plan.run_seed)
        for each in (seeds, others, None):
            record(env, actions[:0], each)
        found = record(env, actions, seeds)
    faults = differences(wanted, found, "{}, as after a first reset with this seed")
    return conclude("reseeding", faults, {"resets": 4})


def check_seeds(plays: Plays) -> Check:
    """Training episodes' seeds follow from (run seed, environment, episode) and move what is played.

    A warning where all episodes begin alike.
    """
    plan, drawn = plays.plan, 0
    faults: list[Fault | None] = []
    for played in (plays.usual, plays.short):
        count = played.episode_index
        wanted = playing.training_seeds(plan, count)
        faults.append(difference("episode_seed", wanted, played.episode_seed, 0))
        begun = count != torch.cat([count[:1] - 1, count[:-1]])
        seeds = wanted[:, :: plan.spec.agents][begun[:, :: plan.spec.agents]]
        drawn = max(drawn, len(seeds))
        if len(seeds.unique()) != len(seeds):
            repeated = str(len(seeds) - len(seeds.unique()))
            faults.append(Fault("episode_seed", None, None, "every episode's own seed", f"{repeated} repeated"))

    runs = [dataclasses.replace(plan, run_seed=plan.run_seed + k) for k in range(1, _RUNS)]
    others = [plays.training, *(plays.play(plays.alike, run) for run in runs)]
    rows = torch.stack([played.first_rows() for played in others])  # (runs, N, W)
    if bool((rows == rows[:, :1]).all()) and plan.num_envs >= _RUNS and not bool((rows == rows[0]).all()):
        faults.append(Fault("observation", None, None, "environments that differ by their seeds", "all alike"))
    else:
        faults.append(coincidence(rows[0], rows[1], f"run seed {plan.run_seed + 1}", f"run seed {plan.run_seed}"))
    first = torch.cat([played.first for played in others])
    if bool((first == first[0]).all()):
        alike = f"all {plan.num_envs} alike, under {_RUNS} run seeds"
        faults.append(suspicion("observation", None, 0, "starts that differ by their seeds", alike))
    return conclude("seeds", faults, {"episodes": drawn})


def check_splits(plays: Plays) -> Check:
    """Training, selection and held-out seeds are apart, and an environment plays exactly the seed it is given."""
    plan = plays.plan
    seeds = torch.cat([plays.usual.episode_seed, plays.short.episode_seed])
    faults = [_split_fault(plays.usual, TRAIN), _split_fault(plays.short, TRAIN)]
    names = {TRAIN: "training seeds", SELECTION: "selection seeds", HELD_OUT: "held-out seeds"}
    rows = {TRAIN: plays.training.first_rows()}
    for split in (SELECTION, HELD_OUT):
        given = playing.split_seeds(plan, split)
        played = plays.play(plays.alike, seeds=given)
        faults.append(difference("episode_seed", given[None], played.episode_seed[:1], 0))
        mine = played.first_rows()
        faults += [coincidence(theirs, mine, names[split], names[other]) for other, theirs in rows.items()]
        rows[split] = mine
    return conclude("splits", faults, {"training_seeds": len(seeds.unique())})


def differences(wanted: Trajectory, found: Trajectory, text: str) -> list[Fault | None]:
    """Where two plays of the same seeds and actions part."""
    first = difference("observation", wanted.first[None], found.first[None], 0, text)
    return [first, *output_differences(wanted.out, found.out, text)]


def cut(played: Trajectory, steps: int) -> Trajectory:
    """Its first steps."""
    return played._replace(
        actions=played.actions[:steps], out=type(played.out)(*(values[:steps] for values in played.out))
    )


def coincidence(rows: torch.Tensor, others: torch.Tensor, new: str, old: str) -> Fault | None:
    """That more environments than chance allows play the same under other seeds."""
    same = (rows == others).all(1)
    if is_coincidence(int(same.sum()), len(same), collision(rows)):
        return None
    wanted = f"another trajectory with {new} than with {old}"
    return Fault("observation", int(same.nonzero()[0]), None, wanted, f"the same in {int(same.sum())} environments")


def _split_fault(played: Trajectory, split: int) -> Fault | None:
    seeds = played.episode_seed
    return where("episode_seed", (seeds >> 62) & 3 != split, seeds, f"two top bits {split}", 0)
