"""One hash everywhere: two short trainings end in the same bits in Python and in tests/golden's programs, whatever the
compiler, its flags, the width of a vector and the processor.

A golden run is a file tests/golden/<run>.cpp: its configuration, and the hashes of the parameters that it begins with
and ends in. `python tests/test_golden.py` writes both files anew where training was meant to change.
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import util
from pathlib import Path

import pytest
import torch

import envs
from kernels import adam, compiler, launcher
from kernels.mlp import partitions
from pipeline import checkpoint, provenance, train
from pipeline import config as configuration
from pipeline.config import Config
from pipeline.mlp import shapes
from pipeline.policy import build

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
_ALWAYS = ("tracking.enabled=false",)
# Sizes that no vector divides, two tiles a partition, episodes that fall and episodes that a limit cuts; between them
# both heads, both activations, a trunk for two and one each, one layer and two.
RUNS = {
    "cartpole": (
        "env=cartpole", "seed=7", "env.max_episode_steps=40", "policy.hidden=[17,9]", "policy.shared=true",
        "ppo.total_steps=1764", "ppo.num_envs=7", "ppo.num_steps=63", "ppo.num_minibatches=3", "ppo.update_epochs=2",
        "ppo.ent_coef=0.01", "ppo.learning_rate=0.02",
    ),
    "pendulum": (
        "env=pendulum", "seed=8", "env.max_episode_steps=25", "policy.hidden=[9]", "policy.activation=relu",
        "policy.log_std_init=-0.5", "ppo.total_steps=1323", "ppo.num_envs=7", "ppo.num_steps=63",
        "ppo.num_minibatches=3", "ppo.update_epochs=2", "ppo.anneal_lr=false",
    ),
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# What the product says of a run
# ---------------------------------------------------------------------------------------------------------------------


def trained(run: str, out: Path, *overrides: str, device: str = "cpu") -> tuple[Config, Mapping[str, object]]:
    """A golden run by the product: its configuration, and the manifest that it wrote."""
    config = configuration.load((*RUNS[run], *_ALWAYS, f"device={device}", *overrides, f"out={out}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", out)
        train.run(config)
    return config, json.loads((out / checkpoint.MANIFEST).read_text())


def program(run: str, config: Config, manifest: Mapping[str, object]) -> str:
    """The text of tests/golden/<run>.cpp."""
    assert manifest["path"] == "fused"
    assert config.ppo.norm_adv
    assert config.ppo.optimizer == "adam"
    ppo, spec = config.ppo, envs.spec(config.env.name, config.env.max_episode_steps)
    policy, flat = build(spec, config.policy, config.seed, torch.device("cpu"))
    mlp = shapes(policy, flat, spec, config.policy)
    defines = {**mlp.constants, "STATE": spec.state_size}
    whole = {
        "NUM_ENVS": ppo.num_envs,
        "NUM_STEPS": ppo.num_steps,
        "NUM_MINIBATCHES": ppo.num_minibatches,
        "UPDATE_EPOCHS": ppo.update_epochs,
        "ITERATIONS": ppo.total_steps // ppo.batch_size,
        "MAX_EPISODE_STEPS": spec.max_episode_steps,
        "PARAMETERS": len(flat.parameters),
        "PARTITIONS": partitions(ppo.minibatch_size),
        "REDUCTION_BLOCKS": launcher.partitions(len(flat.parameters)),
    }
    real = {
        "LOG_STD_INIT": config.policy.log_std_init,
        "LEARNING_RATE": ppo.learning_rate,
        "GAMMA": ppo.gamma,
        "GAE_LAMBDA": ppo.gae_lambda,
        "CLIP_COEF": ppo.clip_coef,
        "ENT_COEF": ppo.ent_coef,
        "VF_COEF": ppo.vf_coef,
        "MAX_GRAD_NORM": ppo.max_grad_norm,
        "BETA1": adam.BETA1,
        "BETA2": adam.BETA2,
        "EPSILON": adam.EPSILON,
    }
    bounds = {"ACTION_LOW": spec.action.low, "ACTION_HIGH": spec.action.high} if not mlp.discrete else {}
    return "\n".join(
        [
            "// Written by tests/test_golden.py, which holds the configuration:",
            *(f"//   {override}" for override in RUNS[run]),
            *(f"#define LS_{name} {launcher._listed(value)}" for name, value in defines.items()),
            f'#include "../../envs/{spec.header.name}"',
            "",
            f'#define RUN "{run}"',
            f"constexpr unsigned long long SEED = {config.seed};",
            *(f"constexpr int {name} = {value};" for name, value in whole.items()),
            *(f"constexpr double {name} = {value!r};" for name, value in real.items()),
            f"constexpr bool ANNEAL_LR = {str(ppo.anneal_lr).lower()};",
            *(f"constexpr float {name}[] = {{{', '.join(map(repr, values))}}};" for name, values in bounds.items()),
            *(
                f'constexpr char {name.upper()}[] = "{manifest[name]}";'
                for name in ("initial_params_sha256", "params_sha256")
            ),
            '#include "training.h"\n',
        ]
    )


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("run", RUNS)
def test_python(run: str, threads: int, tmp_path: Path) -> None:
    """Configuration, initial and trained parameters are as the file holds them."""
    assert program(run, *trained(run, tmp_path, f"device.threads={threads}")) == (GOLDEN / f"{run}.cpp").read_text()


@pytest.mark.parametrize("run", RUNS)
def test_emulated_device(run: str, tmp_path: Path) -> None:
    """As a GPU is given it, from the first weights to the last step."""
    try:
        config, manifest = trained(run, tmp_path, device="emulated")
    finally:
        launcher.choose(emulated=False)
    assert program(run, config, manifest) == (GOLDEN / f"{run}.cpp").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# Without Python
# ---------------------------------------------------------------------------------------------------------------------

_BY_DEFAULT = " ".join(
    "-O3" if flag == compiler.OPTIMIZATION else flag for flag in compiler.FLAGS if flag not in ("-fPIC", "-shared")
)
_PORTABLE = _BY_DEFAULT.replace(" -march=native", "")
# Where the compiler's effort is not what is tested; it takes most of the time, and changes no bit either.
_QUICK, _QUICK_PORTABLE = (flags.replace("-O3", "-O0") for flags in (_BY_DEFAULT, _PORTABLE))


def check(*runs: str, folder: Path = GOLDEN, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(folder / "check.sh"), *runs]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def expect_golden(**environment: str) -> None:
    done = check(**environment)
    assert (done.returncode, done.stdout.count("as expected\n")) == (0, 5), done.stdout + done.stderr


def zig(*options: str) -> str | None:
    """The C++ compiler in the `ziglang` wheel."""
    return shlex.join([sys.executable, "-m", "ziglang", "c++", *options]) if util.find_spec("ziglang") else None


def test_product_flags() -> None:
    assert f"FLAGS:={_BY_DEFAULT}}}" in (GOLDEN / "check.sh").read_text()
    expect_golden(CXX=shlex.join(compiler.find_compiler()))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes(lanes: int) -> None:
    """Also widths that the processor has no instruction for."""
    expect_golden(CXX=shlex.join(compiler.find_compiler()), FLAGS=f"{_QUICK} -DLS_VECTOR={lanes}")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the oldest x86-64 runs on x86-64 alone")
def test_oldest_processor() -> None:
    """Neither AVX nor a fused multiply-add, which the C library computes then."""
    expect_golden(CXX=shlex.join(compiler.find_compiler()), FLAGS=f"{_QUICK_PORTABLE} -march=x86-64")


def test_clang() -> None:
    clang = shutil.which("clang++") or zig("-nostdlib++")
    if not clang:
        pytest.skip("needs clang++, or the ziglang wheel")
    expect_golden(CXX=clang, FLAGS=_BY_DEFAULT.replace("-O3", "-O1"))  # it fuses before it optimizes, g++ after


def test_aarch64() -> None:
    cross = shutil.which("aarch64-linux-gnu-g++") or zig("-target", "aarch64-linux-musl", "-nostdlib++")
    machine = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not cross:
        pytest.skip("needs aarch64-linux-gnu-g++ (Debian: g++-aarch64-linux-gnu), or the ziglang wheel")
    if not machine:
        pytest.skip("needs qemu-aarch64 (Debian: qemu-user)")
    expect_golden(CXX=cross, FLAGS=f"{_PORTABLE} -static", RUN=machine)


# ---------------------------------------------------------------------------------------------------------------------
# Planted
# ---------------------------------------------------------------------------------------------------------------------


def test_planted_contraction() -> None:
    """A compiler that may fuse what is written apart."""
    if "fma" not in compiler.identity() and platform.machine() == "x86_64":
        pytest.skip("needs a processor with fused multiply-add")
    flags = _BY_DEFAULT.replace("-ffp-contract=off", "-ffp-contract=fast")
    done = check("cartpole", CXX=shlex.join(compiler.find_compiler()), FLAGS=flags)
    assert done.returncode == 1, done.stderr
    assert "trained parameters" in done.stdout.split("but expected")[0].splitlines()[-1]


@pytest.mark.parametrize(
    ("run", "file", "right", "wrong"),
    [
        ("probe", "math.cuh", "5.0000001201e-1f", "5.0000007153e-1f"),
        ("probe", "math.cuh", "1162951.625f);\n    return p * x / q", "1162951.75f);\n    return p * x / q"),
        ("cartpole", "math.cuh", "5.0000001201e-1f", "5.0000007153e-1f"),
        ("pendulum", "mlp_forward.cu", "if (truncated[m] && !terminated[m])", "if (!truncated[m])"),
    ],
)
def test_planted(run: str, file: str, right: str, wrong: str, tmp_path: Path) -> None:
    for folder in ("kernels", "envs", "tests/golden"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    source = tmp_path / "kernels" / file
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    folder = tmp_path / "tests" / "golden"
    done = check(run, folder=folder, CXX=shlex.join(compiler.find_compiler()), FLAGS=_QUICK)
    assert (done.returncode, "but expected" in done.stdout) == (1, True), done.stdout + done.stderr


def write() -> None:
    for run in RUNS:
        with tempfile.TemporaryDirectory() as out:
            (GOLDEN / f"{run}.cpp").write_text(program(run, *trained(run, Path(out))))


if __name__ == "__main__":
    write()
