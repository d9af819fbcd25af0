"""Physical parameters drawn anew for each episode, from ranges that training and held-out episodes do not share.

A header declares a parameter where it writes PARAMETER(name, value); what that becomes stands in
kernels/environment.cuh. An episode draws by its own seed, whose split chooses the range. So a held-out value cannot
occur in training, and an episode still follows from its seed and its actions alone.
"""

import dataclasses
import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from envs.spec import EnvSpec, Parameter
from envs.vector import VectorEnv
from kernels import compiler
from kernels.errors import UserError

_DECLARED = re.compile(r"\bPARAMETER\((\w+), (-?[\d.]+(?:e-?\d+)?)f\)")


def declared(header: Path) -> dict[str, float]:
    """The parameters of a header's dynamics, each with the value that it has where none is drawn."""
    return {name: float(value) for name, value in _DECLARED.findall(header.read_text())}


def with_ranges(spec: EnvSpec, given: Mapping[str, Any]) -> EnvSpec:
    """The environment with some of its parameters drawn for each episode; they lie behind its own state.

    Args:
        spec: a native environment without ranges.
        given: {name: {"train": [lowest, highest], "held_out": [lowest, highest]}}, in the units of its data sheet. The
            selection episodes draw as the training's.

    Raises:
        UserError: a parameter that it has not, something that is no range, or ranges with a value in common.
    """
    known = declared(spec.header)
    if unknown := [name for name in given if name not in known]:
        wanted = f"one of {', '.join(known)}" if known else f"none: {spec.name} has no parameters"
        raise UserError(f"env.parameters: wanted {wanted}; got {unknown[0]!r}")
    parameters = tuple(_parameter(name, given[name]) for name in known if name in given)
    state_size = spec.state_size + len(parameters)
    return dataclasses.replace(spec, state_size=state_size, parameters=parameters, header=_header(spec, parameters))


def drawn(env: VectorEnv) -> dict[str, Tensor]:
    """What the episodes that are being played drew, (N,) float32 each."""
    names = [each.name for each in env.spec.parameters]
    return dict(zip(names, env.state()["state"][-len(names) :].clone(), strict=True)) if names else {}


def expect_unseen(spec: EnvSpec, trained: EnvSpec) -> None:
    """Raises UserError where a held-out episode of `spec` may meet a value that the training on `trained` met."""
    seen = {each.name: each.train for each in trained.parameters}
    fixed = declared(spec.header)
    for each in spec.parameters:
        train = seen.get(each.name, (fixed[each.name], fixed[each.name]))
        _expect_apart(each.name, train, each.held_out, "Choose another held_out")


_LARGEST = 3.4e38  # that float32 holds, which the kernels compute in


def _parameter(name: str, ranges: Any) -> Parameter:
    if not isinstance(ranges, Mapping) or set(ranges) != {"train", "held_out"}:
        wanted = "{train: [lowest, highest], held_out: [lowest, highest]}"
        raise UserError(f"env.parameters.{name}: wanted {wanted}; got {ranges}")
    train, held_out = (_range(f"env.parameters.{name}.{split}", ranges[split]) for split in ("train", "held_out"))
    _expect_apart(name, train, held_out, "Move one of them")
    return Parameter(name, train, held_out)


def _range(key: str, given: Any) -> tuple[float, float]:
    ends = [each for each in given if type(each) in (int, float)] if isinstance(given, list | tuple) else []
    if len(ends) != 2 or len(given) != 2 or not all(abs(end) <= _LARGEST for end in ends) or ends[0] > ends[1]:
        raise UserError(f"{key}: wanted [lowest, highest], two numbers of a size up to {_LARGEST:g}; got {given}")
    return float(ends[0]), float(ends[1])


def _expect_apart(name: str, train: tuple[float, float], held_out: tuple[float, float], mend: str) -> None:
    seen, unseen = np.array(train, np.float32), np.array(held_out, np.float32)  # what the kernels compute in
    if seen[0] <= unseen[1] and unseen[0] <= seen[1]:
        wanted = "a training and a held-out range without a common value"
        found = f"train {list(train)} and held_out {list(held_out)}"
        raise UserError(f"env.parameters.{name}: wanted {wanted}; got {found}. {mend}")


def _header(spec: EnvSpec, parameters: tuple[Parameter, ...]) -> Path:
    """The header behind the definitions that its PARAMETERs are compiled by, in the cache of built kernels."""
    ranges = [*(each.train for each in parameters), *(each.held_out for each in parameters)]
    bounds = ", ".join(f"{float(np.float32(bound))!r}f" for each in ranges for bound in each)
    places = {each.name: place for place, each in enumerate(parameters)}
    lines = [f"#define LS_PARAMETERS {len(parameters)}", f"#define LS_RANGES {bounds}"]
    lines += [f"#define DRAWN_{name} {places.get(name, -1)}" for name in declared(spec.header)]
    text = "\n".join([*lines, f'#line 1 "{spec.header.name}"', spec.header.read_text()])
    folder = compiler.cache_folder() / f"{spec.header.stem}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    target = folder / spec.header.name
    if not target.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            file.write(text)
        Path(file.name).replace(target)
    return target
