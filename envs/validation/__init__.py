"""Checks that a vector environment must pass before anyone trains on it (docs/validation.md describes each).

A check is a function of `Plays`, which makes environments and plays them with fixed random actions into poisoned
buffers; it returns a verdict with its evidence. A `fail` breaks the contract of `VectorEnv`; a `warning` is what may
also be meant so. All comparisons are of bits, so NaN cannot pass for equality. The checks know only the `VectorEnv`
interface.
"""

from collections.abc import Callable, Iterator

from envs.validation.effects import check_actions, check_clipping, check_timing
from envs.validation.episodes import (
    check_accounting,
    check_carryover,
    check_ends,
    check_resets,
    check_time_limit,
)
from envs.validation.findings import Check, Fault, Verdict
from envs.validation.neighbours import check_alone, check_order
from envs.validation.outputs import (
    check_aliasing,
    check_bounds,
    check_buffers,
    check_exceptions,
    check_finite,
    check_metadata,
    check_reward,
)
from envs.validation.plays import (
    Factory,
    Plan,
    Plays,
    StepError,
    Trajectory,
    evaluation_seeds,
    random_actions,
    record,
    training_seeds,
)
from envs.validation.repeats import (
    check_determinism,
    check_reseeding,
    check_seeds,
    check_splits,
    check_surroundings,
)

__all__ = [
    "CHECKS",
    "Check",
    "Factory",
    "Fault",
    "Plan",
    "Plays",
    "StepError",
    "Trajectory",
    "Verdict",
    "evaluation_seeds",
    "random_actions",
    "record",
    "run",
    "training_seeds",
    "validate",
]

# In an order in which the first failure is the one to mend first: what a later check takes for granted comes before it.
CHECKS: tuple[Callable[[Plays], Check], ...] = (
    check_metadata,
    check_actions,
    check_exceptions,
    check_buffers,
    check_aliasing,
    check_finite,
    check_bounds,
    check_determinism,
    check_surroundings,
    check_reseeding,
    check_splits,
    check_ends,
    check_seeds,
    check_clipping,
    check_time_limit,
    check_resets,
    check_accounting,
    check_alone,
    check_order,
    check_carryover,
    check_timing,
    check_reward,
)


# Those that look at a row by itself, or at its episode from end to end: rows of a world act on one another and begin
# together, and between an agent's end and its world's there are fillers.
OF_ROWS_ALONE = frozenset(
    (check_ends, check_time_limit, check_resets, check_accounting, check_alone, check_order, check_carryover)
)


def validate(factory: Factory, plan: Plan) -> Iterator[Check]:
    """Every check, as soon as it is done, in an order in which the first failure is the one to mend first.

    Those after a failure of `metadata` or `exceptions` are left out: they take the environment for what it says it is,
    and look at the whole play.
    """
    plays = Plays(factory, plan)
    for check in CHECKS:
        if plan.spec.fillers and check in OF_ROWS_ALONE:
            reason = "agents of a world are rows that act on one another; run pettingzoo.test.parallel_api_test too"
            yield Check(_name(check), "not applicable", {"reason": reason})
            continue
        done = run(check, plays)
        yield done
        if done.verdict == "fail" and check in (check_metadata, check_exceptions):
            return


def run(check: Callable[[Plays], Check], plays: Plays) -> Check:
    """One check; an exception that the environment raises on a reset or a step is a failure of it."""
    name = _name(check)
    try:
        return check(plays)
    except StepError as error:
        what = "step" if error.step else "reset"
        evidence = {"element": what, "environment": None, "step": error.step, "wanted": "no exception"}
        return Check(name, "fail", {**evidence, "found": str(error)})


def _name(check: Callable[[Plays], Check]) -> str:
    return check.__name__.removeprefix("check_")
