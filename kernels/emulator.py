"""Runs a kernel on the host as a GPU would, under a sanitizer: the check for races and for memory that needs no GPU.

Every CUDA thread is a thread of the system, barriers are real, a block's shared memory is a heap array of exactly the
declared size, and all blocks run at once. `thread` finds two accesses that no barrier orders; `memory` finds indices
out of bounds and undefined arithmetic. The program is compiled without the product's instruction-set flags, so equal
bits also say that neither the block's size nor the compiler's choices enter a result.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels import compiler
from kernels.launcher import Constant, In, Kernel, Out, Size, c_type, numpy_type

_FLAGS = ("-std=c++17", "-g1", "-ffp-contract=off", "-pthread", "-O0")
SANITIZERS = {
    "thread": ("-fsanitize=thread",),
    # Without the checks that double a build and see nothing here: a null pointer ends the program by itself.
    "memory": (
        "-fsanitize=address,undefined",
        "-fno-sanitize=null,object-size",
        "-fno-sanitize-address-use-after-scope",
        "-fno-sanitize-recover=all",
    ),
}
# Freed memory is not what is looked for: the program ends after one launch.
_ENVIRONMENT = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0"}


def flags(sanitizer: str) -> tuple[str, ...]:
    """The compiler's flags for a program under a sanitizer, `thread` or `memory`."""
    return (*_FLAGS, *SANITIZERS[sanitizer])


def build(
    kernel: Kernel, sanitizer: str, header: Path | None = None, constants: Mapping[str, Constant] | None = None
) -> Path:
    """The program that runs one launch of a kernel under a sanitizer, `thread` or `memory`; g++ or clang++ only."""
    passed = (
        f"({c_type(a)})a[{i}]" if isinstance(a, In) else f"*({c_type(a)}*)a[{i}]"
        for i, a in enumerate(kernel.arguments)
    )
    text = (
        f"#define LS_EMULATE\n{kernel.unit(header, constants)}"
        f"constexpr int ARGUMENTS = {len(kernel.arguments)};\n"
        f"static void call(void* const* a) {{ {kernel.name}({', '.join(passed)}); }}\n"
        f'#line 1 "emulator.cpp"\n{(compiler.FOLDER / "emulator.cpp").read_text()}'
    )
    return compiler.compile_library(text, f"{kernel.name}-{sanitizer}", flags(sanitizer))


def run(
    kernel: Kernel,
    *values: torch.Tensor | float,
    sanitizer: str,
    threads: int,
    header: Path | None = None,
    blocks: int | None = None,
    timeout: float = 120.0,
    without: tuple[str, int] | None = None,
    **constants: Constant,
) -> list[torch.Tensor]:
    """Runs one launch with `threads` threads a block and returns what it wrote, one tensor for each Out.

    Args:
        values: as for the kernel itself; they stay as they are.
        blocks: of the launch; None: as many as the kernel's own launch has.
        without: file and line of a barrier to leave out, to see it missed.
        timeout: seconds after which threads are taken to wait at a barrier that not all of them reach.

    Raises:
        ValueError: an array is not as declared.
        RuntimeError: the sanitizer found a fault (the text is its report), or the program did not end.
    """
    sizes, _ = kernel.check(values, constants)
    program = build(kernel, sanitizer, header, constants)
    iterator = iter(values)
    every = [sizes[a.name] if isinstance(a, Size) else next(iterator) for a in kernel.arguments]
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "in", Path(folder) / "out"
        before.write_bytes(b"".join(_record(numpy_type(a), v) for a, v in zip(kernel.arguments, every, strict=True)))
        command = [str(program), str(before), str(after), str(blocks or kernel.blocks(sizes)), str(threads)]
        command += map(str, without or ())
        surroundings = os.environ | _ENVIRONMENT
        try:
            result = subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{kernel.name}: threads still wait at a barrier after {timeout:g} s") from None
        if result.returncode != 0:
            raise RuntimeError(f"{kernel.name}: exit code {result.returncode} under {sanitizer}:\n{result.stderr}")
        return _outputs(kernel, every, after.read_bytes())


def _record(scalar_type: Any, value: torch.Tensor | float) -> bytes:
    """An argument as the program reads it: its size in bytes, then its bytes."""
    data = value.numpy().tobytes() if isinstance(value, torch.Tensor) else scalar_type(value).tobytes()
    return len(data).to_bytes(8, "little") + data


def _outputs(kernel: Kernel, values: list[Any], data: bytes) -> list[torch.Tensor]:
    outputs, place = [], 0
    for argument, value in zip(kernel.arguments, values, strict=True):
        size = int.from_bytes(data[place : place + 8], "little")
        place += 8
        if isinstance(argument, Out):
            raw = np.frombuffer(data[place : place + size], value.numpy().dtype).copy()
            outputs.append(torch.from_numpy(raw).reshape(value.shape))
        place += size
    return outputs
