"""The artifacts that training and evaluation left for each seed, read and checked against each other."""

import contextlib
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from kernels.errors import UserError
from pipeline.profile import PHASES
from pipeline.statistics import Floats

CURVES = (
    "episode_return_mean", "approx_kl", "clip_fraction", "value_loss", "policy_loss", "entropy", "explained_variance",
    "grad_norm", "learning_rate",
)  # fmt: skip
OPTIONAL_CURVES = ("clip_fraction_after",)


@dataclass(frozen=True)
class SeedResult:
    """What one training seed left behind, checked. I iterations, E held-out episodes."""

    seed: int
    manifest: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    profile: Mapping[str, float]
    step: Floats  # (I,)
    wall: Floats  # (I,), s
    curve: Mapping[str, Floats]  # (I,) each, NaN where nothing was measured
    episode_seeds: tuple[str, ...]  # (E,)
    returns: Mapping[str, Floats]  # "initial" and "final": (E,) each, episode by episode in the same order
    ends: Mapping[str, int]  # of the final policy's episodes


def read_seed(root: Path, seed: int) -> SeedResult:
    """The artifacts of one training seed under `root`, each checked against the others."""
    train, evaluate = root / "train" / f"seed-{seed}", root / "evaluate" / f"seed-{seed}"
    manifest = _json(
        train / "checkpoint.json", "sha256", "step", "config", "config_sha256", "env_spec", "env_spec_sha256", "seeds"
    )
    profile = _json(train / "profile.json", *PHASES, "wall", "steps_per_second")
    evaluation = _json(
        evaluate / "metrics.json", "env", "run_seed", "split", "episodes", "deterministic", "checkpoint_sha256", "step",
        "return_mean", "return_std", "return_median", "initial_return_mean", "improvement_mean", "improved_fraction",
    )  # fmt: skip
    _expect(train / "checkpoint.json", "seeds.run_seed", seed, manifest["seeds"].get("run_seed"))
    for key, wanted in {"checkpoint_sha256": manifest["sha256"], "step": manifest["step"], "run_seed": seed}.items():
        _expect(evaluate / "metrics.json", key, wanted, evaluation[key], "Evaluate this checkpoint again")

    wall, parts = profile["wall"], sum(profile[phase] for phase in PHASES)
    if abs(wall - parts) > max(0.01, 0.01 * wall):
        _refuse(train / "profile.json", f"phases that add up to wall = {wall:.3f} s", f"{parts:.3f} s", "Train again")

    path = train / "curve.csv"
    required = ["step", *CURVES]
    cells = _columns(path, required)
    curve = {
        column: _floats(path, column, cells[column], True) for column in (*CURVES, *OPTIONAL_CURVES) if column in cells
    }
    step = _ascending(path, "step", cells["step"])
    _expect(path, "the last step", manifest["step"], int(step[-1]), "Train again")
    path = train / "timing.csv"
    timing = _columns(path, ["step", "wall_s"])
    if not np.array_equal(_ascending(path, "step", timing["step"]), step):
        _refuse(path, f"the {len(step)} steps of curve.csv", "others", "Train again")

    path = evaluate / "episodes.csv"
    episode_seeds, returns, ends = _episodes(path)
    _expect(path, "the number of episodes", evaluation["episodes"], len(episode_seeds), "Evaluate again")
    gain = returns["final"] - returns["initial"]
    for key, value in {
        "return_mean": returns["final"].mean(),
        "initial_return_mean": returns["initial"].mean(),
        "improvement_mean": gain.mean(),
        "improved_fraction": (gain > 0).mean(),
    }.items():
        if not np.isclose(evaluation[key], value, rtol=1e-5, atol=1e-6):
            _refuse(
                evaluate / "metrics.json", f"{key} = {value:.6g}, as in episodes.csv", evaluation[key], "Evaluate again"
            )
    return SeedResult(
        seed=seed,
        manifest=manifest,
        evaluation=evaluation,
        profile=profile,
        step=step,
        wall=_ascending(train / "timing.csv", "wall_s", timing["wall_s"]),
        curve=curve,
        episode_seeds=episode_seeds,
        returns=returns,
        ends=ends,
    )


def environment_of(manifest: Mapping[str, Any]) -> Any:
    """What a checkpoint's environment is called: its id where it is one of a host's, else its name."""
    env = manifest["config"].get("env", {})
    return env.get("id", env.get("name"))


