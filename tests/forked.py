"""Runs Python programs as a user does, each in a process of its own that is forked from one that has imported torch.

A stage's process takes two to three seconds of a core to import libraries that are the same each time; here one process
does it for all. It has none of this project's modules: those are imported anew, from the folder and with the
environment of the run.
"""

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LIBRARIES = ["torch", "numpy", "hydra", "omegaconf", "safetensors.torch", "rich.console"]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(LIBRARIES)


def python(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `python -m module ...` or `python script.py ...` in a folder comes to: exit code, output and errors.

    Args:
        arguments: what stands behind `python`.
        folder: where it is run.
        environment: all its environment variables; this process's by default.
    """
    with tempfile.TemporaryDirectory() as scratch:
        output, errors = Path(scratch) / "output", Path(scratch) / "errors"
        given = (list(arguments), str(folder), dict(environment or os.environ), str(output), str(errors))
        process = _CONTEXT.Process(target=_run, args=given)
        process.start()
        process.join()
        texts = (path.read_text() if path.exists() else "" for path in (output, errors))
        return subprocess.CompletedProcess(list(arguments), process.exitcode or 0, *texts)


def _run(arguments: list[str], folder: str, environment: dict[str, str], output: str, errors: str) -> None:
    for number, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    module = arguments[0] == "-m"
    first = folder if module else str(Path(folder, arguments[0]).parent)
    further = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [first, *further, *(each for each in sys.path if "python3" in each)]
    sys.path_importer_cache.clear()
    sys.argv[:] = arguments[1:] if module else arguments
    try:
        if module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(arguments[0], run_name="__main__")
    finally:  # as a program ends, in its order: else what waits for its worker processes waits before it has told them
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
