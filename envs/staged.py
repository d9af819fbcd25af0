"""Environments that the host steps, for a training on a GPU: what crosses goes through pinned memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from envs.spec import EnvSpec
from envs.vector import StepOutput, VectorEnv, empty_output


class Copies(Protocol):
    """Copies between the host and a device."""

    def fetch(self, host: Tensor, source: Tensor) -> None:
        """To the host, which waits for it."""

    def send(self, turn: int, targets: Sequence[Tensor], host: Sequence[Tensor]) -> None:
        """To the device, whose next launches come after it; the host goes on."""

    def wait(self, turn: int) -> None:
        """Until the last `send` of this turn has read the host's memory."""


class CudaCopies:
    """By CUDA, to the device on a stream of their own."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()
        self._sent = [torch.cuda.Event() for _ in range(2)]

    def fetch(self, host: Tensor, source: Tensor) -> None:
        host.copy_(source, non_blocking=True)
        torch.cuda.current_stream().synchronize()

    def send(self, turn: int, targets: Sequence[Tensor], host: Sequence[Tensor]) -> None:
        # Nothing still reads the targets: since the actions came, the device has had nothing else to do.
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, host, strict=True):
                target.copy_(source, non_blocking=True)
        self._sent[turn].record(self._stream)
        torch.cuda.current_stream().wait_event(self._sent[turn])

    def wait(self, turn: int) -> None:
        self._sent[turn].synchronize()


class Staged:
    """A vector environment on the CPU as one on a device.

    Two sets of buffers take turns: the host writes a step into one while the step before it is still on its way.

    Args:
        env: the environments, on the CPU.
        device: where actions come from, and where outputs go.
        phase: times a block, by name: `transfer`.
    """

    def __init__(
        self,
        env: VectorEnv,
        device: torch.device,
        phase: Callable[[str], AbstractContextManager[None]],
        copies: Copies | None = None,
    ) -> None:
        self._env, self._phase, self._copies = env, phase, copies or CudaCopies()
        self.device, self.alive = device, env.alive
        pinned = device.type == "cuda"

        def host(like: Tensor) -> Tensor:
            return torch.empty_like(like, pin_memory=pinned)

        action_type = torch.int32 if env.spec.discrete else torch.float32
        self._action = host(torch.empty(env.num_envs, *env.spec.action_shape, dtype=action_type))
        outputs = [empty_output(env.spec, env.num_envs, torch.device("cpu")) for _ in range(2)]
        self._outputs = [StepOutput(*map(host, each)) for each in outputs]
        self._turn = 0

    @property
    def spec(self) -> EnvSpec:
        return self._env.spec

    @property
    def num_envs(self) -> int:
        return self._env.num_envs

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        first = torch.empty_like(observation, device="cpu")
        self._env.reset(first, None if episode_seeds is None else episode_seeds.cpu())
        observation.copy_(first)

    def step(self, action: Tensor, out: StepOutput) -> None:
        with self._phase("transfer"):
            self._copies.fetch(self._action, action)
        self._turn = 1 - self._turn
        self._copies.wait(self._turn)
        written = self._outputs[self._turn]
        self._env.step(self._action, written)
        with self._phase("transfer"):
            self._copies.send(self._turn, out, written)

    def state(self) -> dict[str, Tensor]:
        return self._env.state()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self._env.load_state(tensors)
