"""Declares, checks and launches kernels: one argument list for the host and for CUDA.

A kernel's `.cu` file is compiled as it is, by the host's C++ compiler behind a generated loop over blocks, or by NVRTC
through CuPy. Its argument list is declared once, here called `arguments`, and read by both, so that every call on a CPU
also tests what a call on a GPU passes. What else a launch on a GPU consists of is the same text for CUDA and for the
emulated device (kernels/emulated.py).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from kernels import compiler
from kernels.emulated import Emulated

# declared name: (C type, torch dtype, ctypes type of a scalar, NumPy type of a scalar)
_TYPES: dict[str, tuple[str, torch.dtype | None, Any, Any]] = {
    "float32": ("float", torch.float32, ctypes.c_float, np.float32),
    "float64": ("double", torch.float64, ctypes.c_double, np.float64),
    "int32": ("int", torch.int32, ctypes.c_int32, np.int32),
    "int64": ("long long", torch.int64, ctypes.c_int64, np.int64),
    "uint8": ("unsigned char", torch.uint8, ctypes.c_uint8, np.uint8),
    "uint32": ("unsigned", None, ctypes.c_uint32, np.uint32),
    "uint64": ("unsigned long long", None, ctypes.c_uint64, np.uint64),
}
SHARED_LIMITS = {"sm_75": 64 << 10, "sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}  # bytes a block
CUDA_OPTIONS = ("--std=c++17", "--fmad=false", f"-I{compiler.FOLDER}")


@dataclass(frozen=True)
class In:
    """An array that the kernel reads.

    `shape` holds numbers and names. Equal names are equal sizes; `"T+1"` and `"2A"` are allowed.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    const: str = "const "


@dataclass(frozen=True)
class Out(In):
    """An array that the kernel writes (and may read)."""

    const: str = ""


@dataclass(frozen=True)
class Size:
    """A size of the arrays' shapes, passed to the kernel as an int."""

    name: str


@dataclass(frozen=True)
class Scalar:
    """A number passed by value."""

    name: str
    dtype: str


Constant = int | tuple[int, ...]  # a tuple becomes a list in C++: 64, 64
Tile = Callable[[Mapping[str, Constant], int], tuple[Mapping[str, Constant], int]]


class Device(Protocol):
    """What a launch on a GPU asks of it."""

    @property
    def shared_limit(self) -> int:
        """Bytes of shared memory that a block may ask for."""

    def function(self, name: str, text: str) -> Any:
        """The kernel of a translation unit, compiled and loaded."""

    def launch(
        self, function: Any, grid: tuple[int], block: tuple[int], arguments: Any, shared: int, arrays: Sequence[Any]
    ) -> None:
        """Puts a launch over `arrays` into the present stream."""


class Cuda:
    """CUDA's present device, through CuPy."""

    @property
    def shared_limit(self) -> int:
        import cupy

        return int(cupy.cuda.Device(torch.cuda.current_device()).attributes["MaxSharedMemoryPerBlockOptin"])

    def function(self, name: str, text: str) -> Any:
        import cupy

        # CuPy loads and launches, and does not compile: it would flush denormals, and its cache knows no headers.
        with cupy.cuda.Device(torch.cuda.current_device()) as device:
            cubin = _cached_cubin(name, f"sm_{device.compute_capability}", text)
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(cubin.code)
                file.flush()
                return cupy.RawModule(path=file.name).get_function(name)

    def launch(
        self, function: Any, grid: tuple[int], block: tuple[int], arguments: Any, shared: int, arrays: Sequence[Any]
    ) -> None:
        import cupy

        stream = torch.cuda.current_stream()
        with cupy.cuda.Device(stream.device_index), cupy.cuda.ExternalStream(stream.cuda_stream):
            function(grid, block, arguments, shared_mem=shared)


_emulated: Emulated | None = None
_chosen = ExitStack()


def backend(device: torch.device) -> Device | None:
    """What launches over arrays on `device` go to; None: the host's own build."""
    return Cuda() if device.type == "cuda" else _emulated


