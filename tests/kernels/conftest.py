"""What the kernels' tests share: where `reference` is found, and how a fault is put into a kernel."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels import compiler
from kernels.launcher import Kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/reference.py

Plant = Callable[..., None]
_INCLUDE = re.compile(r'#include "(\w+\.cuh)"\n')


def inlined(text: str, seen: set[str]) -> str:
    """A source with the kernels' headers in place, so that a fault can be put into them too."""

    def header(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return inlined((compiler.FOLDER / name).read_text(), seen).replace("#pragma once\n", "")

    return _INCLUDE.sub(header, text)


def source(kernel: Kernel, header: Path | None = None) -> str:
    """A kernel's source with its headers in place, but for those that an environment's header brings."""
    brought: set[str] = set()
    if header:
        inlined(header.read_text(), brought)
    return inlined(kernel.path.read_text(), brought)


def declared() -> list[Kernel]:
    """Every kernel that was imported, alone or in a table."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kernels.")]
    values = [value for module in modules for value in vars(module).values()]
    values += [each for value in values if isinstance(value, dict) for each in value.values()]
    return [value for value in values if isinstance(value, Kernel)]


@pytest.fixture(scope="module")
def quick_builds() -> Iterator[None]:
    """Kernels built for a module's tests are not optimized: the same bits, in a third of the compiler's time."""
    with pytest.MonkeyPatch.context() as patch:
        flags = tuple("-O0" if flag == compiler.OPTIMIZATION else flag for flag in compiler.FLAGS)
        patch.setattr(compiler, "FLAGS", flags)
        for kernel in declared():  # nothing that is loaded here is met by other modules' tests
            patch.setattr(kernel, "_functions", {})
            patch.setattr(kernel, "_plans", {})
        yield


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Plant:
    """plant(kernel, right, wrong): for one test the kernel is built from a copy of its source with a fault.

    `header` is that of the environment behind which it is compiled, for a kernel that includes others.
    """

    def put(kernel: Kernel, right: str, wrong: str, header: Path | None = None) -> None:
        text = source(kernel, header)
        assert right in text, f"{kernel.path.name}: {right!r} is no longer there"
        faulty = tmp_path / kernel.path.name
        faulty.write_text(text.replace(right, wrong))
        monkeypatch.setattr(kernel, "path", faulty)
        for cache in ("_functions", "_plans"):
            monkeypatch.setattr(kernel, cache, {})

    return put
