"""Environments with one fault each, and what the validator has to say of it: `FAULTS` of each module is the table."""

from typing import Any, Literal, NamedTuple


class Broken(NamedTuple):
    """A row of a gallery: the first check to complain, how, and of what."""

    fault: type[Any]
    base: str  # the environment that is spoiled
    check: str
    element: str
    verdict: Literal["warning", "fail"] = "fail"

    @property
    def name(self) -> str:
        return f"{self.fault.__name__}-{self.base}"
