"""`python tests/pitfalls.py`: every fault of PITFALLS.md, both ways: on the product, and with the fault put in.

A test that puts a fault in passes only if a check failed; what the check said is printed beside it. The exit code is 1
where a check did not pass, a fault was not seen, or a test is no longer there.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich import box
from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).resolve().parent
MAP = TESTS / "PITFALLS.md"
NUMBERS = (
    "1", "2", "3", "4", "5", "6", "7", "8", "10", "11", "12", "13", "18", "20", "21", "28", "30", "31", "35", "36",
    "37", "38", "39", "40", "43b", "44", "47", "48", "49", "50",
)  # fmt: skip


@dataclass(frozen=True)
class Pitfall:
    """A row of the map; the tests are pytest's names of them, counted from the root of the checkout."""

    number: str
    fault: str
    product: tuple[str, ...]
    planted: tuple[str, ...]


def read() -> list[Pitfall]:
    """The rows of PITFALLS.md."""
    pitfalls = []
    for line in MAP.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 4 and re.match(r"\d", cells[0]):
            product, planted = (tuple(f"tests/{name}" for name in re.findall(r"`(.+?)`", cell)) for cell in cells[2:])
            pitfalls.append(Pitfall(cells[0], cells[1], product, planted))
    return pitfalls


def tests(pitfalls: list[Pitfall]) -> list[str]:
    """All tests of the map, each once."""
    return list(dict.fromkeys(name for row in pitfalls for name in (*row.product, *row.planted)))


class Witness:
    """pytest's plugin: what became of each test, and the failure that it waited for last."""

    def __init__(self) -> None:
        self.passed: dict[str, bool] = {}
        self.failure: dict[str, str] = {}
        self._running = ""
        self._raises: Any = pytest.raises
        pytest.raises = self.raises

    @contextmanager
    def raises(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        with self._raises(*arguments, **options) as caught:
            yield caught
        self.failure[self._running] = (str(caught.value).strip() or caught.typename).splitlines()[0]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running = nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.passed[report.nodeid] = report.passed and self.passed.get(report.nodeid, True)


def verdict(names: tuple[str, ...], passed: dict[str, bool], right: str, wrong: str) -> str:
    bad = [name for name in names if not passed.get(name)]
    return f"{right} ({len(names)})" if not bad else f"[bold red]{wrong}: {', '.join(bad)}"


def main() -> int:
    pitfalls, witness = read(), Witness()
    options = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", f"--rootdir={TESTS.parent}"]
    code = pytest.main([*options, *(str(TESTS.parent / name) for name in tests(pitfalls))], plugins=[witness])
    table = Table("", "fault", "product", "fault put in", "what a check said of it", box=box.ROUNDED)
    for row in pitfalls:
        said = next(filter(None, map(witness.failure.get, row.planted)), row.planted[0].partition("[")[2].rstrip("]"))
        product = verdict(row.product, witness.passed, "passes", "fails")
        planted = verdict(row.planted, witness.passed, "fails", "not seen")
        table.add_row(row.number, row.fault, product, planted, said[:100])
    Console(width=160, highlight=False).print(table)
    missing = [number for number in NUMBERS if number not in {row.number for row in pitfalls}]
    wrong = [name for name in tests(pitfalls) if not witness.passed.get(name)]
    print(f"{len(pitfalls)} faults, put in {sum(len(row.planted) for row in pitfalls)} times")
    print(f"Not in the map: {', '.join(missing) or 'none'}. Not as wanted: {', '.join(wrong) or 'none'}")
    return int(bool(missing or wrong or code))


if __name__ == "__main__":
    sys.exit(main())
