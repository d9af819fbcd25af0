"""A GPU that is none: takes what the launcher gives CUDA, and runs the GPU's form of the kernels on a CPU.

What is launched (grid, block, bytes of shared memory, packed parameters) is CUDA's, as are the kernels' form (four
lanes, the GPU's tiles) and the order of things: launches wait in a stream until something waits for them, so memory
that is looked at too early is old. A wrong grid, order or type of a parameter, too little shared memory and a barrier
that not all threads reach show here as on a device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import compiler

SHARED_LIMIT = 227 * 1024  # bytes a block, an H100's
# What is run is small, and the GPU's form takes the host's compiler long to optimize.
_FLAGS = tuple("-O0" if flag == compiler.OPTIMIZATION else flag for flag in compiler.FLAGS)
MAX_THREADS, MAX_BLOCKS = 1024, 2**31 - 1


class Function:
    """A kernel as CuPy gives one."""

    def __init__(self, device: Emulated, name: str, text: str) -> None:
        # CUDA gives 48 KiB unasked, less a block's other arrays; here a launch has to ask in any case.
        self.name, self.max_dynamic_shared_size_bytes = name, 0
        self._device = device
        library = compiler.load_library(
            f"#define LS_EMULATE\n#define LS_FIBERS\n{text}constexpr auto kernel = {name};\n"
            f'#line 1 "emulated.cpp"\n{(compiler.FOLDER / "emulated.cpp").read_text()}',
            f"{name}-emulated",
            _FLAGS,
        )
        self._launch = library.launch
        self._launch.argtypes = [*3 * [ctypes.c_int], *2 * [ctypes.c_void_p], ctypes.c_int]
        self._launch.restype = ctypes.c_char_p

    def __call__(
        self, grid: tuple[int], block: tuple[int], arguments: tuple[np.generic, ...], shared_mem: int = 0
    ) -> None:
        """Puts a launch into the stream.

        Raises:
            RuntimeError: no device would take it.
        """
        (blocks,), (threads,) = grid, block
        most = min(self.max_dynamic_shared_size_bytes, self._device.shared_limit)
        if not (1 <= blocks <= MAX_BLOCKS and 1 <= threads <= MAX_THREADS and 0 <= shared_mem <= most):
            given = f"{blocks} blocks of {threads} threads and {shared_mem} bytes of shared memory"
            raise RuntimeError(f"{self.name}: a launch of {given} is invalid; at most {most} bytes")
        values = [ctypes.create_string_buffer(value.tobytes(), value.nbytes) for value in arguments]
        self._device.enqueue(functools.partial(self._run, blocks, threads, shared_mem, values))

    def _run(self, blocks: int, threads: int, shared: int, values: list[ctypes.Array[ctypes.c_char]]) -> None:
        addresses = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        sizes = (ctypes.c_int * len(values))(*map(len, values))
        if fault := self._launch(blocks, threads, shared, addresses, sizes, len(values)):
            raise RuntimeError(f"{self.name}: {fault.decode()}")


class Emulated:
    """The device, and its only stream.

    Args:
        shared_limit: bytes of shared memory that a block may have.
    """

    def __init__(self, shared_limit: int = SHARED_LIMIT) -> None:
        self.shared_limit = shared_limit
        self._stream: list[Callable[[], Any]] = []
        self._recording: list[Callable[[], Any]] | None = None

    def function(self, name: str, text: str) -> Function:
        return Function(self, name, text)

    def launch(
        self,
        function: Function,
        grid: tuple[int],
        block: tuple[int],
        arguments: tuple[Any, ...],
        shared: int,
        arrays: Sequence[Any],
    ) -> None:
        function(grid, block, arguments, shared_mem=shared)
        self.enqueue(functools.partial(len, arrays))  # the arrays' memory is held until the launch has run

    def enqueue(self, operation: Callable[[], Any]) -> None:
        (self._stream if self._recording is None else self._recording).append(operation)

    def synchronize(self) -> None:
        """Runs what the stream holds.

        Raises:
            RuntimeError: a launch failed (what stood behind it is dropped), or launches are being recorded.
        """
        if self._recording is not None:
            raise RuntimeError("nothing can be waited for, and nothing read, while launches are recorded")
        stream, self._stream = self._stream, []
        for operation in stream:
            operation()

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """What `work` does on the device, recorded, none of it run; calling the result puts it into the stream.

        Raises:
            RuntimeError: `work` waits for the device, reads from it, or allocates.
        """
        if self._recording is not None:
            raise RuntimeError("launches are recorded already")
        recorded = self._recording = []
        try:
            work()
        finally:
            self._recording = None
        return lambda: self._stream.extend(recorded)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Within, torch's operations come after the launches before them, as on CUDA's stream."""
        try:
            with _Operations(self), _Reads(self):
                yield
        finally:
            self._stream.clear()

    def operation(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """One of torch's operations, in its place among the launches."""
        if function.is_view:
            return function(*arguments, **options)
        if self._recording is None:
            self.synchronize()
            return function(*arguments, **options)
        if not function._schema.is_mutable:
            raise RuntimeError(f"{function} reads, or allocates, while launches are recorded")
        self.enqueue(functools.partial(function, *arguments, **options))
        return options.get("out", arguments[0])


class _Operations(TorchDispatchMode):
    def __init__(self, device: Emulated) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._device.operation(func, args, kwargs or {})


class _Reads(TorchFunctionMode):
    """What looks into a CPU tensor's memory without an operation."""

    def __init__(self, device: Emulated) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.tolist, torch.Tensor.numpy):
            self._device.synchronize()
        return func(*args, **(kwargs or {}))
