"""The map of known faults is complete, and every test that it names is there (running them both ways: pitfalls.py)."""

import pitfalls
from forked import python


def test_every_fault_has_its_row() -> None:
    rows = pitfalls.read()
    assert tuple(row.number for row in rows) == pitfalls.NUMBERS
    assert all(row.fault and row.product and row.planted for row in rows)
    assert len(pitfalls.MAP.read_text().splitlines()) == len(rows) + 9  # every line of the table was read


def test_every_test_of_the_map_is_there() -> None:
    names = pitfalls.tests(pitfalls.read())
    done = python(["-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *names], pitfalls.TESTS.parent)
    assert done.returncode == 0, done.stdout + done.stderr
