"""The configuration: every file composes, every mistake is one line that names the nearest valid thing."""

import dataclasses
import math
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from forked import python
from omegaconf import OmegaConf

import envs
from kernels.errors import UserError
from pipeline import compose, config
from pipeline.policy import ACTIVATIONS

ROOT = Path(__file__).resolve().parents[2]
QUIET = ["hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none"]
OPTIONS = [(group, option) for group in config.GROUPS for option in config.group_options(group)]
ENVIRONMENTS = ", ".join(config.group_options("env"))

# A stage of the tests' own: it prints what it got, and refuses seed 7 while it runs.
STAGE = """
import sys
from kernels.errors import UserError
from pipeline import config

def run(settings):
    if settings.seed == 7:
        raise UserError("seed: wanted a lucky one; got 7")
    if settings.seed == 8:
        raise ValueError("a fault of ours")
    print("ran", settings.seed, settings.ppo.learning_rate, settings.out, settings.checkpoint)

config.main("train", run)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    path = tmp_path / "stage.py"
    path.write_text(STAGE)
    return path


@pytest.fixture(scope="module")
def base() -> config.Config:
    return config.load(["device=cpu"])


def run(stage: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return python([str(stage), *arguments], stage.parent, environment)


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_configuration_file_composes(group: str, option: str) -> None:
    assert isinstance(config.load([f"{group}={option}"]), config.Config)


@pytest.mark.parametrize("name", sorted(str(path.relative_to(config.CONF)) for path in config.CONF.rglob("*.yaml")))
def test_every_key_has_a_comment_line(name: str) -> None:
    """A line of comment stands above each key that holds a value."""
    lines = (config.CONF / name).read_text().splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        key, colon, value = line.partition(":")
        if colon and value.strip() and not line.lstrip().startswith(("#", "-")):
            assert above.strip().startswith("#"), f"{name}: wanted a line of comment above {key.strip()}"


def test_the_options_are_what_the_code_knows() -> None:
    assert config.group_options("env") == sorted([*envs.names(), *envs.ADAPTERS])
    assert tuple(config.HOSTS) == envs.ADAPTERS
    for activation in ACTIVATIONS:
        assert config.load([f"policy.activation={activation}"]).policy.activation == activation


def test_an_environment_brings_its_own_values_and_an_experiment_has_the_last_word() -> None:
    assert config.load(["env=pendulum"]).ppo.gamma != config.load([]).ppo.gamma
    assert config.load(["env=pendulum", "ppo.gamma=0.5"]).ppo.gamma == 0.5
    assert (
        config.load(["experiment=quick", "env=pendulum"]).ppo.total_steps
        < config.load(["env=pendulum"]).ppo.total_steps
    )


# ---------------------------------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------------------------------

MISTAKES = [
    ("seed=abc", "seed: wanted a whole number", "'abc'"),
    ("seed=1.5", "seed: wanted a whole number", "1.5"),
    ("seed=true", "seed: wanted a whole number", "got true"),
    ("seed=-1", "seed: wanted a whole number of at least 0", "got -1"),
    ("seed=null", "seed: wanted a whole number", "got null"),
    ("seed=9223372036854775808", "seed: wanted a whole number", "below 9223372036854775808"),
    ("seed=1,2", "wanted one value; got several", "Add -m"),
    ("seeds=[1,1]", "seeds: wanted a list of different training seeds", "[1, 1]"),
    ("seeds=[]", "seeds: wanted a list", "[]"),
    ("seeds=3", "seeds: wanted a list", "got 3"),
    ("ppo.learning_rate=-1", "ppo.learning_rate: wanted a number above 0", "got -1"),
    ("ppo.learning_rate=0", "ppo.learning_rate: wanted a number above 0", "got 0"),
    ("ppo.learning_rate=fast", "ppo.learning_rate: wanted a number above 0", "'fast'"),
    ("ppo.learning_rate=inf", "ppo.learning_rate: wanted a number above 0", "got inf"),
    ("ppo.learning_rate=1e300", "ppo.learning_rate: wanted a number above 0, of a size up to 3.4e+38", "got 1e+300"),
    ("policy.log_std_init=-1e39", "policy.log_std_init: wanted a number, of a size up to 3.4e+38", "got -1e+39"),
    ("ppo.learning_rate=true", "ppo.learning_rate: wanted a number above 0", "got true"),
    ("ppo.gamma=1.01", "ppo.gamma: wanted a number from 0 to 1", "1.01"),
    ("ppo.gamma=nan", "ppo.gamma: wanted a number from 0 to 1", "got nan"),
    ("ppo.norm_adv=1", "ppo.norm_adv: wanted true or false", "got 1"),
    ("ppo.anneal_lr=yes", "ppo.anneal_lr: wanted true or false", "'yes'"),
    ("ppo.total_steps=1e6", "ppo.total_steps: wanted a whole number", "Write 1000000"),
    ("ppo.total_steps=10", "ppo.total_steps: wanted at least one iteration", "got 10"),
    (
        "ppo={num_envs: 32, num_steps: 64, num_minibatches: 3}",
        "num_envs * num_steps = 32 * 64 = 2048; got 3",
        "Nearest: 2, 4",
    ),
    ("ppo.num_envs=0", "ppo.num_envs: wanted a whole number of at least 1", "got 0"),
    ("ppo.lr=1", "got 'ppo.lr'", "Nearest: ppo.learning_rate"),
    ("lr=1", "got 'lr'", "Nearest: ppo.learning_rate"),
    ("learning_rate=1", "got 'learning_rate'", "Nearest: ppo.learning_rate"),
    ("ppo.gama=1", "got 'ppo.gama'", "Nearest: ppo.gamma"),
    ("ppo.epochs=1", "got 'ppo.epochs'", "Nearest: ppo.update_epochs"),
    ("sed=1", "got 'sed'", "Nearest: seed"),
    (
        "env.id=CartPole-v1",
        "env.id: wanted env=atari or env=envpool or env=gymnasium or env=pettingzoo with it",
        "other environments have no such key",
    ),
    ("env.threads=2", "env.threads: wanted env=envpool with it", "other environments have no such key"),
    ("env.wrokers=1", "got 'env.wrokers'", "Nearest: env.workers"),
    ("ppo.zzz=1", "got 'ppo.zzz'", "Valid: ppo.total_steps"),
    ("zzz=1", "got 'zzz'", "Valid: env, policy"),
    ("seed.x=1", "got 'seed.x'", "seed"),
    ("+ppo.foo=1", "got 'ppo.foo'", "ppo.gamma"),
    ("++ppo.foo=1", "got 'ppo.foo'", "ppo.gamma"),
    ("~ppo.gamma", "ppo.gamma: wanted a value", "Give ppo.gamma=<value>"),
    ("~env", "env: wanted a value", "Give env=<value>"),
    (
        "env=cartpol",
        f"one of {ENVIRONMENTS}; got 'cartpol'",
        "Nearest: cartpole",
    ),
    (
        "env.name=cartpol",
        f"one of {ENVIRONMENTS}; got 'cartpol'",
        "Nearest: cartpole",
    ),
    ("env.max_episode_steps=0", "env.max_episode_steps: wanted a whole number of at least 1", "got 0"),
    ("policy=big", "policy: wanted one of default", "'big'"),
    ("policy.hidden=[64,a]", "policy.hidden: wanted a list of widths", "'a'"),
    ("policy.hidden=64", "policy.hidden: wanted a list of widths", "got 64"),
    ("policy.activation=tan", "policy.activation: wanted one of tanh", "Nearest: tanh"),
    ("policy.shared=1", "policy.shared: wanted true or false", "got 1"),
    ("policy.shard=true", "got 'policy.shard'", "Nearest: policy.shared"),
    ("experiment=quik", "experiment: wanted one of cartpole_lengths, quick", "Nearest: quick"),
    ("+experiment=quick", "experiment", "experiment: quick"),
    ("device=gpu", "device: wanted one of auto, cpu, cuda, emulated", "'gpu'"),
    ("device.fused=maybe", "device.fused: wanted true or false", "'maybe'"),
    ("device.fused=null", "device.fused: wanted true or false", "null"),
    ("device.fuse=false", "got 'device.fuse'", "Nearest: device.fused"),
    ("device.threads=-1", "device.threads: wanted a whole number of at least 0", "got -1"),
    ("evaluate.split=test", "evaluate.split: wanted one of held_out, selection", "'test'"),
    ("evaluate.split=train", "evaluate.split: wanted one of held_out, selection", "'train'"),
    ("evaluate.episodes=0", "evaluate.episodes: wanted a whole number of at least 1", "got 0"),
    ("replay.split=test", "replay.split: wanted one of held_out, selection, train", "'test'"),
    ("replay.split=train", "replay.environment: wanted one with replay.split=train", "got null"),
    ("replay.environment=0", "replay.environment: wanted null", "got 0"),
    ("replay.environment=-1", "replay.environment: wanted a whole number of at least 0", "got -1"),
    ("replay.episode=-1", "replay.episode: wanted a whole number of at least 0", "got -1"),
    ("tracking.enabled=maybe", "tracking.enabled: wanted true or false", "'maybe'"),
    ("tracking.experiment=''", "tracking.experiment: wanted the name", "''"),
    ("out=''", "out: wanted a folder", "''"),
    ("out=null", "out: wanted a folder", "null"),
    ("checkpoint=[1]", "checkpoint: wanted the folder of a checkpoint", "[1]"),
    ("ppo=3", "ppo: wanted one of default", "'3'"),
    ("+ppo={gama: 0.9}", "ppo.gama", "ppo.gamma"),
    ("pendulum", "wanted key=value; got 'pendulum'", "Nearest: env=pendulum"),
    ("ppo.gamma", "wanted key=value; got 'ppo.gamma'", "Nearest: ppo.gamma=<value>"),
    ("out=a=b", "wanted key=value; got 'out=a=b'", "quotes"),
    ("env.name=${nope}", "nope", "env.name"),
    ("hydra/launcher=jobib", "got 'hydra/launcher/jobib'", "hydra/launcher/joblib"),
    ("hydra.sweep.dri=x", "hydra.sweep.dri", "hydra.sweep.dri"),
]


@pytest.mark.parametrize(("override", "wanted", "named"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_a_mistake_is_one_line(override: str, wanted: str, named: str) -> None:
    with pytest.raises(UserError) as caught:
        config.check([override])
    text = str(caught.value)
    assert wanted in text
    assert named in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("override", "wanted", "named"),
    [
        ("env.id=''", "env.id: wanted an id that Gymnasium knows, or module:Class", "''"),
        ("env.kwargs=[1]", "env.kwargs: wanted null, or what the environment is made with", "[1]"),
        ("env.kwargs={1: 2}", "env.kwargs: wanted null, or what the environment is made with", "{1: 2}"),
        ("env.kwargs={a: nan}", "env.kwargs: wanted null, or what the environment is made with", "nan"),
        ("env.workers=-1", "env.workers: wanted a whole number of at least 0", "got -1"),
        ("env.timeout_s=0", "env.timeout_s: wanted a number above 0", "got 0"),
        ("env.max_episode_steps=0", "env.max_episode_steps: wanted a whole number of at least 1", "got 0"),
        ("env.normalize_reward=1", "env.normalize_reward: wanted true or false", "got 1"),
    ],
)
def test_a_mistake_about_a_host_is_one_line(override: str, wanted: str, named: str) -> None:
    with pytest.raises(UserError) as caught:
        config.check(["env=gymnasium", override])
    assert wanted in str(caught.value)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_an_environment_is_made_with_is_kept() -> None:
    loaded = config.load(["env=gymnasium", "env.kwargs={continuous: true, wind_power: 3.5}"])
    assert loaded.env.host["kwargs"] == {"continuous": True, "wind_power": 3.5}
    assert config.parse(config.to_dict(loaded)) == loaded


def test_each_value_of_a_sweep_is_checked() -> None:
    config.check(["seed=1,2", "env=cartpole,pendulum"], multirun=True)
    for override, wanted in (
        ("seed=1,2,abc", "'abc'"),
        ("ppo.num_minibatches=2,3", "got 3"),
        ("env=cartpole,pendulm", "Nearest: pendulum"),
        ("ppo.gamma=choice(0.9,1.1)", "1.1"),
        ("ppo.gamma=interval(0.9,1.1)", "1.1"),
        ("seed=range(-1,3)", "-1"),
        ("env=glob(x*)", "x*"),
    ):
        with pytest.raises(UserError, match="wanted") as caught:
            config.check([override], multirun=True)
        assert wanted in str(caught.value)


def test_each_section_checks_itself_and_cannot_be_changed(base: config.Config) -> None:
    with pytest.raises(UserError, match=r"ppo\.gamma: wanted a number from 0 to 1; got 2"):
        dataclasses.replace(base.ppo, gamma=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        base.ppo.gamma = 0.5  # type: ignore[misc]


def test_a_whole_number_is_a_float_where_one_is_meant() -> None:
    loaded = config.load(["ppo.gamma=1", "ppo.ent_coef=0"])
    assert isinstance(loaded.ppo.gamma, float)
    assert loaded == config.load(["ppo.gamma=1.0", "ppo.ent_coef=0.0"])


def test_plain_mappings_are_parsed_and_checked_like_composed_ones() -> None:
    loaded = config.load(["env=pendulum"])
    assert config.parse(config.to_dict(loaded)) == loaded
    content = config.to_dict(loaded)
    without = {key: value for key, value in content["ppo"].items() if key != "gamma"}
    with pytest.raises(UserError, match=r"ppo\.gamma: wanted a value; got none"):
        config.parse({**content, "ppo": without})
    with pytest.raises(UserError, match="ppo: wanted the keys"):
        config.parse({**content, "ppo": 3})
    with pytest.raises(UserError, match="evaluate: wanted a value"):
        config.parse({**content, "evaluate": "???"})


# ---------------------------------------------------------------------------------------------------------------------
# The hash
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override",
    ["out=x", "device.threads=2", "tracking.enabled=false", "evaluate.episodes=5", "validate.steps=5", "seeds=[4]"],
)
def test_the_hash_leaves_out_what_changes_no_training(base: config.Config, override: str) -> None:
    assert config.sha256(config.load(["device=cpu", override])) == config.sha256(base)


@pytest.mark.parametrize(
    ("env", "override"),
    [("gymnasium", "env.workers=2"), ("gymnasium", "env.timeout_s=5"), ("envpool", "env.threads=2")],
)
def test_how_an_environment_is_stepped_is_left_out(env: str, override: str) -> None:
    assert config.sha256(config.load([f"env={env}", override])) == config.sha256(config.load([f"env={env}"]))


@pytest.mark.parametrize(
    "override",
    [
        "env.id=Acrobot-v1", "env.kwargs={render_mode: rgb_array}", "env.max_episode_steps=7",
        "env.normalize_observation=true", "env.normalize_reward=true",
    ],
)  # fmt: skip
def test_the_hash_changes_with_what_a_host_is_asked_for(override: str) -> None:
    assert config.sha256(config.load(["env=gymnasium", override])) != config.sha256(config.load(["env=gymnasium"]))


HOSTS_OWN = {f"env.{item.name}" for kind in config.HOSTS.values() for item in dataclasses.fields(kind)}
DECISIVE = [
    key
    for key in config.KEYS
    if key not in HOSTS_OWN - {"env.name", "env.max_episode_steps"}
    and key.split(".")[0] in ("env", "policy", "ppo", "seed")
] + ["device.fused", "device.matmul"]


@pytest.mark.parametrize("key", DECISIVE)
def test_the_hash_changes_with_every_key_that_training_reads(base: config.Config, key: str) -> None:
    content = config.to_dict(base)
    section, _, name = key.partition(".")
    if not name and section != "seed":
        return
    holder = content[section] if name else content
    name = name or section
    other = {"cartpole": "pendulum", "tanh": "relu", "adam": "muon", "float32": "bf16"}
    old = holder[name]
    if isinstance(old, bool):
        holder[name] = not old
    elif isinstance(old, str):
        holder[name] = other[old]
    elif isinstance(old, list):
        holder[name] = [*old, 8]
    elif isinstance(old, dict):
        holder[name] = {"gravity": {"train": [9, 10], "held_out": [11, 12]}}
    else:
        holder[name] = old * 2 if isinstance(old, int) else math.nextafter(old, 2)
    assert config.sha256(config.parse(content)) != config.sha256(base)


# ---------------------------------------------------------------------------------------------------------------------
# Command lines
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["ppo.lr=1"], "train: wanted a key of the configuration; got 'ppo.lr'. Nearest: ppo.learning_rate"),
        (["seed=7"], "train: seed: wanted a lucky one; got 7"),
        (["--seed", "3"], "train: wanted key=value or a flag of Hydra's; got '--seed'. Nearest: seed=<value>"),
        (["--mutlirun"], "got '--mutlirun'. Nearest: --multirun"),
        (["--cfg"], "train: wanted a flag of Hydra's; argument --cfg/-c: expected one argument"),
        (["--config-dir", "nope"], "train: --config-dir: wanted a folder; got 'nope'"),
        (["--config-name", "nope"], "train: wanted a configuration file; got 'nope'"),
    ],
)
def test_a_mistake_on_the_command_line_ends_with_one_line_and_code_2(
    stage: Path, arguments: list[str], wanted: str
) -> None:
    done = run(stage, *arguments)
    assert done.returncode == 2
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1
    assert "ran" not in done.stdout


def test_a_run_writes_to_a_folder_of_its_own(stage: Path) -> None:
    done = run(stage, "seed=3")
    assert done.returncode == 0, done.stderr
    out = done.stdout.split()[3]
    assert Path(out).is_relative_to(stage.parent / "outputs")


def test_a_fault_of_ours_keeps_its_trace(stage: Path) -> None:
    done = run(stage, "seed=8")
    assert done.returncode == 1
    assert "a fault of ours" in done.stderr
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_sweep_ends_its_other_jobs_when_one_refuses(stage: Path, launcher: str) -> None:
    done = run(stage, "seed=6,7,9", "-m", "tracking.enabled=false", f"hydra/launcher={launcher}")
    assert done.returncode == 2, done.stderr
    jobs = sorted(line for line in done.stdout.splitlines() if line.startswith("ran"))
    assert [line.split()[1] for line in jobs] == ["6", "9"]
    assert len({line.split()[3] for line in jobs}) == 2
    assert done.stderr.splitlines()[-1] == "train: seed: wanted a lucky one; got 7"
    assert "Traceback" not in done.stderr


def test_hydras_own_flags_work(stage: Path) -> None:
    shown = run(stage, "--cfg", "job", "ppo.gamma=0.5")
    assert yaml.safe_load(shown.stdout)["ppo"]["gamma"] == 0.5
    helped = run(stage, "--help")
    assert helped.returncode == 0
    assert "cartpole" in helped.stdout


def test_a_composed_file_is_run_from_any_folder(stage: Path) -> None:
    composed = ["--config-dir", "build", "--config-name", "params", "hydra.run.dir=.", *QUIET]
    (stage.parent / "build").mkdir()
    (stage.parent / "build" / "params.yaml").write_text(compose.compose(["ppo.learning_rate=0.5"], [1, 2]))
    done = run(stage, *composed, "seed=2", "out=there", "checkpoint=here")
    assert done.stdout == "ran 2 0.5 there here\n", done.stderr
    assert not (stage.parent / "outputs").exists()
    for arguments, wanted in (
        (["env=pendulum", "out=x"], "Put it into `overrides` of params.yaml"),
        (["seed=2"], "out: wanted a value; got none. Give out=<value>"),
        (["out=x", "ppo.gamma=2"], "ppo.gamma: wanted a number from 0 to 1"),
    ):
        done = run(stage, *composed, *arguments)
        assert done.returncode == 2
        assert wanted in done.stderr
        assert done.stderr.count("\n") == 1


def test_evaluation_asks_for_its_checkpoint() -> None:
    with pytest.raises(UserError, match=r"checkpoint: wanted a value; got none\. Give checkpoint=<value>"):
        config.check([], required=config.REQUIRED["evaluate"])


# ---------------------------------------------------------------------------------------------------------------------
# The composed file
# ---------------------------------------------------------------------------------------------------------------------


def test_the_committed_composed_file_is_up_to_date() -> None:
    overrides, seeds = compose.read_params(ROOT / "params.yaml")
    assert (ROOT / "build/params.yaml").read_text() == compose.compose(overrides, seeds)


def test_the_composed_file_is_sorted_and_holds_nothing_that_a_stage_may_not_depend_on() -> None:
    text = compose.compose(["env=pendulum"], [4, 5])
    content = yaml.safe_load(text)
    assert list(content) == sorted(content)
    assert not {"hydra", "out", "checkpoint"} & set(content)
    assert "uri" not in content["tracking"]
    assert content["seeds"] == [4, 5]
    assert content["env"]["name"] == "pendulum"
    assert "${" not in text
    assert text == OmegaConf.to_yaml(OmegaConf.create(text), sort_keys=True)


@pytest.mark.parametrize(
    ("overrides", "seeds", "wanted"),
    [
        (["ppo.lr=1"], [1], "Nearest: ppo.learning_rate"),
        (["ppo.gamma=0.9,0.8"], [1], "several"),
        (["seed=4"], [1], "`seeds`"),
        (["out=x"], [1], "artifacts/"),
        (["tracking.uri=x"], [1], "MLFLOW_TRACKING_URI"),
        (["ppo.gamma=???"], [1], "ppo.gamma: wanted a value"),
        ([], [], "seeds: wanted a list of different"),
        ([], [1, "x"], "seeds: wanted a list of different"),
    ],
)
def test_a_mistake_in_params_yaml_is_refused(overrides: list[str], seeds: list[int], wanted: str) -> None:
    with pytest.raises(UserError) as caught:
        compose.compose(overrides, seeds)
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    "text", ["overrides: env=pendulum", "overrides: [{env: pendulum}]", "seeds: [1]", "- 1", "a: ["]
)
def test_a_params_yaml_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="wanted"):
        compose.read_params(path)
