"""Every check of an environment, shown a fault that it has to name, and sound environments that look faulty.

What is in the galleries stands in `broken/` and `sound/`; the last test prints how many were found, and how many sound
ones were blamed.
"""

import functools

import pytest
import torch
from broken import Broken
from broken import native as broken_native
from sound import Sound
from sound import native as sound_native

import envs
from envs import validation
from envs.spec import EnvSpec
from envs.validation import Check, Plan, Plays
from envs.vector import VectorEnv
from kernels.errors import UserError

CPU = torch.device("cpu")
BROKEN = {row.name: row for row in broken_native.FAULTS}
SOUND = {row.name: row for row in sound_native.SOUND}
NUM_ENVS, STEPS = 5, 60


def native(spec: EnvSpec, num_envs: int, run_seed: int) -> VectorEnv:
    return envs.make(spec, num_envs, run_seed, CPU)


def plan(name: str) -> Plan:
    return Plan(envs.spec(name, 25), NUM_ENVS, STEPS, run_seed=1)


@functools.cache
def complaints(row: Broken | Sound) -> list[Check]:
    """Failures before warnings, each in the order of the checks."""
    plan = row.fault.plan(row.base, NUM_ENVS, STEPS) if isinstance(row, Broken) else row.plan(NUM_ENVS, STEPS)
    checks = validation.validate(row.fault if isinstance(row, Broken) else row.factory, plan)
    return sorted((check for check in checks if check.verdict != "pass"), key=lambda check: check.verdict)


def is_named(row: Broken) -> bool:
    found = complaints(row)
    wanted = (row.check, row.verdict, row.element)
    return bool(found) and (found[0].name, found[0].verdict, (found[0].evidence or {})["element"]) == wanted


@pytest.mark.parametrize("name", envs.names())
def test_native_environments_pass(name: str) -> None:
    checks = validation.validate(native, plan(name))
    assert [check for check in checks if check.verdict != "pass"] == []
    assert len({check.name for check in checks}) == len(checks) == len(validation.CHECKS)


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_named(name: str) -> None:
    assert is_named(BROKEN[name]), complaints(BROKEN[name])


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_does_not_fail(name: str) -> None:
    row = SOUND[name]
    found = complaints(row)
    assert {check.name for check in found if check.verdict == "fail"} == set(), found
    assert {check.name for check in found} == set(row.warnings), found


def test_every_check_has_its_fault() -> None:
    assert {row.check for row in BROKEN.values()} == {
        check.__name__.removeprefix("check_") for check in validation.CHECKS
    }
    assert len(BROKEN) >= 30


def test_the_place_of_a_fault_is_named() -> None:
    plays = Plays(broken_native.LeavesRewardStale, plan("cartpole"))
    wanted, found = "to be written", "still what the buffer held before"
    place = {"element": "reward", "environment": 3, "step": 17, "wanted": wanted, "found": found}
    assert validation.run(validation.CHECKS[3], plays) == Check("buffers", "fail", place)


def test_a_plan_too_short_to_see_an_end_is_refused() -> None:
    with pytest.raises(UserError, match="steps must be at least 10, to reach an end; got 9"):
        Plan(envs.spec("cartpole"), num_envs=1, steps=9, run_seed=1)


@pytest.mark.parametrize("name", envs.names())
def test_a_single_environment_and_few_steps_are_enough(name: str) -> None:
    checks = validation.validate(native, Plan(envs.spec(name), 1, 10, 1))
    assert [check for check in checks if check.verdict == "fail"] == []


def test_detection_rate(capsys: pytest.CaptureFixture[str]) -> None:
    named = sum(map(is_named, BROKEN.values()))
    blamed = [name for name, row in SOUND.items() if any(check.verdict == "fail" for check in complaints(row))]
    with capsys.disabled():
        print(f"\nbroken: {named} of {len(BROKEN)} named by the right check")
        print(f"sound: {len(blamed)} of {len(SOUND)} fail")
        for name, row in SOUND.items():
            print(f"  {name}: {', '.join(check.name for check in complaints(row)) or 'no warning'}")
    assert (named, blamed) == (len(BROKEN), [])
