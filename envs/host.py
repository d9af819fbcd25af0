"""Environments of others as a vector environment.

Gymnasium's are stepped by a loop in this process, or by worker processes; EnvPool's by envs/envpool_adapter.py's pool.
"""

import contextlib
import functools
import itertools
import json
import mmap
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from envs import player
from envs.envpool_adapter import EnvPoolSpec, Pool
from envs.gymnasium_adapter import GymnasiumSpec, HostSpec, WorldSpec
from envs.player import Board, PlayError, Task
from envs.spec import Box, MultiDiscrete
from envs.vector import StepOutput, empty_output, worlds
from kernels.episode_seeds import episode_seeds as training_seeds
from kernels.episode_seeds import host_seeds
from kernels.errors import UserError

# Seconds of a step of all environments below which worker processes are not tried: waking them takes as long.
CHEAP = 250e-6
TRIAL_SECONDS = 0.1  # of each way to step them
START_SECONDS = 60.0  # for a process to begin and to import, beside what making its environments may take


class HostVectorEnv:
    """N environments of others with same-step autoreset, as `envs.vector.VectorEnv` describes it.

    Each episode begins by `reset(seed=s)`, s from its seed (`kernels.episode_seeds.host_seeds`), in the step that ended
    the one before it. Gymnasium's and EnvPool's own autoreset is not used, so no row is a filler between two episodes,
    and all of them count as steps. How the environments are stepped changes no bit, if they share nothing with one
    another. Where only the first episode takes a seed (see `spec.seeded_at_reset`), later ones have theirs by name.

    What an environment is in the midst of cannot be saved: `state` holds the episodes' seeds alone.

    Args:
        spec: the environment, and how it is stepped (`workers`, `timeout_s`).
        num_envs: N, at least 1.
        run_seed: 64 bits; environment i's episode k has the seed `episode_seeds(run_seed, i, k)`.
        device: where observations and rewards go; the environments run on the host.

    Attributes:
        workers: processes that step the environments; 0: a loop in this one; None: the threads of a pool.

    Raises:
        UserError: an environment cannot be made.
    """

    alive: Tensor | None = None

    def __init__(self, spec: HostSpec, num_envs: int, run_seed: int, device: torch.device) -> None:
        if num_envs < 1:
            raise UserError(f"env: num_envs must be at least 1; got {num_envs}")
        self.spec, self.num_envs, self.device = spec, num_envs, device
        self._run_seed = run_seed
        self._stepper = stepper(spec, num_envs)
        self.workers = self._stepper.workers
        self._board = board = self._stepper.board
        self._action = torch.from_numpy(board.action).view(num_envs, *spec.action_shape)
        written = (
            board.observation, board.reward, board.terminated, board.truncated, board.final_observation,
            board.episode_return, board.episode_length,
        )  # fmt: skip
        self._written = [torch.from_numpy(array) for array in written]
        self._expected = [(each.dtype, each.shape) for each in (self._action, *empty_output(spec, num_envs, device))]
        self._environment = worlds(spec, num_envs)
        self._state = {name: torch.zeros(num_envs, dtype=torch.int64) for name in ("episode_seed", "episode_index")}
        self._next_seed = torch.zeros(num_envs, dtype=torch.int64)
        weakref.finalize(self, self._stepper.close)

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        """Begins the episodes of the given seeds, or each environment's training episode 0.

        After an end either kind goes on with the environment's training episode 1, 2, ...

        Args:
            observation: (N, D) float32, written.
            episode_seeds: (N,) int64 bit patterns.

        Raises:
            ValueError: an array is not as stated.
            UserError: an environment raised, hangs, or its process is gone.
        """
        state = self._state
        if episode_seeds is None:
            episode_seeds = self._seeds(torch.zeros_like(state["episode_index"]))
        if episode_seeds.shape != (self.num_envs,) or episode_seeds.dtype != torch.int64:
            found = f"{episode_seeds.dtype} {tuple(episode_seeds.shape)}".removeprefix("torch.")
            raise ValueError(f"reset: episode_seeds must be int64 ({self.num_envs},); got {found}")
        state["episode_seed"].copy_(episode_seeds)
        state["episode_index"].zero_()
        self._board.seed[:] = host_seeds(state["episode_seed"]).numpy()
        self._stepper.reset()
        observation.copy_(self._written[0])
        self._announce()

    def step(self, action: Tensor, out: StepOutput) -> None:
        """Plays one step and begins the next training episode where one ended.

        Args:
            action: (N,) or (N, K) int32 choices from 0, or (N, A) float32, clipped to the bounds.
            out: written, every element.

        Raises:
            ValueError: an array is not as stated.
            UserError: an environment raised, hangs, or its process is gone.
        """
        given = (action, *out)
        if [(each.dtype, each.shape) for each in given] != self._expected:
            found = [f"{each.dtype} {tuple(each.shape)}" for each in given]
            raise ValueError(f"step: wanted action and outputs of {self._expected}; got {found}")
        self._action.copy_(action)
        self._stepper.step()
        for target, source in zip(out, self._written, strict=True):
            target.copy_(source)
        begun = self._begun()
        if begun.any():
            rows = torch.from_numpy(begun).bool()
            self._state["episode_seed"][rows] = self._next_seed[rows]
            self._state["episode_index"] += rows
            self._announce()

    @property
    def frames(self) -> int:
        """Frames that emulators made since the first reset, those at episodes' starts included; 0 where none count."""
        return int(self._board.frames.sum())

    def state(self) -> dict[str, Tensor]:
        """By reference: episode_seed and episode_index (N,) int64, of the episodes that are being played."""
        return dict(self._state)

    def load_state(self, tensors: Mapping[str, Tensor]) -> NoReturn:
        """Raises ValueError: no environment of others can be put back to where it was."""
        raise ValueError(f"load_state: the state of {self.spec.id} cannot be saved, nor loaded")

    def _begun(self) -> np.ndarray:
        """(N,) uint8: where the step began a new episode."""
        return self._board.terminated | self._board.truncated

    def _seeds(self, episode: Tensor) -> Tensor:
        return training_seeds(self._run_seed, self._environment, episode)

    def _announce(self) -> None:
        """Puts the seeds of the episodes that come next on the board."""
        self._next_seed = self._seeds(self._state["episode_index"] + 1)
        self._board.seed[:] = host_seeds(self._next_seed).numpy()


