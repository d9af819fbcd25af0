"""What users mistype and break: each ends with one line that says what to do, exit code 2, and nothing of theirs changed.

A row: the stage, what was typed, what was broken before (a function of the folder that it runs in), the line. Values of
keys have a table of their own in test_config.py.
"""
# ruff: noqa: E501  # a row of the table is read as one line

import errno
import functools
import importlib.util
import os
import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import python
from test_report import change_json, change_text, set_cell, write_artifacts
from training import SMALL, plant_in_kernel, small

import envs
from envs.vector import NativeVectorEnv, StepOutput
from kernels import compiler, mlp
from pipeline import compose, config, provenance, tracking, train

Arrange = Callable[[Path, pytest.MonkeyPatch], Any]
COMPOSED = ("--run", "--config-dir", "composed", "--config-name", "params", "hydra.run.dir=hydra", "hydra.output_subdir=null",
            "hydra/job_logging=none", "hydra/hydra_logging=none")  # fmt: skip


@dataclass(frozen=True)
class Mistake:
    name: str
    stage: str
    typed: str
    line: str  # a regular expression for all of it
    broken: Arrange = lambda folder, patch: None
    composed: bool = True  # typed after a composed file, as DVC does, which is quicker


Typed = functools.partial(Mistake, composed=False)

# ---------------------------------------------------------------------------------------------------------------------
# What can be broken
# ---------------------------------------------------------------------------------------------------------------------


def in_file(path: str, change: Callable[[Path], Any]) -> Arrange:
    return lambda folder, patch: change(folder / path)


def write(path: str, content: str | bytes) -> Arrange:
    return in_file(path, lambda file: file.write_bytes(content if isinstance(content, bytes) else content.encode()))


def replace(path: str, old: str, new: str) -> Arrange:
    return in_file(path, lambda file: change_text(file, old, new))


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def hide_module(name: str) -> Arrange:
    return lambda folder, patch: patch.setitem(sys.modules, name, None)


