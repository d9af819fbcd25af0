"""Writing files whole or not at all."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels.errors import UserError


def write(path: Path, content: bytes | str) -> None:
    """Writes the file under another name, flushes it to the disk and renames it: a reader finds all of it or nothing.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink()
                raise
    except OSError as error:
        raise UserError(f"out: wanted a folder to write {path.name} to; {path.parent}: {error.strerror}") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON with sorted keys, readable, without NaN."""
    write(path, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")


def remove(path: Path) -> None:
    """Removes the file, if it is there, and what writes of it that were killed midway have left."""
    for each in (path, *path.parent.glob(f".{path.name}.*")):
        each.unlink(missing_ok=True)


def expect_writable(folder: Path) -> None:
    """Raises UserError where `folder` cannot be made or written to: before the work, not after it."""
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UserError(f"out: wanted a folder to write to; {folder}: {error.strerror}. Give out=<folder>") from error


def refuse_existing(folder: Path, name: str) -> None:
    """Raises UserError where `folder` holds results already: nothing that a user made is overwritten."""
    expect_writable(folder)
    if (folder / name).exists():
        raise UserError(
            f"out: wanted a folder without results; {folder} holds {name} already. "
            f"Choose another out=<folder>, or remove that one first"
        )