class Worlds(HostVectorEnv):
    """PettingZoo's parallel environments, each agent a row: k rows a world, one world after the other.

    A world's episodes are of the seed that all its rows have. They begin an episode together, whenever each ended;
    between the two a row is a filler, as `envs.vector.VectorEnv` describes it.

    Raises:
        UserError: the number of rows is no multiple of k.
    """

    def __init__(self, spec: WorldSpec, num_envs: int, run_seed: int, device: torch.device) -> None:
        if num_envs % spec.agents:
            near = max(1, num_envs // spec.agents) * spec.agents
            raise UserError(
                f"ppo.num_envs: wanted a multiple of the {spec.agents} agents of {spec.id}, each of which is a row; "
                f"got {num_envs}. Nearest: {near}, {near + spec.agents}"
            )
        super().__init__(spec, num_envs, run_seed, device)
        self.alive = torch.from_numpy(self._board.alive)

    def _begun(self) -> np.ndarray:
        return self._board.begun


# ---------------------------------------------------------------------------------------------------------------------
# Who steps them
# ---------------------------------------------------------------------------------------------------------------------


class Stepper(Protocol):
    """Plays what is on the board. Each call raises UserError where an environment does not answer as it should."""

    board: Board
    workers: int | None  # processes; None: threads of a pool's own

    def reset(self) -> None:
        """Begins episodes of the board's seeds in all environments."""

    def step(self) -> None:
        """Plays the board's actions; new episodes are of the board's seeds."""

    def close(self) -> None:
        """Ends the environments, and processes."""


def stepper(spec: HostSpec, num_envs: int) -> Stepper:
    """Who steps N environments of the specification."""
    if isinstance(spec, EnvPoolSpec):
        return Pool(spec, player.board(*_shape(spec, num_envs)))
    assert isinstance(spec, GymnasiumSpec)
    workers = faster(spec, num_envs // spec.agents) if spec.workers is None else min(spec.workers, num_envs)
    return _stepper(spec, num_envs, workers)


def _stepper(spec: GymnasiumSpec, num_envs: int, workers: int) -> Stepper:
    return Workers(spec, num_envs, workers) if workers else Loop(spec, num_envs)


def _shape(spec: HostSpec, num_envs: int) -> tuple[int, int, int, bool]:
    """The arguments of `player.board`."""
    return num_envs, spec.observation_size, int(np.prod(spec.action_shape)), spec.discrete


def _task(spec: GymnasiumSpec, first: int, end: int, **process: Any) -> Task:
    agents = spec.agents if isinstance(spec, WorldSpec) else 0
    common = (spec.id, spec.kwargs, spec.max_episode_steps, first, end, agents)
    return Task(*common, **process)


class Loop:
    """All environments in this process, one after the other."""

    workers: int | None = 0

    def __init__(self, spec: GymnasiumSpec, num_envs: int) -> None:
        self._spec = spec
        self.board = player.board(*_shape(spec, num_envs))
        self._player = player.players(_task(spec, 0, num_envs), self.board)

    def reset(self) -> None:
        try:
            self._player.reset()
        except PlayError as error:
            raise _complaint(self._spec, error) from error

    def step(self) -> None:
        try:
            self._player.step()
        except PlayError as error:
            raise _complaint(self._spec, error) from error

    def close(self) -> None:
        self._player.close()


def _complaint(spec: GymnasiumSpec, raised: PlayError) -> UserError:
    wanted = f"wanted an answer of {spec.id} to {raised.call}(); environment {raised.environment} raised {raised.text}"
    return UserError(f"env.id: {wanted}. Mend it; where it was:\n{raised.trace}")


class Workers:
    """Environments in worker processes over shared memory; a byte through a pipe starts a step, another one ends it.

    The memory has no name and the pipes none either, so nothing is left over whatever dies. A pipe's other end
    tells at once that it did: workers end when this process does, and a worker that is gone is named.
    """

    def __init__(self, spec: GymnasiumSpec, num_envs: int, workers: int) -> None:
        self._spec = spec
        self.workers: int | None = workers
        shape = _shape(spec, num_envs)
        with (
            tempfile.TemporaryFile()
            if not hasattr(os, "memfd_create")
            else os.fdopen(os.memfd_create("lockstep"), "r+b") as file
        ):
            file.truncate(player.board_bytes(*shape))
            self.board = player.board(*shape, mmap.mmap(file.fileno(), 0))
            worlds = num_envs // spec.agents
            edges = [worlds * number // workers * spec.agents for number in range(workers + 1)]
            self._shares = list(itertools.pairwise(edges))
            self._processes: list[subprocess.Popen[bytes]] = []
            self._answers: list[int] = []
            try:
                for first, end in self._shares:
                    self._start(shape, first, end, file.fileno())
                self._wait("be made", START_SECONDS + spec.timeout_s)
            except BaseException:
                self.kill()
                raise

    def _start(self, shape: tuple[int, int, int, bool], first: int, end: int, memory: int) -> None:
        spec = self._spec
        answers, inherited = os.pipe()
        self._answers.append(answers)
        task = _task(spec, first, end, board=shape, memory=memory, answers=inherited, parent=os.getpid())
        path = [str(Path.cwd()) if entry == "" else entry for entry in sys.path]
        arguments = (json.dumps(path), player.__file__, json.dumps(asdict(task)))
        self._processes.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", player.BOOTSTRAP, *arguments],
                stdin=subprocess.PIPE,
                pass_fds=(memory, inherited),
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                bufsize=0,
            )
        )
        os.close(inherited)

    def reset(self) -> None:
        self._tell(player.RESET)
        self._wait("reset", self._spec.timeout_s)

    def step(self) -> None:
        self._tell(player.STEP)
        self._wait("step", self._spec.timeout_s)

    def close(self) -> None:
        """Lets the workers end by themselves; kills those that do not."""
        for process in self._processes:
            if process.stdin:
                process.stdin.close()
        deadline = time.monotonic() + 2.0
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self.kill()

    def kill(self) -> None:
        """Ends the workers at once."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            if process.stdin:
                process.stdin.close()
        for answers in self._answers:
            os.close(answers)
        self._processes, self._answers = [], []

    def _tell(self, command: bytes) -> None:
        for process in self._processes:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):  # its answer tells why
                process.stdin.write(command)

    def _wait(self, call: str, seconds: float) -> None:
        """Until each worker has answered. UserError, with all workers ended: one raised, died or hangs."""
        waiting = dict(zip(self._answers, range(len(self._answers)), strict=True))
        deadline = time.monotonic() + seconds
        while waiting:
            ready, _, _ = select.select(waiting, (), (), max(0.0, min(1.0, deadline - time.monotonic())))
            for answers in ready:
                answer = os.read(answers, 1)
                if answer != player.DONE:
                    self._fail(self._said(waiting[answers], answer))
                del waiting[answers]
            if not ready:
                for number in waiting.values():  # a process of its own may hold its pipe open
                    if self._processes[number].poll() is not None:
                        self._fail(self._said(number, b""))
                if time.monotonic() >= deadline:
                    self._fail(self._hanging(min(waiting.values()), call, seconds))

    def _fail(self, error: UserError) -> NoReturn:
        self.kill()
        raise error

    def _said(self, number: int, answer: bytes) -> UserError:
        """What a worker that did not finish its call says, or what became of it."""
        if answer == player.FAILED:
            with os.fdopen(os.dup(self._answers[number]), "rb") as file:
                content = json.loads(file.readline())
            if "refusal" in content:
                return UserError(content["refusal"])
            return _complaint(self._spec, PlayError(**content))
        first, end = self._shares[number]
        code = self._processes[number].wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return UserError(
            f"env.workers: wanted every worker process to go on; that of environments {first} to {end - 1} of "
            f"{self._spec.id} was ended by {how}. A lack of memory kills, and so does a fault in native code; "
            "env.workers=0 runs the environments in the training's own process"
        )

    def _hanging(self, number: int, call: str, seconds: float) -> UserError:
        first, end = self._shares[number]
        busy = np.flatnonzero(self.board.playing[first:end])
        which = f"environment {first + int(busy[0])}" if len(busy) else f"environments {first} to {end - 1}"
        return UserError(
            f"env.timeout_s: wanted {which} of {self._spec.id} to {call} within {seconds:g} s; it has "
            "not. Mend what it waits for, or give a larger env.timeout_s"
        )


# ---------------------------------------------------------------------------------------------------------------------
# The faster way
# ---------------------------------------------------------------------------------------------------------------------


@functools.cache
def faster(spec: GymnasiumSpec, num_envs: int) -> int:
    """The number of worker processes that steps N environments faster: one a core, or none.

    Throw-away copies are played for a moment, in this process and, unless a step is cheap, by workers.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(cores, num_envs // spec.agents)
    if workers < 2:
        return 0
    loop = seconds_a_step(spec, num_envs, 0)
    if loop < CHEAP:
        return 0
    return workers if seconds_a_step(spec, num_envs, workers) < loop else 0


def seconds_a_step(spec: GymnasiumSpec, num_envs: int, workers: int) -> float:
    """Seconds of a step of N environments under random actions, the median of a moment: others may use the cores."""
    stepper, source = _stepper(spec, num_envs, workers), np.random.RandomState(0)
    board, action = stepper.board, spec.action
    try:
        board.seed[:] = np.arange(num_envs)
        stepper.reset()
        seconds: list[float] = []
        while len(seconds) < 5 or sum(seconds) < TRIAL_SECONDS:
            if isinstance(action, Box):
                board.action[:] = source.uniform(action.low, action.high, board.action.shape)
            else:
                sizes = action.sizes if isinstance(action, MultiDiscrete) else (action.n,)
                board.action[:] = source.randint(0, sizes, board.action.shape)
            begun = time.perf_counter()
            stepper.step()
            seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds)
    finally:
        stepper.close()
