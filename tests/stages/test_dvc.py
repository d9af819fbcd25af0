"""dvc.yaml: each stage depends on exactly the files it imports, and a change re-runs exactly the stages it touches."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from pipeline import compose, config

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kernels", "envs", "pipeline")
STAGES = ("compose", "validate", "train", "evaluate", "report")

# ---------------------------------------------------------------------------------------------------------------------
# Import closures
# ---------------------------------------------------------------------------------------------------------------------


def _module_files(module: str) -> list[Path]:
    """The files that importing `module` runs: itself and the __init__ of each package above it."""
    parts = module.split(".")
    files = [ROOT.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)]
    return [path for path in [*files, ROOT.joinpath(*parts).with_suffix(".py")] if path.is_file()]


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if not _is_type_checking(child):
            yield child
            yield from _running_nodes(child)


def _imported(path: Path) -> Iterator[Path]:
    for node in _running_nodes(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] in PACKAGES:
                yield from _module_files(name)


def _sources(path: Path) -> Iterator[Path]:
    """Files that a module reads beside its imports: named in a string, called like the module itself, or discovered."""
    if path == ROOT / "envs" / "__init__.py":
        yield from (header.with_suffix(".py") for header in path.parent.glob("*.h"))
    yield from (path.with_suffix(ending) for ending in (".cu", ".h"))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w.]+", node.value):
            yield path.parent / node.value
            yield path.with_name(f"{node.value}.cu")


def _included(path: Path) -> Iterator[Path]:
    for name in re.findall(r'^\s*#include "([^"]+)"', path.read_text(), re.MULTILINE):
        yield from (path.parent / name, ROOT / "kernels" / name)


def closure(stage: str) -> list[str]:
    """Every file of the repository that running a stage reads as code, sorted."""
    found: set[Path] = set()
    waiting = [*_module_files(f"pipeline.{stage}")]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file() or (path.name == "__init__.py" and not path.read_text().strip()):
            continue
        found.add(path)
        waiting += [*_imported(path), *_sources(path)] if path.suffix == ".py" else _included(path)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def _pipeline() -> dict:
    return yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_exactly_the_files_it_imports(stage: str) -> None:
    declared = {each for each in _pipeline()[stage]["deps"] if each.startswith(tuple(f"{name}/" for name in PACKAGES))}
    wanted = closure(stage)
    block = "\n".join(f"      - {each}" for each in wanted)
    assert sorted(declared) == wanted, (
        f"dvc.yaml, stage {stage}: add {sorted(set(wanted) - declared)}, remove {sorted(declared - set(wanted))}. "
        f"Its code dependencies are:\n{block}"
    )


def test_training_does_not_depend_on_the_report() -> None:
    trained = set(closure("train"))
    assert "pipeline/config.py" in trained
    assert not {"pipeline/report.py", "pipeline/evaluate.py", "pipeline/statistics.py", "pipeline/figures.py"} & trained


def test_no_stage_depends_on_how_fast_an_environment_steps() -> None:
    assert "artifacts/validate/throughput.json" in _pipeline()["validate"]["outs"]
    read = [each for stage in STAGES for each in _pipeline()[stage]["deps"] if each.startswith("artifacts/validate")]
    assert read == ["artifacts/validate/validation.json"]


# ---------------------------------------------------------------------------------------------------------------------
# The 16 changes
# ---------------------------------------------------------------------------------------------------------------------

# The environment's file that the changes start from.
CARTPOLE = """# @package _global_
env:
  name: cartpole
  max_episode_steps: 500
ppo:
  vf_coef: 0.4
"""
TRAIN = {"train@1", "train@2"}
EVALUATE = {"evaluate@1", "evaluate@2"}


class Copy:
    """A copy of the repository: what a change does to it, and which stages are stale then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def put(self, path: str, key: str, value: str) -> None:
        text, found = re.subn(rf"^( *(?:- )?{key}:).*$", rf"\1 {value}", (self.folder / path).read_text(), flags=re.M)
        assert found == 1, f"{path}: wanted one {key}, found {found}"
        (self.folder / path).write_text(text)

    def append(self, path: str, text: str) -> None:
        with (self.folder / path).open("a") as file:
            file.write(text)

    def compose(self) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        command = [sys.executable, "-m", "pipeline.compose"]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def accept(self) -> None:
        """Write the outputs that there are into dvc.lock, as if the stages had just run."""
        with chdir(self.folder), Repo() as repo:
            repo.commit(force=True)

    def touched(self) -> set[str]:
        """The stages that `dvc repro` would run after `compose`, apart from those that follow from them."""
        with pytest.MonkeyPatch.context() as patch:  # in this process, for speed
            patch.setattr(config, "CONF", self.folder / "conf")
            compose.run(self.folder)
        with chdir(self.folder), Repo() as repo:
            return set(repo.status()) - {"compose"}