@contextmanager
def emulating(device: Emulated) -> Iterator[Emulated]:
    """Within, launches over CPU tensors go to the emulated device, and torch's operations keep its order."""
    global _emulated
    before, _emulated = _emulated, device
    try:
        with device.in_order():
            yield device
            device.synchronize()
    finally:
        _emulated = before


def choose(emulated: bool) -> None:
    """Where the launches of this process over CPU tensors go from now on."""
    _chosen.close()
    if emulated:
        _chosen.enter_context(emulating(Emulated()))


class Program:
    """Launches over CPU tensors that are recorded once and then run together.

    The arrays' addresses and the scalars are recorded, not the arrays' contents: what changes from run to run lies in
    an array.
    """

    def __init__(self, record: Callable[[], None]) -> None:
        """Records what `record` launches; nothing runs."""
        self._run = _emulated.record(record) if _emulated else HostProgram(record)

    def __call__(self) -> None:
        """Runs the launches, one after the other."""
        self._run()


class HostProgram:
    """A program on the host: one call, which holds no lock of Python's."""

    recording: ClassVar[HostProgram | None] = None

    def __init__(self, record: Callable[[], None]) -> None:
        self._pool = compiler.pool()
        self._kept: list[torch.Tensor] = []
        self._handle = self._pool.program_new()
        assert HostProgram.recording is None, "programs are not recorded within one another"
        self._pool.program_record(self._handle)
        HostProgram.recording = self
        try:
            record()
        finally:
            HostProgram.recording = None
            self._pool.program_record(None)

    def keep(self, values: Sequence[Any]) -> None:
        """Holds the memory of a launch's arrays for as long as the program may run."""
        self._kept += [value for value in values if isinstance(value, torch.Tensor)]

    def __call__(self) -> None:
        self._pool.program_run(self._handle)

    def __del__(self) -> None:
        self._pool.program_free(self._handle)


