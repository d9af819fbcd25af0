"""Builds the kernels for the host: finds a C++ compiler, compiles once, caches by content.

A build is cached under a hash of everything that can change it: the text, every header, the flags, the compiler and the
processor's instruction set (a home folder may be shared by unlike machines). Files are written under another name and
renamed, so that two processes may build the same thing at once.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import util
from pathlib import Path

from kernels.errors import UserError

FOLDER = Path(__file__).resolve().parent
# No contraction and no fast-math: one result on any machine. Neither errno nor the floating-point flags are read by
# anyone, and without them loops with choices in them vectorize.
OPTIMIZATION = os.environ.get("LOCKSTEP_OPTIMIZATION", "-O3")  # the tests take less, which builds faster
LEVELS = ("-O0", "-O1", "-O2", "-O3")  # of one result; -Ofast would change sums and take NaN for a number
FLAGS = (
    "-std=c++17",
    OPTIMIZATION,
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",
    "-fPIC",
    "-shared",
    "-pthread",
)


@functools.cache
def find_compiler() -> tuple[str, ...]:
    """The command of a C++ compiler: $CXX, g++, clang++, c++, or the `ziglang` wheel.

    Raises:
        UserError: there is none.
    """
    if "CXX" in os.environ:
        command = []
        with contextlib.suppress(ValueError):  # quotes that are not closed
            command = shlex.split(os.environ["CXX"])
        if command and shutil.which(command[0]):
            return tuple(command)
        raise UserError(
            f"CXX must name a C++ compiler; got {os.environ['CXX']!r}, which is not found. Unset it or correct it"
        )
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return (path,)
    if util.find_spec("ziglang"):
        # Without its C++ library, which the first use would build for minutes and the kernels have no use for.
        return (sys.executable, "-m", "ziglang", "c++", "-nostdlib++")
    raise UserError(
        "a C++ compiler is needed to build the kernels and none was found. Install one with "
        "`apt-get install g++` (or `dnf install gcc-c++`, `brew install gcc`), or without root `pip install ziglang`"
    )


@functools.cache
def identity() -> str:
    """Compiler and processor in words: what a cached build is tied to beside its text."""
    version = _ran([*find_compiler(), "--version"]).stdout
    return f"{version.splitlines()[0] if version else '?'}; {platform.machine()}; {_instruction_set()}"


def _instruction_set() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(("flags", "Features"))), "")


@functools.cache
def cache_folder() -> Path:
    """Where builds are kept: $LOCKSTEP_CACHE, else the user's cache folder, else one for this process alone."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "lockstep"
    folder = Path(os.environ.get("LOCKSTEP_CACHE") or os.path.expanduser(default))  # noqa: PTH111  # without a home: as it is
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        own = Path(tempfile.mkdtemp(prefix="lockstep-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        return own


@functools.cache
def headers_text() -> str:
    """All shared headers, in order of their names."""
    return "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.cuh")))


def compile_library(text: str, name: str, flags: tuple[str, ...] | None = None) -> Path:
    """Compiles one translation unit into a shared library (or, without -shared, a program), once; returns its path.

    Args:
        flags: of the compiler; None: FLAGS.

    Raises:
        UserError: there is no compiler that works, or LOCKSTEP_OPTIMIZATION is no level of optimization.
        RuntimeError: the compiler refused the text.
    """
    flags = FLAGS if flags is None else flags
    if OPTIMIZATION not in LEVELS:
        wanted = f"LOCKSTEP_OPTIMIZATION: wanted one of {', '.join(LEVELS)}"
        raise UserError(f"{wanted}; got {OPTIMIZATION!r}. Unset it or correct it")
    key = hashlib.sha256("\0".join([text, headers_text(), " ".join(flags), identity()]).encode()).hexdigest()
    target = cache_folder() / f"{name}-{key[:32]}.so"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as scratch:
        source, built = Path(scratch) / f"{name}.cpp", Path(scratch) / f"{name}.so"
        source.write_text(text)
        command = [*find_compiler(), *flags, f"-I{FOLDER}", "-o", str(built), str(source)]
        result = _ran(command)
        if result.returncode != 0 or not built.exists():
            _expect_compiler(Path(scratch), flags)
            raise RuntimeError(
                f"{name}: {shlex.join(command)} failed with exit code {result.returncode}:\n{result.stderr}"
            )
        with built.open("rb") as file:
            os.fsync(file.fileno())  # a power cut leaves all of it under its name, or nothing
        built.replace(target)
    return target


def load_library(text: str, name: str, flags: tuple[str, ...] | None = None) -> ctypes.CDLL:
    """Compiles one translation unit, once, and loads it.

    Raises:
        UserError: as `compile_library`; the built library cannot be loaded.
    """
    path = compile_library(text, name, flags)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UserError(
            f"wanted to load the built kernel {path}; {' '.join(str(error).split())}. Remove it, so that it is built "
            "again, or name another folder in LOCKSTEP_CACHE"
        ) from error


def _ran(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The compiler's end and words. Raises UserError where it cannot be started."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise UserError(
            f"a C++17 compiler is needed to build the kernels; {command[0]} cannot be run ({error.strerror}). Name "
            "another in CXX, or unset it"
        ) from error


def _expect_compiler(scratch: Path, flags: tuple[str, ...]) -> None:
    """Raises UserError where the compiler cannot build a program that does nothing: then no kernel is at fault."""
    source, built = scratch / "nothing.cpp", scratch / "nothing"
    source.write_text("int main() {}\n")
    command = [*find_compiler(), *flags, "-o", str(built), str(source)]
    result = _ran(command)
    if result.returncode != 0 or not built.exists():
        said = next(iter(result.stderr.splitlines()), f"exit code {result.returncode}")
        raise UserError(
            f"a C++17 compiler is needed to build the kernels; {shlex.join(find_compiler())} builds not even an empty "
            f"program ({said}). Name another in CXX, or unset it"
        )


@functools.cache
def pool() -> ctypes.CDLL:
    """The library with the process's thread pool."""
    library = load_library((FOLDER / "pool.cpp").read_text(), "pool")
    library.program_new.restype = ctypes.c_void_p
    for name in ("program_record", "program_run", "program_free"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(threads: int) -> None:
    """Sets how many threads run the host's kernels; 0: one for each core. It changes no bit of any result."""
    pool().set_threads(threads or cores())
