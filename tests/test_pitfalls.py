"""The map of known faults is complete, and every test that it names is there (running them both ways: pitfalls.py)."""

import subprocess
import sys

import pitfalls


def test_every_fault_has_its_row() -> None:
    rows = pitfalls.read()
    assert tuple(row.number for row in rows) == pitfalls.NUMBERS
    assert all(row.fault and row.product and row.planted for row in rows)
    assert len(pitfalls.MAP.read_text().splitlines()) == len(rows) + 9  # every line of the table was read


def test_every_test_of_the_map_is_there() -> None:
    names = pitfalls.tests(pitfalls.read())
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *names]
    done = subprocess.run(command, cwd=pitfalls.TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
