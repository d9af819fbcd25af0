"""Builds that cost the compiler little, for tests that run each kernel a few times."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernels import compiler
from kernels.launcher import Kernel


def declared() -> list[Kernel]:
    """Every kernel that was imported, alone or in a table."""
    modules = [module for name, module in sys.modules.items() if name.startswith("kernels.")]
    values = [value for module in modules for value in vars(module).values()]
    values += [each for value in values if isinstance(value, dict) for each in value.values()]
    return [value for value in values if isinstance(value, Kernel)]


@contextmanager
def quick() -> Iterator[None]:
    """Kernels that are built within are not optimized: the same bits, in a third of the compiler's time."""
    with pytest.MonkeyPatch.context() as patch:
        flags = tuple("-O0" if flag == compiler.OPTIMIZATION else flag for flag in compiler.FLAGS)
        patch.setattr(compiler, "FLAGS", flags)
        for kernel in declared():  # nothing that is loaded within is met outside
            patch.setattr(kernel, "_functions", {})
            patch.setattr(kernel, "_plans", {})
        yield
