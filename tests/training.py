"""What the trainer's tests share: trainings of a fraction of a second, and faults put into a source."""

import dataclasses
import functools
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from forked import python

from kernels import compiler
from kernels.launcher import Kernel
from pipeline import checkpoint, provenance, train
from pipeline import config as configuration
from pipeline.config import Config
from pipeline.ppo import PPO

ROOT = Path(__file__).resolve().parents[1]
# Environments of every kind of action, reward and end. To the trainer the others are no other kind, and each would cost
# the building of a network's kernels.
NAMES = ("acrobot", "breakout", "cartpole", "mountain_car_continuous", "pendulum")
# Six iterations of four environments, in which many episodes end.
SMALL = (
    "device=cpu", "device.threads=1", "tracking.enabled=false", "policy.hidden=[9,8]", "env.max_episode_steps=20",
    "ppo.total_steps=192", "ppo.num_envs=4", "ppo.num_steps=8", "ppo.num_minibatches=2", "ppo.update_epochs=2",
    "evaluate.episodes=5",
)  # fmt: skip
# What a second run must reproduce to the byte.
REPRODUCED = (checkpoint.TENSORS, checkpoint.MANIFEST, "curve.csv")

_load = functools.cache(lambda *overrides: configuration.load(overrides))

Pair = tuple[str, str]


def small(out: Path, *overrides: str) -> Config:
    """The configuration of a small training (or of its evaluation) in `out`; an environment comes first."""
    environment = [each for each in overrides if each.startswith("env=")]
    rest = [each for each in overrides if not each.startswith("env=")]
    return dataclasses.replace(_load(*environment, *SMALL, *rest), out=str(out))


def contents(folder: Path, names: tuple[str, ...] = REPRODUCED) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def faulty(module: ModuleType, *pairs: Pair) -> ModuleType:
    """A copy of a module, built from its source with each `right` replaced by `wrong`.

    LookupError, which no test takes for a fault that was seen: the source has no such place to put it into.
    """
    path = Path(str(module.__file__))
    text = path.read_text()
    for right, wrong in pairs:
        if text.count(right) != 1:
            raise LookupError(f"{path.name}: {right!r} is there {text.count(right)} times")
        text = text.replace(right, wrong)
    copy = ModuleType(module.__name__)
    copy.__file__ = str(path)
    exec(compile(text, path, "exec"), copy.__dict__)
    return copy


def plant_in_kernel(monkeypatch: pytest.MonkeyPatch, folder: Path, kernel: Kernel, right: str, wrong: str) -> None:
    """For one test the kernel is built from a copy of its source, or of a header's that it includes, with a fault.

    LookupError, as `faulty`: there is no such place, or several.
    """
    text = kernel.path.read_text()
    if right not in text:
        text = _with_headers(text, set())
    if text.count(right) != 1:
        raise LookupError(f"{kernel.path.name} and its headers: {right!r} is there {text.count(right)} times")
    copy = folder / kernel.name / kernel.path.name
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(text.replace(right, wrong))
    monkeypatch.setattr(kernel, "path", copy)
    for cache in ("_functions", "_plans"):
        monkeypatch.setattr(kernel, cache, {})


def _with_headers(text: str, seen: set[str]) -> str:
    """A source with the headers that it includes in their places."""

    def header(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return _with_headers((compiler.FOLDER / name).read_text(), seen).replace("#pragma once\n", "")

    return re.sub(r'#include "(\w+\.cuh)"\n', header, text)


def command(stage: str, scratch: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Runs a stage as a user does; Hydra's own folder lies in `scratch`."""
    return python(["-m", f"pipeline.{stage}", f"hydra.run.dir={scratch / 'hydra'}", *overrides], ROOT)


def kill_at(instants: list[tuple[str, int, str]]) -> None:
    """Starts a small training for each (point, count, folder) and kills it there; forked, so that torch loads once."""
    train.PARTIAL_SECONDS = -1.0  # one after each iteration
    provenance.collect = lambda device: {}
    provenance.write = lambda name, facts: None
    small(Path())
    compiler.identity()
    for point, count, folder in instants:
        child = os.fork()
        if not child:
            _die(point, count)
            train.run(small(Path(folder)))
            os._exit(0)
        if point == "milliseconds":
            time.sleep(count / 1000)
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        assert point == "milliseconds" or os.WIFSIGNALED(status), f"{point} {count} never came"


def _die(point: str, count: int) -> None:
    """Sets where this process kills itself: before the count-th flush, or after the count-th of another point."""
    calls = itertools.count(1)

    def fatal(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            now = next(calls) == count
            if now and point == "flush":
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    if point == "iteration":
        PPO.iterate = fatal(PPO.iterate)  # type: ignore[method-assign]
    elif point == "flush":
        os.fsync = fatal(os.fsync)
    elif point == "rename":
        Path.replace = fatal(Path.replace)  # type: ignore[method-assign]
