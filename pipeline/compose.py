"""The first stage: writes build/params.yaml, the one configuration that the other stages read and DVC hashes.

It is conf/ with the `overrides` and `seeds` of params.yaml, resolved and sorted. Keys that no stage may depend on are
left out: the folder and checkpoint that a stage's own command line names, and where the runs are tracked.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kernels.errors import UserError
from pipeline import config

# Keys that a stage's own command line gives or that no result follows from, with where they belong instead.
ELSEWHERE = {
    "seed": "list the training seeds in `seeds` of params.yaml",
    "seeds": "list the training seeds in `seeds` of params.yaml",
    "out": "the stages write below artifacts/",
    "checkpoint": "the stages evaluate the checkpoints that they trained",
    "tracking.uri": "set the environment variable MLFLOW_TRACKING_URI",
}


def read_params(path: Path) -> tuple[list[str], list[int]]:
    """The `overrides` and `seeds` of params.yaml. Raises UserError where they are not lists of the right kind."""
    try:
        content: Any = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, OmegaConfBaseException, yaml.YAMLError, UnicodeError) as error:
        raise UserError(f"{path.name}: wanted a YAML file; {' '.join(str(error).split())}") from error
    overrides = content.get("overrides") if isinstance(content, dict) else None
    if not isinstance(overrides, list) or not all(isinstance(each, str) for each in overrides):
        raise UserError(f"overrides: wanted a list such as ['env=pendulum']; got {overrides!r}. Mend it in {path.name}")
    seeds = content.get("seeds")
    if not isinstance(seeds, list):
        raise UserError(f"seeds: wanted a list such as [1, 2, 3]; got {seeds!r}. Mend it in {path.name}")
    return overrides, seeds


def compose(overrides: Sequence[str], seeds: Sequence[int]) -> str:
    """The text of build/params.yaml. Raises UserError for a mistake in either list."""
    for override in overrides:
        key = override.lstrip("+~").split("=")[0]
        if key in ELSEWHERE:
            raise UserError(f"overrides: wanted no {key} here; got {override!r}. Instead, {ELSEWHERE[key]}")
    config.check(overrides)
    node = config.compose(overrides)
    node.out = "."
    node.seeds = list(seeds)
    content = config.to_dict(config.parse(node))
    for key in ("out", "checkpoint"):
        del content[key]
    del content["tracking"]["uri"]
    return OmegaConf.to_yaml(OmegaConf.create(content), sort_keys=True)


def write(path: Path, text: str) -> None:
    """Write the whole file or none of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise UserError(f"wanted a folder to write {path.name} to; {path.parent}: {error.strerror}") from error


def run(root: Path) -> None:
    """Compose the params.yaml in `root` into its build/params.yaml."""
    write(root / "build" / "params.yaml", compose(*read_params(root / "params.yaml")))


if __name__ == "__main__":
    try:
        run(Path.cwd())
    except UserError as error:
        config.fail("compose", error)
