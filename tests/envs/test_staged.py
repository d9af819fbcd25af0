"""Steps that the host takes for a device: what arrives there is what was written, however late a copy is made."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor

import envs
from envs import staged as product
from envs.staged import Staged
from envs.vector import NativeVectorEnv, StepOutput, empty_output

CPU = torch.device("cpu")
SPEC = envs.spec("cartpole", 5)


class Late:
    """Copies to the device that are made when somebody waits for them, and not before."""

    def __init__(self) -> None:
        self.queued: dict[int, tuple[Sequence[Tensor], Sequence[Tensor]]] = {}

    def fetch(self, host: Tensor, source: Tensor) -> None:
        host.copy_(source)

    def send(self, turn: int, targets: Sequence[Tensor], host: Sequence[Tensor]) -> None:
        assert turn not in self.queued
        self.queued[turn] = (targets, host)

    def wait(self, turn: int) -> None:
        if turn in self.queued:
            for target, source in zip(*self.queued.pop(turn), strict=True):
                target.copy_(source)


def played(env: NativeVectorEnv | Staged, finish: Late | None = None) -> list[list[list[float]]]:
    """What eight steps write, each into buffers of its own."""
    outputs = [empty_output(SPEC, 6, CPU) for _ in range(8)]
    first = torch.empty(6, 4)
    env.reset(first)
    for t, out in enumerate(outputs):
        env.step(torch.arange(6, dtype=torch.int32).add(t) % 2, out)
    if finish:
        for turn in range(2):
            finish.wait(turn)
    return [[each.tolist() for each in out] for out in outputs]


def check() -> None:
    phases: list[str] = []

    def phase(name: str) -> AbstractContextManager[None]:
        phases.append(name)
        return nullcontext()

    late = Late()
    wanted = played(NativeVectorEnv(SPEC, 6, 1, CPU))
    assert played(product.Staged(NativeVectorEnv(SPEC, 6, 1, CPU), CPU, phase, late), late) == wanted
    assert phases == ["transfer"] * 16


def test_as_without() -> None:
    check()


@pytest.mark.parametrize("fault", ["one set of buffers", "nobody waits"])
def test_planted(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "one set of buffers":
        make = Staged.__init__

        def one(self: Staged, *values: object) -> None:
            make(self, *values)  # type: ignore[arg-type]
            self._outputs[1] = self._outputs[0]

        monkeypatch.setattr(Staged, "__init__", one)
    else:
        monkeypatch.setattr(Late, "wait", lambda self, turn: self.queued.pop(turn, None))
    with pytest.raises(AssertionError):
        check()


def test_the_state_is_the_environments() -> None:
    env = NativeVectorEnv(SPEC, 6, 1, CPU)
    staged = Staged(env, CPU, lambda name: nullcontext(), Late())
    assert staged.state().keys() == env.state().keys()
    assert isinstance(staged._outputs[0], StepOutput)
