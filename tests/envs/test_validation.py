"""Every check of an environment, shown a fault that it has to name, and sound environments that look faulty.

What is in the galleries stands in `broken/` and `sound/`; the last test prints how many were found, and how many sound
ones were blamed.
"""

import functools
from collections.abc import Iterable

import pytest
import torch
from broken import Broken
from broken import hosted as broken_hosted
from broken import native as broken_native
from sound import Sound
from sound import hosted as sound_hosted
from sound import native as sound_native

import envs
from envs import validation
from envs.spec import EnvSpec
from envs.validation import Check, Plan, Plays, hosted
from envs.vector import VectorEnv
from kernels.errors import UserError
from pipeline import validate as stage

CPU = torch.device("cpu")
BROKEN = {row.name: row for row in (*broken_native.FAULTS, *broken_hosted.FAULTS)}
SOUND = {row.name: row for row in (*sound_native.SOUND, *sound_hosted.SOUND)}
NUM_ENVS, STEPS, LIMIT = 4, 32, 25
CLASSIC_CONTROL = {
    "CartPole-v1": (),
    "Pendulum-v1": (),
    "Acrobot-v1": ("actions",),  # -1 is its last action, as a place in a tuple
    "MountainCar-v0": (),
    "MountainCarContinuous-v0": (),
    "LunarLander-v3": (),
}


def make(spec: EnvSpec, num_envs: int, run_seed: int) -> VectorEnv:
    return envs.make(spec, num_envs, run_seed, CPU)


def plan(name: str) -> Plan:
    return Plan(envs.spec(name, LIMIT), NUM_ENVS, STEPS, run_seed=1)


def played(id: str) -> Plan:
    return Plan(envs.spec("gymnasium", LIMIT, id=id, workers=0), NUM_ENVS, STEPS, run_seed=1)


def complaints(checks: Iterable[Check]) -> list[Check]:
    """Failures before warnings, each in the order of the checks."""
    return sorted((check for check in checks if check.verdict != "pass"), key=lambda check: check.verdict)


@functools.cache
def of_broken(row: Broken) -> list[Check]:
    """Up to the first failure."""
    hosted = row.base == "gymnasium"
    factory = make if hosted else row.fault
    chosen = played(f"broken.hosted:{row.fault.__name__}") if hosted else row.fault.plan(row.base, NUM_ENVS, STEPS)
    found = []
    for check in stage.check(factory, chosen):
        found.append(check)
        if check.verdict == "fail":
            break
    return complaints(found)


@functools.cache
def of_sound(row: Sound) -> list[Check]:
    return complaints(stage.check(row.factory, row.plan(NUM_ENVS, STEPS)))


def is_named(row: Broken) -> bool:
    found = of_broken(row)
    wanted = (row.check, row.verdict, row.element)
    return bool(found) and (found[0].name, found[0].verdict, (found[0].evidence or {})["element"]) == wanted


@pytest.mark.parametrize("name", envs.names())
def test_native_environments_pass(name: str) -> None:
    checks = list(validation.validate(make, Plan(envs.spec(name), 8, 300, run_seed=1)))
    warned = [check.name for check in complaints(checks) if check.verdict == "warning"]
    assert warned == (["timing"] if name == "cartpole_masked" else [])  # a push is seen in a position a step later
    assert len(complaints(checks)) == len(warned)
    assert len({check.name for check in checks}) == len(checks) == len(validation.CHECKS)


@pytest.mark.parametrize("name", CLASSIC_CONTROL)
def test_gymnasiums_own_pass(name: str) -> None:
    checks = list(stage.check(make, played(name)))
    assert [(check.name, check.verdict) for check in complaints(checks)] == [
        (each, "warning") for each in CLASSIC_CONTROL[name]
    ]
    assert len({check.name for check in checks}) == len(checks) == len(validation.CHECKS) + len(hosted.CHECKS)


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_named(name: str) -> None:
    assert is_named(BROKEN[name]), of_broken(BROKEN[name])


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_does_not_fail(name: str) -> None:
    found = of_sound(SOUND[name])
    assert [check for check in found if check.verdict == "fail"] == []
    assert {check.name for check in found} == set(SOUND[name].warnings), found


def test_every_check_has_its_fault() -> None:
    checks = (*hosted.CHECKS, *validation.CHECKS)
    assert {row.check for row in BROKEN.values()} == {check.__name__.removeprefix("check_") for check in checks}
    assert len(BROKEN) == len(broken_native.FAULTS) + len(broken_hosted.FAULTS) >= 100


def test_the_place_of_a_fault_is_named() -> None:
    plays = Plays(broken_native.LeavesRewardStale, plan("cartpole"))
    wanted, found = "to be written", "still what the buffer held before"
    place = {"element": "reward", "environment": 3, "step": 17, "wanted": wanted, "found": found}
    assert validation.run(validation.check_buffers, plays) == Check("buffers", "fail", place)


def test_a_plan_too_short_to_see_an_end_is_refused() -> None:
    with pytest.raises(UserError, match="steps must be at least 10, to reach an end; got 9"):
        Plan(envs.spec("cartpole"), num_envs=1, steps=9, run_seed=1)


@pytest.mark.parametrize("name", envs.names())
def test_a_single_environment_and_few_steps_are_enough(name: str) -> None:
    spec = envs.spec(name)
    checks = validation.validate(make, Plan(spec, spec.agents, 10, 1))
    assert [check for check in checks if check.verdict == "fail"] == []


def test_detection_rate(capsys: pytest.CaptureFixture[str]) -> None:
    named = sum(map(is_named, BROKEN.values()))
    blamed = [name for name, row in SOUND.items() if any(check.verdict == "fail" for check in of_sound(row))]
    with capsys.disabled():
        print(f"\nbroken: {named} of {len(BROKEN)} named by the right check")
        print(f"sound: {len(blamed)} of {len(SOUND)} fail")
        for name, row in SOUND.items():
            print(f"  {name}: {', '.join(check.name for check in of_sound(row)) or 'no warning'}")
    assert (named, blamed) == (len(BROKEN), [])