class Kernel:
    """A kernel of `kernels/<name>.cu`.

    Args:
        name: the kernel's name, and its file's unless `file` is given.
        arguments: the kernel's parameters in order.
        blocks: from the sizes of the arrays' shapes to the number of blocks.
        constants: names of the compile-time constants, passed by keyword with each call; they may stand in shapes.
        threads: threads a block on a GPU.
        tile: of a kernel with a SHARED_TILE, from the constants and the most bytes of shared memory that a GPU gives a
            block to the constants that its form there has besides, and the tile's bytes.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[In | Size | Scalar],
        blocks: Callable[[Mapping[str, int]], int],
        *,
        file: str | None = None,
        constants: Sequence[str] = (),
        threads: int = 128,
        tile: Tile | None = None,
    ) -> None:
        self.name = name
        self.arguments = tuple(arguments)
        self.blocks = blocks
        self.constants = tuple(constants)
        self.threads = threads
        self.tile = tile
        self.path = compiler.FOLDER / f"{file or name}.cu"
        self._positional = [a for a in self.arguments if not isinstance(a, Size)]
        self._functions: dict[tuple[object, ...], Callable[..., None]] = {}
        self._plans: dict[tuple[object, ...], tuple[Callable[..., None], int, list[int | None]]] = {}

    def __call__(self, *values: torch.Tensor | float, header: Path | None = None, **constants: Any) -> None:
        """Checks the arguments and runs the kernel on the arrays' device.

        Args:
            values: one for each In, Out and Scalar, in the declared order; sizes are taken from the arrays.
            header: a further source in front of the kernel's (an environment's dynamics).
            constants: the compile-time constants.

        Raises:
            ValueError: an array's dtype, shape, layout or device is not the declared one.
        """
        # A call like an earlier one was checked then: the rollout calls kernels thousands of times a second.
        likeness = [
            (v.dtype, v.shape, v.is_contiguous(), v.device) if isinstance(v, torch.Tensor) else 0 for v in values
        ]
        key = (_emulated, header, *constants.items(), *likeness)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self.plan(values, header, constants)
        run, blocks, sizes = plan
        iterator = iter(values)
        run(blocks, [next(iterator) if size is None else size for size in sizes])

    def plan(
        self, values: Sequence[Any], header: Path | None, constants: Mapping[str, Constant]
    ) -> tuple[Callable[..., None], int, list[int | None]]:
        """Checks as a call does. The compiled function, its number of blocks, and sizes, None where a value goes.

        Raises:
            ValueError: as a call.
        """
        sizes, device = self.check(values, constants)
        built = (device.type, _emulated, header, *(constants[name] for name in self.constants))
        if built not in self._functions:
            target = backend(device)
            make = self.build_host if target is None else functools.partial(self._build_device, target)
            self._functions[built] = make(header, constants)
        places = [sizes[a.name] if isinstance(a, Size) else None for a in self.arguments]
        return self._functions[built], self.blocks(sizes), places

    def unit(self, header: Path | None = None, constants: Mapping[str, Constant] | None = None) -> str:
        """The translation unit that either compiler sees: constants, header, kernel."""
        defines = "".join(f"#define LS_{name} {_listed(value)}\n" for name, value in (constants or {}).items())
        parts = [(header, source(header))] if header else []
        parts.append((self.path, self.path.read_text()))
        return defines + "".join(f'#line 1 "{path.name}"\n{text}\n' for path, text in parts)

    def host_unit(self, header: Path | None = None, constants: Mapping[str, Constant] | None = None) -> str:
        """The unit behind a loop over blocks, exported as `launch`."""
        declared = ", ".join(f"{c_type(a)} {a.name}" for a in self.arguments)
        names = ", ".join(a.name for a in self.arguments)
        captured = "".join(f" {c_type(a)} {a.name};" for a in self.arguments)
        members = ", ".join(f"a->{a.name}" for a in self.arguments)
        return self.unit(header, constants) + (
            f"struct Arguments {{ int blocks;{captured} }};\n"
            "static void run_block(void* context, int block) {\n"
            "    const Arguments* a = (const Arguments*)context;\n"
            "    gridDim.x = a->blocks;\n    blockIdx.x = block;\n"
            f"    {self.name}({members});\n}}\n"
            'extern "C" void launch(void (*submit)(int, void (*)(void*, int), void*, int), int blocks, '
            f"{declared}) {{\n"
            f"    Arguments arguments{{blocks, {names}}};\n"
            "    submit(blocks, run_block, &arguments, sizeof arguments);\n}\n"
        )

    def build_host(self, header: Path | None, constants: Mapping[str, Constant]) -> Callable[..., None]:
        library = compiler.load_library(self.host_unit(header, constants), self.name)
        launch = library.launch
        launch.argtypes = [ctypes.c_void_p, ctypes.c_int, *(_ctypes_type(a) for a in self.arguments)]
        launch.restype = None
        submit = ctypes.cast(compiler.pool().submit, ctypes.c_void_p)

        def run(blocks: int, values: list[torch.Tensor | float]) -> None:
            launch(submit, blocks, *[v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values])
            if HostProgram.recording:
                HostProgram.recording.keep(values)

        return run

    def device_unit(
        self, shared_limit: int, header: Path | None = None, constants: Mapping[str, Constant] | None = None
    ) -> tuple[str, int]:
        """The unit for a GPU whose blocks may have so many bytes of shared memory, and those that a launch asks for."""
        more, shared = self.tile(constants or {}, shared_limit) if self.tile else ({}, 0)
        return self.unit(header, {**(constants or {}), **more}), shared

    def _build_device(
        self, device: Device, header: Path | None, constants: Mapping[str, Constant]
    ) -> Callable[..., None]:
        text, shared = self.device_unit(device.shared_limit if self.tile else 0, header, constants)
        function = device.function(self.name, text)
        if shared:  # above 48 KiB a launch has to ask, and a block's other arrays count too
            function.max_dynamic_shared_size_bytes = shared
        types = [numpy_type(a) for a in self.arguments]

        def run(blocks: int, values: list[torch.Tensor | float]) -> None:
            if HostProgram.recording:
                raise RuntimeError(f"{self.name}: a program of the host's takes no launch on a device")
            raw = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values]
            arguments = tuple(t(v) for t, v in zip(types, raw, strict=True))
            device.launch(function, (blocks,), (self.threads,), arguments, shared, values)

        return run

    def check(self, values: Sequence[Any], constants: Mapping[str, Constant]) -> tuple[dict[str, int], torch.device]:
        """The sizes that the arrays give and where they lie; refuses what is not as declared, as a call does."""
        if len(values) != len(self._positional):
            raise ValueError(f"{self.name}: wanted {len(self._positional)} arguments, got {len(values)}")
        if set(constants) != set(self.constants):
            raise ValueError(f"{self.name}: wanted the constants {sorted(self.constants)}, got {sorted(constants)}")
        sizes = {name: value if isinstance(value, int) else len(value) for name, value in constants.items()}
        device: torch.device | None = None
        for argument, value in zip(self._positional, values, strict=True):
            if isinstance(argument, Scalar):
                if not isinstance(value, int | float):
                    raise ValueError(f"{self.name}: {argument.name} must be a number; got {type(value).__name__}")
                continue
            if not isinstance(value, torch.Tensor):
                raise ValueError(f"{self.name}: {argument.name} must be a torch tensor; got {type(value).__name__}")
            device = device or value.device
            if value.numel() >= 2**31:
                raise ValueError(f"{self.name}: {argument.name} must have under 2**31 elements; got {value.numel()}")
            fits = (
                value.dtype == _TYPES[argument.dtype][1]
                and value.dim() == len(argument.shape)
                and all(_unify(sizes, want, got) for want, got in zip(argument.shape, value.shape, strict=True))
                and value.is_contiguous()
                and value.device == device
            )
            if not fits:
                raise ValueError(self._complaint(argument, value, sizes, device))
        if device is None or device.type not in ("cpu", "cuda"):
            raise ValueError(f"{self.name}: arrays must be on cpu or cuda; got {device}")
        return sizes, device

    def _complaint(self, argument: In, value: torch.Tensor, sizes: Mapping[str, int], device: torch.device) -> str:
        want = ", ".join(str(resolve(sizes, s)) for s in argument.shape)
        layout = "" if value.is_contiguous() else ", not contiguous"
        shape_fits = len(argument.shape) == value.dim() and all(
            resolve(sizes, s) in (s, n) for s, n in zip(argument.shape, value.shape, strict=True)
        )
        advice = f"{argument.name}.to({str(device)!r}, torch.{argument.dtype}).contiguous()"
        return (
            f"{self.name}: {argument.name} must be {argument.dtype} ({want}), contiguous, on {device}; "
            f"got {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}{layout} on {value.device}."
            + (f" Convert with {advice}" if shape_fits else "")
        )


def source(header: Path) -> str:
    """The text of an environment's header, where it includes one beside it with that one's text in the place.

    So both are compiled, cached and hashed as one.
    """
    lines = header.read_text().splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        include = _INCLUDE.match(line)
        if include and (other := header.with_name(include[1])).exists():
            lines[number - 1] = f'#line 1 "{other.name}"\n{source(other)}\n#line {number + 1} "{header.name}"\n'
    return "".join(lines)


_INCLUDE = re.compile(r'#include "(.+)"')


def _listed(value: Constant) -> str:
    return str(value) if isinstance(value, int) else ", ".join(map(str, value))


_SIZE = re.compile(r"(\d*)([A-Za-z]\w*)(?:\+(\d+))?")


def resolve(sizes: Mapping[str, int], size: int | str) -> int | str:
    """A declared size (a number, `N`, `N+1`, `2A`) as a number where it is known, else as it was declared."""
    if isinstance(size, int):
        return size
    factor, name, plus = _SIZE.fullmatch(size).groups()  # type: ignore[union-attr]  # declarations are ours
    return int(factor or 1) * sizes[name] + int(plus or 0) if name in sizes else size


def _unify(sizes: dict[str, int], want: int | str, got: int) -> bool:
    """Whether a size fits the declared one; a name met for the first time is bound to it."""
    if isinstance(want, str) and want.isidentifier():
        sizes.setdefault(want, got)
    return resolve(sizes, want) == got


def c_type(argument: In | Size | Scalar) -> str:
    if isinstance(argument, Size):
        return "int"
    return f"{argument.const}{_TYPES[argument.dtype][0]}*" if isinstance(argument, In) else _TYPES[argument.dtype][0]


def _ctypes_type(argument: In | Size | Scalar) -> Any:
    if isinstance(argument, Size):
        return ctypes.c_int
    return ctypes.c_void_p if isinstance(argument, In) else _TYPES[argument.dtype][2]


def numpy_type(argument: In | Size | Scalar) -> Any:
    if isinstance(argument, Size):
        return np.int32
    return np.uint64 if isinstance(argument, In) else _TYPES[argument.dtype][3]


@dataclass(frozen=True)
class Cubin:
    """A kernel compiled for a GPU, and what one thread (shared memory: one block) of it takes there."""

    code: bytes
    registers: int
    spill_bytes: int  # stores and loads
    stack_bytes: int  # local arrays, spills included
    shared_bytes: int


def compile_cubin(kernel: Kernel, architecture: str, header: Path | None = None, **constants: Constant) -> Cubin:
    """Compiles a kernel with NVRTC for an architecture such as `sm_90`, once. Needs no driver and no device.

    Raises:
        RuntimeError: the compiler refused it; the text holds its log.
    """
    text, _ = kernel.device_unit(SHARED_LIMITS[architecture], header, constants)
    return _cached_cubin(kernel.name, architecture, text)


def _cached_cubin(name: str, architecture: str, text: str) -> Cubin:
    from cupy_backends.cuda.libs import nvrtc

    options = (*CUDA_OPTIONS, f"--gpu-architecture={architecture}", "--ptxas-options=-v")
    known = "\0".join([text, compiler.headers_text(), *options, str(nvrtc.getVersion())])
    built = compiler.cache_folder() / f"{name}-{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"
    if built.exists():
        fields = json.loads(built.read_text())
        return Cubin(**{**fields, "code": bytes.fromhex(fields["code"])})
    cubin = _compile_cubin(name, architecture, text, options)
    with tempfile.NamedTemporaryFile("w", dir=built.parent, delete=False) as file:
        json.dump({**vars(cubin), "code": cubin.code.hex()}, file)
    Path(file.name).replace(built)
    return cubin


def _compile_cubin(name: str, architecture: str, text: str, options: tuple[str, ...]) -> Cubin:
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(text, f"{name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        log = _part(nvrtc.getProgramLog(program), name)
        return Cubin(
            code=bytes(nvrtc.getCUBIN(program)),
            registers=_figure(r"Used (\d+) registers", log),
            spill_bytes=_figure(r"(\d+) bytes spill stores", log) + _figure(r"(\d+) bytes spill loads", log),
            stack_bytes=_figure(r"(\d+) bytes stack frame", log),
            shared_bytes=_figure(r"(\d+) bytes smem", log, absent=0),
        )
    except nvrtc.NVRTCError as error:
        raise RuntimeError(f"{name} for {architecture}: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


def _part(log: str, name: str) -> str:
    """The assembler's words on one entry function."""
    return log.split(f"Compiling entry function '{name}'", 1)[1].split("Compiling entry function", 1)[0]


def _figure(pattern: str, log: str, absent: int | None = None) -> int:
    found = re.search(pattern, log)
    if not found and absent is None:
        raise RuntimeError(f"the assembler's log must hold {pattern!r}; got {log!r}")
    return int(found.group(1)) if found else absent or 0


def partitions(count: int) -> int:
    """Into how many partial sums `count` samples are divided: from the count alone, so that no machine changes it."""
    return max(1, min(512, count // 256))