def check_agreement(results: Sequence[SeedResult], environment: str) -> None:
    """All seeds are one experiment: the same environment, configuration and held-out episodes."""
    name = environment_of(results[0].manifest)
    if name != environment:
        host = "id" in results[0].manifest["config"]["env"]
        choice = f"env={results[0].manifest['config']['env']['name']} env.id={name}" if host else f"env={name}"
        raise UserError(f"wanted checkpoints of {environment}; found {name}. Give {choice}, or train {environment}")
    views: dict[str, Callable[[SeedResult], Any]] = {
        "env_spec_sha256": lambda result: result.manifest["env_spec_sha256"],
        "config": lambda result: dict(training_configuration(result)),
        "evaluation split": lambda result: result.evaluation["split"],
        "evaluate.deterministic": lambda result: result.evaluation["deterministic"],
        "evaluation episodes": lambda result: result.episode_seeds,
    }
    for what, view in views.items():
        first = view(results[0])
        for result in results[1:]:
            found = view(result)
            if found != first:
                if isinstance(found, dict):
                    key = next(k for k in sorted({*first, *found}) if first.get(k) != found.get(k))
                    what, first, found = key, first.get(key), found.get(key)
                raise UserError(
                    f"wanted the same {what} for all seeds; seed {results[0].seed} has {_short(first)}, "
                    f"seed {result.seed} has {_short(found)}. Train and evaluate both with one configuration"
                )


def training_configuration(result: SeedResult) -> list[tuple[str, str]]:
    """The checkpoint's configuration as flat (key, value) texts, the run seed left out."""

    def flat(prefix: str, value: Any) -> list[tuple[str, str]]:
        if isinstance(value, Mapping):
            return [item for key in sorted(value) for item in flat(f"{prefix}.{key}" if prefix else key, value[key])]
        return [(prefix, value if isinstance(value, str) else json.dumps(value))]

    return [(key, value) for key, value in flat("", result.manifest["config"]) if key != "seed"]


def _json(path: Path, *keys: str) -> dict[str, Any]:
    def refuse_constant(text: str) -> NoReturn:
        _refuse(path, "finite numbers", text, "Make it again")

    try:
        content = json.loads(_read(path), parse_constant=refuse_constant)
    except ValueError as error:
        _refuse(path, "JSON", str(error), "Make it again")
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        _refuse(path, f"the key {missing[0]}", "none", "Make it again with this version")
    assert isinstance(content, dict)
    return content


def _columns(path: Path, required: Sequence[str]) -> dict[str, list[str]]:
    text = _read(path)
    if text and not text.endswith("\n"):
        _refuse(path, "a whole last line", "one without its end", "Make it again")
    header, *rows = list(csv.reader(text.splitlines())) or [[]]
    for column in required:
        if column not in header:
            _refuse(path, f"the column {column}", f"{', '.join(header) or 'an empty file'}", "Make it again")
    if not rows:
        _refuse(path, "at least one row", "none", "Make it again")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            _refuse(path, f"{len(header)} cells in line {number}", len(row), "Make it again")
    return {column: [row[index] for row in rows] for index, column in enumerate(header)}


def _floats(path: Path, column: str, cells: Sequence[str], optional: bool = False) -> Floats:
    """Numbers (rows,); where `optional`, an empty cell is NaN. NaN or infinity as text is a fault of the run."""
    values = np.full(len(cells), np.nan)
    for index, cell in enumerate(cells):
        if optional and not cell:
            continue
        with contextlib.suppress(ValueError):
            values[index] = float(cell)
        if not np.isfinite(values[index]):
            _refuse(path, f"a finite {column} in line {index + 2}", repr(cell), "Make it again")
    return values


def _ascending(path: Path, column: str, cells: Sequence[str]) -> Floats:
    values = _floats(path, column, cells)
    if np.any(np.diff(values) < 0):
        _refuse(path, f"{column} that never falls", "one that does", "Train again")
    return values


def _episodes(path: Path) -> tuple[tuple[str, ...], dict[str, Floats], dict[str, int]]:
    cells = _columns(path, ["policy", "seed", "return", "length", "end"])
    values = _floats(path, "return", cells["return"])
    seeds: dict[str, tuple[str, ...]] = {}
    returns: dict[str, Floats] = {}
    for policy in ("initial", "final"):
        rows = [index for index, name in enumerate(cells["policy"]) if name == policy]
        seeds[policy] = tuple(cells["seed"][index] for index in rows)
        returns[policy] = values[rows]
        if not rows or len(set(seeds[policy])) < len(rows):
            _refuse(path, f"one row of each episode of the {policy} policy", f"{len(rows)} rows", "Evaluate again")
    if seeds["initial"] != seeds["final"]:
        _refuse(path, "the same episodes in the same order for both policies", "others", "Evaluate again")
    if unknown := set(cells["end"]) - {"terminated", "truncated"}:
        _refuse(path, "ends terminated or truncated", repr(sorted(unknown)[0]), "Evaluate again")
    final = [end for policy, end in zip(cells["policy"], cells["end"], strict=True) if policy == "final"]
    return seeds["final"], returns, {end: final.count(end) for end in ("terminated", "truncated")}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = "none" if isinstance(error, FileNotFoundError) else str(error)
        raise UserError(f"wanted the file {path}; found {what}. Run `dvc repro`, or that stage by hand") from error


def _expect(path: Path, what: str, wanted: object, found: object, hint: str = "Make it again") -> None:
    if found != wanted:
        _refuse(path, f"{what} {_short(wanted)}", _short(found), hint)


def _refuse(path: Path, wanted: str, found: object, hint: str) -> NoReturn:
    raise UserError(f"{path}: wanted {wanted}; found {found}. {hint}")


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 64 else f"{text[:60]}..."
