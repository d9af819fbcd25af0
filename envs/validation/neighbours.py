"""Checks that an environment does not depend on who is stepped beside it, nor in which order."""

import contextlib

import torch

from envs.validation import plays as playing
from envs.validation.effects import beside, undeclared_actions
from envs.validation.findings import Check, Fault, conclude, difference, first_episode, output_differences
from envs.validation.plays import Plays, StepError, record
from envs.validation.repeats import cut, differences
from envs.vector import StepOutput, empty_output

_STEPS = 100  # of plays beside others; an episode's end stops them earlier


def check_alone(plays: Plays) -> Check:
    """An environment among N plays as it does alone from the same seed, also beside one that is given no action.

    Where several agents share a world, it is the world that plays so.
    """
    plan, steps, agents = plays.plan, min(_STEPS, plays.plan.steps), plays.plan.spec.agents
    among, within = plays.usual, first_episode(plays.usual.ended[:steps])
    places = (0, plan.num_envs // 3, plan.num_envs // 2, plan.num_envs - 1)
    chosen = sorted({place - place % agents for place in places})  # each a world's first
    faults: list[Fault | None] = []
    for i in chosen:
        length = int(within[:, i].sum())
        world = slice(i, i + agents)
        alone = plays.play(plays.actions[:length, world].contiguous(), seeds=among.episode_seed[0, world])
        out = StepOutput(*(values[:length, world] for values in among.out))
        first = difference("observation", alone.first[None], among.first[None, world], 0, "{}, as alone")
        found = [first, *output_differences(alone.out, out, "{}, as alone", within[:length, world])]
        faults += [fault._replace(environment=i + (fault.environment or 0)) for fault in found if fault is not None]
    if not any(faults):
        others = torch.ones(1, plan.num_envs, dtype=torch.bool)
        others[0, :agents] = False
        first_step = cut(among, 1).out
        for action in undeclared_actions(plan.spec):
            text = f"{{}}, as beside an action instead of {action}"
            with contextlib.suppress(StepError):  # refused by an exception: there is no play
                harmed = plays.play(beside(plays, action)).out
                faults += output_differences(first_step, harmed, text, others)
    return conclude("alone", faults, {"environments": chosen, "steps": steps})


def check_order(plays: Plays) -> Check:
    """Neither the order of the environments matters, nor another vector of them that is stepped in between."""
    plan, steps = plays.plan, min(_STEPS, plays.plan.steps)
    actions, usual = plays.actions[:steps], cut(plays.usual, steps)
    within, text = first_episode(usual.ended), "{}, as in the usual order"
    turn = (
        torch.arange(plan.num_envs).view(-1, plan.spec.agents).flip(0).flatten()
    )  # world by world, which undoes itself
    turned = plays.play(actions[:, turn], seeds=usual.episode_seed[0, turn])
    out = StepOutput(*(values[:, turn] for values in turned.out))
    faults = [difference("observation", usual.first[None], turned.first[turn][None], 0, text)]
    faults += output_differences(usual.out, out, text, within)

    with playing.held():
        env, other = (plays.factory(plan.spec, plan.num_envs, plan.run_seed + k) for k in (0, 1))
        beside = empty_output(plan.spec, plan.num_envs, other.device)
        given = actions.flip(0).to(other.device)

        def step_other(step: int) -> None:
            if step == 0:
                other.reset(beside.observation)
            else:
                other.step(given[step - 1], beside)

        between = record(env, actions, before=step_other)
    faults += differences(usual, between, "{}, as without another vector that is stepped in between")
    return conclude("order", faults, {"environments": plan.num_envs, "steps": steps})