def make_copy(folder: Path) -> None:
    """Put the repository into a folder and a Git repository of its own, its pipeline up to date with made-up outputs.

    Only `compose` really runs: what the others write does not matter to the question which of them a change touches.
    """
    listing = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in names:
        if (ROOT / name).is_file() and name != "dvc.lock":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    copy = Copy(folder)
    # What the changes start from: two seeds, and a value, an interpolation and a key to change.
    copy.write("params.yaml", "overrides: []\nseeds: [1, 2]\n")
    copy.put("conf/ppo/default.yaml", "learning_rate", "0.0003")
    copy.put("conf/ppo/default.yaml", "num_envs", "${validate.num_envs}")
    copy.write("conf/env/cartpole.yaml", CARTPOLE)
    assert copy.compose().returncode == 0
    with chdir(folder), Repo() as repo:
        for output in repo.index.outs:
            path = Path(output.fs_path).relative_to(folder)
            if path.parts[0] == "artifacts":
                copy.write(str(path if path.suffix else path / "figure.svg"), str(path))
    copy.accept()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean") / "copy"
    folder.mkdir()
    make_copy(folder)
    return folder


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Copy:
    shutil.copytree(clean, tmp_path / "copy")
    return Copy(tmp_path / "copy")


CHANGES: dict[str, tuple[Callable[[Copy], None], set[str]]] = {
    "nothing": (lambda copy: None, set()),
    "a value that is read": (lambda copy: copy.put("conf/ppo/default.yaml", "gae_lambda", "0.123"), TRAIN),
    "an inactive option file": (lambda copy: copy.put("conf/env/pendulum.yaml", "gamma", "0.8"), set()),
    "another option in the defaults list": (
        lambda copy: copy.put("conf/config.yaml", "env", "pendulum"),
        {"validate", "report"} | TRAIN | EVALUATE,
    ),
    "a value that no stage reads": (lambda copy: copy.put("conf/config.yaml", "uri", "x"), set()),
    "a comment": (lambda copy: copy.append("conf/ppo/default.yaml", "# a comment\n"), set()),
    "0.0003 written 3.0e-4": (lambda copy: copy.put("conf/ppo/default.yaml", "learning_rate", "3.0e-4"), set()),
    "0.0003 written 3e-4": (lambda copy: copy.put("conf/ppo/default.yaml", "learning_rate", "3e-4"), set()),
    "an environment's value": (
        lambda copy: copy.put("conf/env/cartpole.yaml", "max_episode_steps", "400"),
        {"validate"} | TRAIN | EVALUATE,
    ),
    "an evaluation's value": (lambda copy: copy.put("conf/config.yaml", "episodes", "50"), EVALUATE),
    "the source of an interpolation in another file": (
        lambda copy: copy.put("conf/config.yaml", "num_envs", "16"),
        {"validate"} | TRAIN,
    ),
    "a training seed": (
        lambda copy: copy.put("params.yaml", "seeds", "[1, 2, 3]"),
        {"train@3", "evaluate@3", "report"},
    ),
    "a new key": (lambda copy: copy.append("conf/env/cartpole.yaml", "  ent_coef: 0.01\n"), TRAIN),
    "a removed key": (lambda copy: copy.write("conf/env/cartpole.yaml", CARTPOLE.split("ppo:")[0]), TRAIN),
    "a new option file that is not used": (
        lambda copy: copy.write("conf/policy/wide.yaml", "# Wide.\nhidden: [256, 256]\n"),
        set(),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_re_runs_just_the_stages_it_touches(copy: Copy, change: str) -> None:
    make, wanted = CHANGES[change]
    make(copy)
    assert copy.touched() == wanted


def test_an_edit_of_an_option_file_that_was_added_later_and_then_chosen(copy: Copy) -> None:
    copy.write("conf/policy/narrow.yaml", (copy.folder / "conf/policy/default.yaml").read_text())
    copy.put("conf/policy/narrow.yaml", "hidden", "[32, 32]")
    copy.put("params.yaml", "overrides", "[policy=narrow]")
    assert copy.touched() == TRAIN
    copy.accept()
    assert copy.touched() == set()
    copy.put("conf/policy/narrow.yaml", "hidden", "[16, 16]")
    assert copy.touched() == TRAIN


def test_a_mistake_in_params_yaml_is_one_line_and_leaves_the_composed_file(copy: Copy) -> None:
    composed = (copy.folder / "build/params.yaml").read_text()
    for overrides, wanted in (
        ("[ppo.lr=0.1]", "'ppo.lr'. Nearest: ppo.learning_rate"),
        ("[env=pendulm]", "'pendulm'. Nearest: pendulum"),
        ("[seed=4]", "`seeds`"),
        ("[ppo.gamma=0.9,seed]", "got 'seed'"),
    ):
        copy.put("params.yaml", "overrides", overrides)
        done = copy.compose()
        assert done.returncode == 2
        assert wanted in done.stderr
        assert done.stderr.count("\n") == 1
    assert (copy.folder / "build/params.yaml").read_text() == composed
