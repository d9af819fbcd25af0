"""What a check finds, and comparisons of bits that say where two plays part."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from envs.vector import StepOutput

Verdict = Literal["pass", "warning", "fail", "not applicable"]

POISON = {torch.float32: 0x7FC0DEAD, torch.int32: -0x7FDEAD01, torch.uint8: 255}  # a NaN that no arithmetic yields
_CHANCE = 1e-3  # what is less likely than this is taken for no coincidence


class Check(NamedTuple):
    """A verdict. Evidence of a fault or of a suspicion: element, environment, step, wanted, found; of a pass: what was
    looked at; of what is not applicable: the reason.
    """

    name: str
    verdict: Verdict
    evidence: dict[str, Any] | None


class Fault(NamedTuple):
    """Where something was wrong; environment or step (0 is the reset) is None where the fault has none.

    A warning where a sound environment may look the same.
    """

    element: str
    environment: int | None
    step: int | None
    wanted: str
    found: str
    verdict: Literal["warning", "fail"] = "fail"


def suspicion(element: str, environment: int | None, step: int | None, wanted: str, found: str) -> Fault:
    """What may be a fault or may be meant."""
    return Fault(element, environment, step, wanted, found, "warning")


def conclude(name: str, faults: Sequence[Fault | None], evidence: dict[str, Any]) -> Check:
    """The verdict: the earliest failure, else the earliest warning; those that lie at no step come last."""
    real = [fault for fault in faults if fault is not None]
    if not real:
        return Check(name, "pass", evidence)

    def rank(fault: Fault) -> tuple[bool, float]:
        return fault.verdict == "warning", math.inf if fault.step is None else fault.step

    worst = min(real, key=rank)._asdict()
    return Check(name, worst.pop("verdict"), worst)


def bits(values: Tensor) -> Tensor:
    """Floats as their bit patterns, so that NaN equals itself and nothing else."""
    return values.view(torch.int32) if values.dtype == torch.float32 else values


def is_poison(values: Tensor) -> Tensor:
    return bits(values) == POISON[values.dtype]


def where(
    element: str, mask: Tensor, values: Tensor | None, wanted: str, first_step: int, found: str = ""
) -> Fault | None:
    """The first true element of a mask (steps, environments[, components])."""
    if not bool(mask.any()):
        return None
    at = tuple(int(i) for i in mask.nonzero()[0])
    name = element + "".join(f"[{i}]" for i in at[2:])
    return Fault(name, at[1], at[0] + first_step, wanted, found if values is None else repr(values[at].item()))


def difference(element: str, wanted: Tensor, found: Tensor, first_step: int, text: str = "{}") -> Fault | None:
    """The first element whose bits differ; `text` says what the wanted value {} is."""
    differs = bits(wanted) != bits(found)
    if not bool(differs.any()):
        return None
    at = tuple(int(i) for i in differs.nonzero()[0])
    return where(element, differs, found, text.format(repr(wanted[at].item())), first_step)


def output_differences(
    wanted: StepOutput, found: StepOutput, text: str = "{}", within: Tensor | None = None
) -> list[Fault | None]:
    """The first difference of each field; only where `within` (T, N) is true, and of the observations, which after an
    end are the next episode's, only where it goes on.
    """
    faults = []
    for name in StepOutput._fields:
        values, other = getattr(wanted, name), getattr(found, name)
        if within is not None:
            mask = within & ~ended(wanted) if name == "observation" else within
            other = torch.where(mask[..., None] if other.ndim > 2 else mask, other, values)
        faults.append(difference(name, values, other, 1, text))
    return faults


def ended(out: StepOutput) -> Tensor:
    """(T, N) bool: the steps on which an episode ended."""
    return (out.terminated == 1) | (out.truncated == 1)


def first_episode(ended: Tensor) -> Tensor:
    """(T, N) bool: the steps of each environment's first episode, its last one included."""
    before = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]])
    return before.long().cumsum(0) == 0


def identities(rows: Tensor) -> Tensor:
    """(N,) int64: equal for equal rows of (N, W), and for them alone."""
    if not rows.shape[1]:
        return torch.zeros(len(rows), dtype=torch.int64)
    return torch.unique(rows, dim=0, return_inverse=True)[1]


def collision(rows: Tensor) -> float:
    """How likely two of the rows (N, W) are to be alike: counted over all pairs, and one more that is."""
    copies = identities(rows).bincount()
    alike, pairs = int((copies * (copies - 1)).sum()) // 2, len(rows) * (len(rows) - 1) // 2
    return (alike + 1) / (pairs + 1)


def is_coincidence(matches: int, trials: int, chance: float) -> bool:
    """Whether `matches` of `trials` may have come about, each with this chance (by the union bound)."""
    return matches == 0 or math.log(math.comb(trials, matches)) + matches * math.log(chance) > math.log(_CHANCE)
