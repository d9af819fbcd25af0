"""Sound environments that look as if they had a fault: `SOUND` of each module lists them and their warnings."""

from collections.abc import Callable
from typing import NamedTuple

from envs.validation import Factory, Plan


class Sound(NamedTuple):
    """A row of a gallery. Warnings are those that cannot be told from a fault."""

    name: str
    factory: Factory
    plan: Callable[[int, int], Plan]  # of so many environments and steps
    warnings: tuple[str, ...] = ()
