"""What all tests share: builds that cost the compiler little, for tests that run each kernel a few times."""

from collections.abc import Iterator

import pytest

from kernels import compiler


@pytest.fixture(scope="module")
def quick_builds() -> Iterator[None]:
    """Kernels built for a module's tests are not optimized: the same bits, in a third of the compiler's time."""
    with pytest.MonkeyPatch.context() as patch:
        flags = tuple("-O0" if flag == compiler.OPTIMIZATION else flag for flag in compiler.FLAGS)
        patch.setattr(compiler, "FLAGS", flags)
        yield