def without_gymnasium(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for name in ("player", "gymnasium_adapter", "host"):
        patch.delitem(sys.modules, f"envs.{name}", raising=False)
        patch.delattr(envs, name, raising=False)
    hide_module("gymnasium")(folder, patch)


def environment(**variables: str) -> Arrange:
    return lambda folder, patch: [patch.setenv(*each) for each in variables.items()]


def compiler_of(**variables: str) -> Arrange:
    """A machine on which nothing was built yet, with these variables."""

    def arrange(folder: Path, patch: pytest.MonkeyPatch) -> None:
        find = importlib.util.find_spec
        patch.setattr(compiler.util, "find_spec", lambda name: None if name == "ziglang" else find(name))
        for name in ("find_compiler", "identity", "cache_folder", "pool"):
            patch.setattr(compiler, name, getattr(compiler, name).__wrapped__)
        patch.delenv("CXX", raising=False)
        environment(LOCKSTEP_CACHE=str(folder / "cache"), **variables)(folder, patch)

    return arrange


def no_program(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """CXX names a text that may be executed and says not by what."""
    file = folder / "compiler"
    file.write_text("g++ --here\n")
    file.chmod(0o755)
    compiler_of(CXX=str(file))(folder, patch)


def optimization(level: str) -> Arrange:
    return lambda folder, patch: [compiler_of()(folder, patch), patch.setattr(compiler, "OPTIMIZATION", level)]


def cut_kernel(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The first kernel that is built lost its content."""
    compiler_of()(folder, patch)
    (folder / "cut.so").touch()
    patch.setattr(compiler, "compile_library", lambda *_: folder / "cut.so")


def disk(number: int, call: str) -> Arrange:
    """A disk that refuses: root, who may write anywhere, cannot be shut out by permissions."""

    def arrange(folder: Path, patch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        patch.setattr(*{"create": (tempfile, "TemporaryFile"), "flush": (os, "fsync")}[call], refuse)

    return arrange


def broken(reward: float) -> Callable[..., Any]:
    """`envs.make` of environments of which number 2 is rewarded with this from its first step on."""

    class Broken(NativeVectorEnv):
        def step(self, action: torch.Tensor, out: StepOutput) -> None:
            super().step(action, out)
            out.reward[2:3] = reward

    return Broken


# ---------------------------------------------------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------------------------------------------------

FOLDER = r"out: wanted a folder to write to; {}: {}\. Give out=<folder>"
LONG = "x" * 300
MEND = r"\. Restore it \(`dvc checkout`\), or train again"
HASH = "[0-9a-f]{64}"
MADE = "checkpoint=trained out=new"
MEMORY = r"wanted memory for this configuration; .*allocate.*\. Give smaller ppo\.num_envs, .*"
HYDRA_FOLDER = r"hydra\.run\.dir \(with -m hydra\.sweep\.dir\): wanted a folder to write to; {}: {}\. Start in .*"
REPORT = "out=runs/report seeds=[1,2]"
HOST = "device=cpu tracking.enabled=false out=new hydra.run.dir=hydra env=gymnasium env.id="
# A game that observes four times what is filled in.
GAME = """
import gymnasium, numpy
class Game(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-9, 9, (4,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.count = 0
        return numpy.zeros(4, "f"), {{}}
    def step(self, action):
        self.count += 1
        return numpy.full(4, {}, "f"), 1.0, False, False, {{}}
"""
AGAIN = r"\. Run `dvc repro`, or that stage by hand"

CONFIGURATION = [
    Typed("a key of another library", "train", "ppo.n_steps=64", r"wanted a key .*'ppo\.n_steps'\. Nearest: ppo\.num_steps.*"),
    Typed("a key without its section", "evaluate", "episodes=3", r"wanted a key .*'episodes'\. Nearest: evaluate\.episodes.*"),
    Typed("a space around =", "train", "ppo.gamma = 0.9", r"wanted key=value; got 'ppo\.gamma = 0\.9'\. Write ppo\.gamma=0\.9, without spaces around ="),
    Typed("a file for an experiment", "train", "experiment=my.yaml", r"experiment: wanted one of .*; got 'my\.yaml'.*"),
    Typed("two options of one group", "train", "env=[cartpole,pendulum]", r"env: wanted one option; got '\[cartpole,pendulum\]'\. Hydra would let the last one win; .*"),
    Typed("argparse's way", "train", "--seed=3", r"wanted key=value or a flag of Hydra's; got '--seed=3'\. Nearest: seed=<value>.*"),
    Typed("a flag of another tool", "train", "--gpu", r"wanted key=value or a flag of Hydra's; got '--gpu'\. See --help"),
    Typed("no file of that name", "train", "--config-name mine", r"wanted a configuration file; got 'mine'.*"),
    Typed("a list in a sweep, one of it wrong", "train", "-m ppo.clip_coef=0.1,-0.2", r"ppo\.clip_coef: wanted a number above 0; got -0\.2"),
    Typed("a sweep without -m", "train", "env=cartpole,pendulum", r"env=cartpole,pendulum: wanted one value; got several\. Add -m .*"),
    Typed("a sweep over nothing", "train", "-m env=glob(zzz*)", r"env=glob\(zzz\*\): wanted one value or more; got none"),
    Typed("a launcher that is not there", "train", "-m seed=1,2 hydra/launcher=slurm", r".*'hydra/launcher/slurm'.*"),
    Typed("more steps of an episode than can be counted", "train", "env.max_episode_steps=3000000000", r"env\.max_episode_steps: wanted .* below 2147483648; got 3000000000"),
    Typed("more samples than can be counted", "train", "ppo.num_envs=99999999999 ppo.total_steps=99999999999999", r"ppo\.num_envs: wanted num_envs \* num_steps below 2147483648; got \d+"),
    Typed("a million threads", "train", "device.threads=1000000", r"device\.threads: wanted .* below 1024; got 1000000"),
    Typed("a GPU that is not there", "train", "device=cuda out=new hydra.run.dir=hydra", r"device: wanted a CUDA device; .*\. Use device=cpu or device=auto"),
    Mistake("a network larger than the memory", "train", "policy.hidden=[8,10000000000000000] out=new", MEMORY),
    Mistake("no checkpoint named", "evaluate", "out=new", r"checkpoint: wanted a value; got none\. Give checkpoint=<value>"),
    Mistake("another environment than composed", "train", "env=pendulum out=new", r"env=pendulum: wanted a single key, .*`overrides` of params\.yaml.*"),
]  # fmt: skip

FOLDERS = [
    Mistake("below a file", "train", "out=file/below", FOLDER.format("file/below", "Not a directory")),
    Mistake("a file", "validate", "out=file", FOLDER.format("file", "Not a directory")),
    Mistake("below a file, to evaluate", "evaluate", "checkpoint=trained out=file/x",
            FOLDER.format("file/x", "Not a directory")),
    Mistake("where the kernel makes files", "train", "out=/proc/new",
            FOLDER.format("/proc/new", "No such file or directory")),
    Mistake("a name too long", "train", f"out={LONG}", FOLDER.format(LONG, "File name too long")),
    Mistake("a read-only disk", "train", "out=new", FOLDER.format("new", "Read-only file system"),
            disk(errno.EROFS, "create")),
    Mistake("a full disk", "validate", "out=new", "out: wanted a folder to write throughput.json to; new: No space left on device",
            disk(errno.ENOSPC, "flush")),
    Mistake("a finished training", "train", "out=trained", "out: wanted a folder without results; trained holds "
            r"checkpoint\.json already\. Choose another out=<folder>, or remove that one first"),
    Mistake("a finished evaluation", "evaluate", "checkpoint=trained out=runs/evaluate/seed-1",
            r"out: wanted a folder without results; runs/evaluate/seed-1 holds metrics\.json already\. .*"),
    Typed("Hydra's folder below a file", "train", "hydra.run.dir=file/x out=new", HYDRA_FOLDER.format("file/x", "Not a directory")),
    Typed("a sweep's folder below a file", "train", "-m seed=1,2 hydra.sweep.dir=file/x tracking.enabled=false", HYDRA_FOLDER.format("file/x", "Not a directory")),
    Mistake("a damaged unfinished training", "train", "out=unfinished", r"out: wanted an unfinished training in "
            r"unfinished/partial-\w+\.safetensors; it is damaged .*\. Remove it",
            in_file("unfinished", lambda folder: cut(next(folder.iterdir())))),
]  # fmt: skip

CHECKPOINTS = [
    Mistake("no folder", "evaluate", "checkpoint=nowhere out=new",
            r"checkpoint: wanted a folder with checkpoint\.json; nowhere/checkpoint\.json: No such file or directory"),
    Mistake("its file, not its folder", "evaluate", "checkpoint=trained/checkpoint.safetensors out=new",
            r"checkpoint: wanted a folder with checkpoint\.json; .*: Not a directory"),
    Mistake("no tensors", "evaluate", MADE, rf"checkpoint: wanted trained/checkpoint\.safetensors; No such file or directory{MEND}",
            in_file("trained/checkpoint.safetensors", Path.unlink)),
    Mistake("a flipped bit", "evaluate", MADE, rf"checkpoint: expected trained/checkpoint\.safetensors to have SHA-256 {HASH}; found {HASH}{MEND}",
            in_file("trained/checkpoint.safetensors", flip_a_bit)),
    Mistake("cut short", "evaluate", MADE, rf"checkpoint: expected .* SHA-256 {HASH}; found {HASH}{MEND}",
            in_file("trained/checkpoint.safetensors", cut)),
    Mistake("a manifest that is none", "evaluate", MADE, rf"checkpoint: wanted JSON; trained/checkpoint\.json: .*{MEND}",
            write("trained/checkpoint.json", "version https://git-lfs")),
    Mistake("a manifest without a key", "evaluate", MADE, rf"checkpoint: wanted the keys .*; trained/checkpoint\.json lacks step{MEND}",
            replace("trained/checkpoint.json", '"step"', '"steps"')),
    Mistake("of a later version", "evaluate", MADE, r"checkpoint: wanted format 1; trained/checkpoint\.json has 2\. Train again",
            in_file("trained/checkpoint.json", lambda file: change_json(file, format=2))),
    Mistake("an edited configuration", "evaluate", MADE, rf"checkpoint: expected config_sha256 of .* {HASH}; found {HASH}{MEND}",
            replace("trained/checkpoint.json", '"seed": 1', '"seed": 2')),
    Mistake("an edited step", "evaluate", MADE, rf"checkpoint: expected the other keys of .* {HASH}; found {HASH}{MEND}",
            replace("trained/checkpoint.json", '"step": 192', '"step": 999')),
    Mistake("of another time limit", "evaluate", f"{MADE} env.max_episode_steps=21", r"checkpoint: wanted one of cartpole with "
            r"max_episode_steps 21; it was trained with 20\. Train it again on this environment"),
]  # fmt: skip

MACHINE = [
    Mistake("no compiler", "train", "out=new", r"a C\+\+ compiler is needed .*Install one with `apt-get install g\+\+` .*"
            r"`pip install ziglang`", compiler_of(PATH="/nonexistent")),
    Mistake("CXX that is not there", "train", "out=new", r"CXX must name a C\+\+ compiler; got 'g\+\+-99', which is not found\. .*",
            compiler_of(CXX="g++-99")),
    Mistake("CXX with a quote too many", "train", "out=new", r"CXX must name a C\+\+ compiler; got '\"g\+\+', .*", compiler_of(CXX='"g++')),
    Mistake("CXX that compiles nothing", "train", "out=new", r"a C\+\+17 compiler is needed to build the kernels; false builds not "
            r"even an empty program \(exit code 1\)\. Name another in CXX, or unset it", compiler_of(CXX="false")),
    Mistake("CXX with a wrong flag", "train", "out=new", r"a C\+\+17 compiler is needed .*; g\+\+ -fno-such builds not .*fno-such.*",
            compiler_of(CXX="g++ -fno-such")),
    Mistake("CXX that is no program", "train", "out=new", r"a C\+\+17 compiler is needed .*; .*/compiler cannot be run "
            r"\(Exec format error\)\. Name another in CXX, or unset it", no_program),
    Mistake("a level of optimization", "train", "out=new", "LOCKSTEP_OPTIMIZATION: wanted one of -O0, -O1, -O2, -O3; got '-Ofast'. "
            "Unset it or correct it", optimization("-Ofast")),
    Mistake("a kernel that was cut", "train", "out=new", r"wanted to load the built kernel .*/cut\.so; .*file too short\. Remove it, "
            "so that it is built again, or name another folder in LOCKSTEP_CACHE", cut_kernel),
    Mistake("no MLflow", "train", "tracking.enabled=true out=new", "tracking: wanted the package mlflow; it is not installed. "
            r"Install it with `pip install 'mlflow>=.*'`, or set tracking\.enabled=false", hide_module("mlflow")),
    Mistake("no MLflow to evaluate", "evaluate", f"tracking.enabled=true {MADE}", r"tracking: wanted the package mlflow; .*", hide_module("mlflow")),
    Mistake("a store of no known kind", "train", "tracking.enabled=true tracking.uri=s3://bucket out=new",
            r"tracking\.uri: wanted sqlite:///<path>, .*; got 's3://bucket'\. Leave it null .*"),
    Mistake("a path for a store", "evaluate", f"tracking.enabled=true tracking.uri=mlruns {MADE}", r"tracking\.uri: wanted sqlite:///<path>, .*"),
    Mistake("a store in the environment", "train", "tracking.enabled=true out=new", r"tracking\.uri: wanted .*; got 'localhost:5000'\. .*",
            environment(MLFLOW_TRACKING_URI="localhost:5000")),
    Mistake("a store in no folder", "train", "tracking.enabled=true tracking.uri=sqlite:////nowhere/a.db out=new",
            r"tracking\.uri: wanted a writable folder; got /nowhere\. Create it or correct the path"),
    Mistake("a store that is no database", "train", "tracking.enabled=true tracking.uri=sqlite:///{folder}/file out=new",
            r"tracking\.uri: wanted an SQLite file; got .*/file, which is none\. Correct the path"),
    Mistake("no database to show", "tracking", "ui --uri sqlite:///{folder}/none.db", r"wanted .*/none\.db; there is no such database yet\. Train first: `make repro`"),
]  # fmt: skip

ENVIRONMENTS = [
    Mistake("too few steps to see an end", "validate", "validate.steps=9 out=new", r"validate\.steps must be at least 10, to reach an end; got 9"),
    Mistake("more environments than fit", "validate", "validate.num_envs=1000000000000 out=new", MEMORY),
    Mistake("an environment that answers NaN", "train", "device.fused=false out=new", r"iteration 0: every value must be finite; found NaN or infinity in rewards of environment 2 at step .*",
            lambda folder, patch: patch.setattr("envs.make", broken(float("nan")))),
    Mistake("an environment that answers NaN, on the fast path", "train", "out=new", r"iteration 0: every value must be finite; found NaN or infinity in rewards of environment 2 at step .*",
            lambda folder, patch: plant_in_kernel(patch, folder.parent, mlp.ROLLOUT["one"], "reward[i] = r[agent];", "reward[i] = n == 2 ? as_float(0x7fc00000u) : r[agent];")),
    Mistake("an environment out of bounds", "validate", "validate.steps=20 validate.num_envs=4 out=new", r"bounds of cartpole: environment 2, step 1, reward: wanted within .*; got 7\.0.*",
            lambda folder, patch: patch.setattr("envs.make", broken(7.0))),
]  # fmt: skip

HOSTS = [
    Typed("an id that Gymnasium knows not", "train", f"{HOST}LunarLander-v2", r"env\.id: wanted an id that Gymnasium knows; got 'LunarLander-v2', nearest: LunarLander-v3.*\. For a class of yours write module:Class"),
    Typed("an id of a native environment", "validate", "env=cartpole env.id=CartPole-v1 out=new", r"env\.id: wanted env=atari or env=envpool or env=gymnasium or env=pettingzoo with it; other environments have no such key"),
    Typed("no module of that name", "train", f"{HOST}my_game:Game", r"env\.id: wanted a module in this folder or installed; got 'my_game', nearest: my_games",
          write("my_games.py", "")),
    Typed("no class of that name", "train", f"{HOST}games_a:Gmae", r"env\.id: wanted a class of games_a; got 'Gmae', nearest: Game.*",
          write("games_a.py", "import gymnasium\nclass Game(gymnasium.Env):\n    pass\n")),
    Typed("a class of another library", "train", f"{HOST}games_b:Game", r"env\.id: wanted a class of gymnasium\.Env; games_b:Game makes a Game", write("games_b.py", "class Game:\n    pass\n")),
    Typed("a module with a mistake", "train", f"{HOST}games_c:Game", r"env\.id: wanted the module games_c to be imported; NameError: name 'gym' is not defined\nTraceback(?s:.*)games_c\.py(?s:.*)",
          write("games_c.py", "class Game(gym.Env):\n    pass\n")),
    Typed("no time limit", "train", f"{HOST}Blackjack-v1", r"env\.max_episode_steps: wanted a time limit, steps; Blackjack-v1 has none of its own, .*\. Give env\.max_episode_steps=<steps>"),
    Typed("no Gymnasium", "train", f"{HOST}CartPole-v1", r"env=gymnasium: wanted the package gymnasium; gymnasium is not installed\. Install it with `pip install 'lockstep\[gymnasium\]'`",
          without_gymnasium),
    Typed("a game that answers NaN", "train", f"{HOST}games_d:Game env.max_episode_steps=9 env.workers=0 policy.hidden=[9,8] ppo.num_envs=4 ppo.num_steps=8 ppo.total_steps=64",
          r"iteration 0: every value must be finite; found NaN or infinity in observations of environment 0 at step 3 of the rollout\. .*",
          write("games_d.py", GAME.format("self.count if self.count < 3 else float('nan')"))),
    Typed("a game that raises", "train", f"{HOST}games_e:Game env.max_episode_steps=9 env.workers=0 policy.hidden=[9,8] ppo.num_envs=4 ppo.num_steps=8 ppo.total_steps=64",
          r"env\.id: wanted an answer of games_e:Game to step\(\); environment 0 raised ZeroDivisionError: .*\. Mend it; where it was:\nTraceback(?s:.*)games_e\.py(?s:.*)",
          write("games_e.py", GAME.format("1 / (3 - self.count)"))),
]  # fmt: skip

ARTIFACTS = [
    Mistake("nothing trained", "report", "out=elsewhere/report", rf"wanted the file elsewhere/train/seed-1/checkpoint\.json; found none{AGAIN}"),
    Mistake("a seed that was not trained", "report", "out=runs/report seeds=[1,2,3]", rf"wanted the file runs/train/seed-3/checkpoint\.json; found none{AGAIN}"),
    Mistake("a seed that was not evaluated", "report", REPORT, rf"wanted the file runs/evaluate/seed-2/metrics\.json; found none{AGAIN}",
            in_file("runs/evaluate/seed-2", shutil.rmtree)),
    Mistake("a curve cut short", "report", REPORT, r"runs/train/seed-2/curve\.csv: wanted a whole last line; found one without its end\. Make it again",
            in_file("runs/train/seed-2/curve.csv", cut)),
    Mistake("an empty curve", "report", REPORT, r"runs/train/seed-1/curve\.csv: wanted the column step; found an empty file\. Make it again",
            write("runs/train/seed-1/curve.csv", "")),
    Mistake("NaN in a curve", "report", REPORT, r"runs/train/seed-2/curve\.csv: wanted a finite entropy in line 4; found 'nan'\. Make it again",
            in_file("runs/train/seed-2/curve.csv", lambda file: set_cell(file, 2, "entropy", "nan"))),
    Mistake("bytes that are no text", "report", REPORT, rf"wanted the file .*episodes\.csv; found 'utf-8' codec .*{AGAIN}",
            write("runs/evaluate/seed-1/episodes.csv", b"\xff\xfe")),
    Mistake("JSON cut short", "report", REPORT, r"runs/train/seed-1/profile\.json: wanted JSON; found .*\. Make it again",
            in_file("runs/train/seed-1/profile.json", cut)),
    Mistake("an evaluation of another checkpoint", "report", REPORT, r"runs/evaluate/seed-2/metrics\.json: wanted checkpoint_sha256 .*; found a{64}\. Evaluate this .*",
            in_file("runs/evaluate/seed-2/metrics.json", lambda file: change_json(file, checkpoint_sha256="a" * 64))),
    Mistake("a return that was edited", "report", REPORT, r"runs/evaluate/seed-2/metrics\.json: wanted return_mean = .*, as in episodes\.csv; found 1000000.*",
            in_file("runs/evaluate/seed-2/metrics.json", lambda file: change_json(file, return_mean=1e6))),
    Mistake("a report on another environment", "report", f"{REPORT} env.name=pendulum", r"wanted checkpoints of pendulum; found cartpole\. Give env=cartpole, or train pendulum"),
]  # fmt: skip

PARAMS = [
    Mistake("none", "compose", "", r"params\.yaml: wanted a YAML file; .*No such file or directory.*", in_file("params.yaml", Path.unlink)),
    Mistake("empty", "compose", "", r"overrides: wanted a list such as \['env=pendulum'\]; got None\. Mend it in params\.yaml", write("params.yaml", "")),
    Mistake("not YAML", "compose", "", r"params\.yaml: wanted a YAML file; while parsing .*", write("params.yaml", "seeds: [1, 2\noverrides: []\n")),
    Mistake("bytes that are no text", "compose", "", r"params\.yaml: wanted a YAML file; 'utf-8' codec .*", write("params.yaml", b"\xff\xfe\x00")),
    Mistake("one seed without brackets", "compose", "", r"seeds: wanted a list such as \[1, 2, 3\]; got 3\. Mend it in params\.yaml", write("params.yaml", "overrides: []\nseeds: 3\n")),
    Mistake("keys for overrides", "compose", "", r"overrides: wanted a list such as .*; got \{'env': 'pendulum'\}\. .*", write("params.yaml", "overrides: {env: pendulum}\nseeds: [1]\n")),
    Mistake("an unknown option", "compose", "", r"env: wanted one of .*; got 'pendulm'\. Nearest: pendulum", write("params.yaml", "overrides: [env=pendulm]\nseeds: [1]\n")),
    Mistake("a seed among the overrides", "compose", "", r"overrides: wanted no seed here; got 'seed=3'\. Instead, list the training seeds .*", write("params.yaml", "overrides: [seed=3]\nseeds: [1]\n")),
    Mistake("a file for the folder", "compose", "", r"wanted a folder to write params\.yaml to; .*/build: File exists", write("build", "mine")),
]  # fmt: skip

TABLE = {
    **{f"configuration: {row.name}": row for row in CONFIGURATION},
    **{f"folders: {row.name}": row for row in FOLDERS},
    **{f"checkpoints: {row.name}": row for row in CHECKPOINTS},
    **{f"machine: {row.name}": row for row in MACHINE},
    **{f"environments: {row.name}": row for row in ENVIRONMENTS},
    **{f"hosts: {row.name}": row for row in HOSTS},
    **{f"artifacts: {row.name}": row for row in ARTIFACTS},
    **{f"params.yaml: {row.name}": row for row in PARAMS},
}


# ---------------------------------------------------------------------------------------------------------------------
# Running it
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all is well: a training, the artifacts of two seeds, params.yaml, and a file."""
    folder = tmp_path_factory.mktemp("sound")
    (folder / "file").write_text("mine")
    (folder / "params.yaml").write_text("overrides: [env=cartpole]\nseeds: [1, 2]\n")
    (folder / "composed").mkdir()
    (folder / "composed" / "params.yaml").write_text(compose.compose(SMALL, [1]))
    write_artifacts(folder / "runs", (1, 2), iterations=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder / "checkout")
        patch.setattr(train, "PARTIAL_SECONDS", -1.0)
        patch.setattr("pipeline.files.remove", lambda path: None)  # so that the unfinished training stays
        train.run(small(folder / "trained"))
    (folder / "unfinished").mkdir()
    partial = next((folder / "trained").glob("partial-*"))
    partial.rename(folder / "unfinished" / partial.name)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the stage runs."""
    monkeypatch.setattr(provenance, "collect", lambda device: {})
    monkeypatch.setenv(tracking.SWEEP, "")  # a sweep that is refused leaves it set
    monkeypatch.delenv(tracking.SWEEP)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(sound, tmp_path / "folder")
    monkeypatch.chdir(tmp_path / "folder")
    return tmp_path / "folder"


def arguments(mistake: Mistake, folder: Path) -> list[str]:
    composed = COMPOSED if mistake.composed and mistake.stage not in ("compose", "tracking") else ()
    return [
        *composed,
        *([mistake.typed] if " = " in mistake.typed else mistake.typed.replace("{folder}", str(folder)).split()),
    ]


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(mistake: Mistake, code: object, stderr: str, before: dict[Path, bytes], folder: Path) -> None:
    speaker = "ui" if mistake.stage == "tracking" else mistake.stage
    assert re.fullmatch(f"{speaker}: {mistake.line}\n", stderr), stderr
    assert code == 2
    assert contents(folder).items() >= before.items()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", TABLE)
def test_a_mistake_is_one_helpful_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`python -m pipeline.<stage>`, in this process."""
    mistake = TABLE[name]
    mistake.broken(folder, monkeypatch)
    before = contents(folder)
    monkeypatch.setattr(sys, "argv", [mistake.stage, *arguments(mistake, folder)])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(f"pipeline.{mistake.stage}", run_name="__main__", alter_sys=True)
    check(mistake, stopped.value.code, capfd.readouterr().err, before, folder)


COMMANDS = (
    "configuration: a key of another library",
    "machine: no compiler",
    "params.yaml: not YAML",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_so_it_is_with_the_command(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = TABLE[name]
    mistake.broken(folder, monkeypatch)
    before = contents(folder)
    environment = {**os.environ, "PYTHONPATH": str(config.ROOT)}
    done = python(["-m", f"pipeline.{mistake.stage}", *arguments(mistake, folder)], folder, environment)
    check(mistake, done.returncode, done.stderr, before, folder)


def test_the_table_has_no_two_rows_of_one_name() -> None:
    groups = (CONFIGURATION, FOLDERS, CHECKPOINTS, MACHINE, ENVIRONMENTS, HOSTS, ARTIFACTS, PARAMS)
    assert len(TABLE) == sum(map(len, groups)) >= 40
