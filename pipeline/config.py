"""The configuration: frozen dataclasses that check every value, and the way from a command line to them.

`conf/` holds the values and one line about each key; here are only types and ranges. A mistake in a value, a key, a
group's option or a flag is a `UserError` of one line: what was wanted, what came, the nearest valid name.
"""

import difflib
import hashlib
import importlib
import json
import math
import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override
from hydra.errors import CompactHydraException, HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from kernels.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
HYDRA_VERSION = "1.3"

# ---------------------------------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------------------------------


def near(name: str, options: Sequence[str], count: int = 3) -> list[str]:
    """The options most like `name`, best first: by spelling, by their last part or its initials (lr: learning_rate)."""
    tail = name.lower().rsplit(".", 1)[-1]

    def likeness(option: str) -> float:
        option_tail = option.lower().rsplit(".", 1)[-1]
        initials = "".join(word[:1] for word in option_tail.split("_"))
        if tail in (option_tail, initials) or option_tail.startswith(tail):
            return 1.0
        if len(tail) > 2 and f"_{tail}" in f"_{option_tail}":
            return 0.9
        spelling = difflib.SequenceMatcher(None, name.lower(), option.lower()).ratio()
        return max(spelling, difflib.SequenceMatcher(None, tail, option_tail).ratio())

    ranked = sorted(options, key=lambda option: (-likeness(option), not _same_section(name, option), option))
    return [option for option in ranked if likeness(option) >= 0.7][:count]


def _same_section(name: str, option: str) -> bool:
    return "." in name and name.split(".")[0] == option.split(".")[0]


def _refuse(key: str, wanted: str, value: object, hint: str = "") -> NoReturn:
    got = str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(value)
    raise UserError(f"{key}: wanted {wanted}; got {got}{'. ' + hint if hint else ''}")


def _field(check: Callable[[str, Any], Any], **options: Any) -> Any:
    return field(metadata={"check": check}, **options)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(minimum: int, below: int | None = None) -> Any:
    def check(key: str, value: Any) -> int:
        if not _is_whole(value) or value < minimum or (below is not None and value >= below):
            span = f"a whole number of at least {minimum}" + (f" and below {below}" if below else "")
            hint = f"Write {int(value)}" if isinstance(value, float) and value.is_integer() else ""
            _refuse(key, span, value, hint)
        return int(value)

    return _field(check)


def _optional_whole(minimum: int, below: int | None = None) -> Any:
    whole = _whole(minimum, below).metadata["check"]
    return _field(lambda key, value: None if value is None else whole(key, value), default=None)


_LARGEST = 3.4e38  # about what 32 bits hold, which the kernels compute in


def _real(wanted: str, accept: Callable[[float], bool] = lambda value: True) -> Any:
    def check(key: str, value: Any) -> float:
        try:
            number = float(value) if _is_whole(value) or isinstance(value, float) else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or not accept(number):
            _refuse(key, wanted, value)
        if abs(number) > _LARGEST:
            _refuse(key, f"{wanted}, of a size up to {_LARGEST:g}", value)
        return number

    return _field(check)


def _positive() -> Any:
    return _real("a number above 0", lambda value: value > 0)


def _not_negative() -> Any:
    return _real("a number of at least 0", lambda value: value >= 0)


def _fraction() -> Any:
    return _real("a number from 0 to 1", lambda value: 0 <= value <= 1)


def _flag() -> Any:
    def check(key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            _refuse(key, "true or false", value)
        return bool(value)

    return _field(check)


def _text(wanted: str, optional: bool = False) -> Any:
    def check(key: str, value: Any) -> str | None:
        if optional and value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            _refuse(key, wanted, value)
        return str(value)

    return _field(check, default=None) if optional else _field(check)


def _keywords(wanted: str) -> Any:
    def check(key: str, value: Any) -> dict[str, Any]:
        try:
            text = json.dumps({} if value is None else value, allow_nan=False)
        except (TypeError, ValueError):
            text = ""
        if not text.startswith("{") or not all(isinstance(each, str) and each.isidentifier() for each in value or ()):
            _refuse(key, wanted, value)
        return dict(value or {})

    return _field(check, default=None)


def _one_of(options: Callable[[], Sequence[str]]) -> Any:
    def check(key: str, value: Any) -> str:
        if value not in options():
            _refuse(key, f"one of {', '.join(options())}", value, _nearest(value, options()))
        return str(value)

    return _field(check)


def _nearest(value: object, options: Sequence[str]) -> str:
    found = near(value, options) if isinstance(value, str) else []
    return f"Nearest: {', '.join(found)}" if found else ""


def _wholes(minimum: int, wanted: str, distinct: bool = False) -> Any:
    def check(key: str, value: Any) -> tuple[int, ...]:
        right = isinstance(value, list | tuple) and value and all(_is_whole(each) and each >= minimum for each in value)
        if not right or (distinct and len(set(value)) < len(value)):
            _refuse(key, wanted, list(value) if isinstance(value, list | tuple) else value)
        return tuple(value)

    return _field(check)


class _Section:
    """Checks every field of a frozen dataclass when it is made; a whole number becomes a float where one is meant."""

    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            if check := item.metadata.get("check"):
                object.__setattr__(self, item.name, check(self.prefix + item.name, getattr(self, item.name)))


# ---------------------------------------------------------------------------------------------------------------------
# The dataclasses; conf/ says what each key means
# ---------------------------------------------------------------------------------------------------------------------


def group_options(group: str) -> list[str]:
    """The options of a group of conf/, sorted: the names of its files."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@dataclass(frozen=True)
class EnvConfig(_Section):
    prefix: ClassVar[str] = "env."
    name: str = _one_of(lambda: group_options("env"))
    max_episode_steps: int | None = _whole(1, below=2**31)  # the kernels count in 32 bits

    @property
    def title(self) -> str:
        """What the environment is called where people read it."""
        return self.name

    @property
    def host(self) -> dict[str, Any]:
        """What `envs.spec` has to know beside name and time limit."""
        return {}

    @property
    def normalized(self) -> tuple[str, ...]:
        """What the training sees normalized: observation, reward."""
        return ()

    @property
    def indecisive(self) -> tuple[str, ...]:
        """Keys that change no result."""
        return ()

    @property
    def reward_limit(self) -> float | None:
        """The size that rewards are clipped to in training; None: as they are."""
        return None

    @property
    def frames_a_step(self) -> int | None:
        """Frames that an emulator makes a step, at most; None where there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class NativeConfig(EnvConfig):
    parameters: Mapping[str, Any] = _keywords("null, or ranges such as {gravity: {train: [9, 10], held_out: [11, 12]}}")

    @property
    def host(self) -> dict[str, Any]:
        return {"parameters": self.parameters} if self.parameters else {}

    @property
    def indecisive(self) -> tuple[str, ...]:
        return () if self.parameters else ("parameters",)


@dataclass(frozen=True, kw_only=True)
class HostConfig(EnvConfig):
    max_episode_steps: int | None = _optional_whole(1, below=2**31)
    id: str = _text("an id that the adapter knows")
    kwargs: Mapping[str, Any] = _keywords("null, or what the environment is made with, such as {continuous: true}")
    normalize_observation: bool = _flag()
    normalize_reward: bool = _flag()

    @property
    def title(self) -> str:
        return self.id

    @property
    def host(self) -> dict[str, Any]:
        return {"id": self.id, "kwargs": self.kwargs, **{key: getattr(self, key) for key in self.indecisive}}

    @property
    def normalized(self) -> tuple[str, ...]:
        wanted = {"observation": self.normalize_observation, "reward": self.normalize_reward}
        return tuple(name for name, chosen in wanted.items() if chosen)


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(HostConfig):
    id: str = _text("an id that Gymnasium knows, or module:Class")
    workers: int | None = _optional_whole(0, below=1024)
    timeout_s: float = _positive()

    @property
    def indecisive(self) -> tuple[str, ...]:
        return "workers", "timeout_s"


@dataclass(frozen=True, kw_only=True)
class EnvPoolConfig(HostConfig):
    id: str = _text("an id that EnvPool knows")
    threads: int | None = _optional_whole(1, below=1024)

    @property
    def indecisive(self) -> tuple[str, ...]:
        return ("threads",)


@dataclass(frozen=True, kw_only=True)
class AtariConfig(GymnasiumConfig):
    id: str = _text("an id of ale-py's, such as ALE/Pong-v5")
    noop_max: int = _whole(0, below=1000)
    frame_skip: int = _whole(1, below=1000)
    sticky: float = _fraction()
    clip_reward: bool = _flag()

    @property
    def host(self) -> dict[str, Any]:
        return {**super().host, **{key: getattr(self, key) for key in ("noop_max", "frame_skip", "sticky")}}

    @property
    def reward_limit(self) -> float | None:
        return 1.0 if self.clip_reward else None

    @property
    def frames_a_step(self) -> int | None:
        return self.frame_skip


@dataclass(frozen=True, kw_only=True)
class WorldConfig(GymnasiumConfig):
    id: str = _text("a module with a function parallel_env, or module:function")


@dataclass(frozen=True)
class PolicyConfig(_Section):
    prefix: ClassVar[str] = "policy."
    hidden: tuple[int, ...] = _wholes(1, "a list of widths, each a whole number of at least 1")
    activation: str = _one_of(lambda: ["tanh", "relu"])
    shared: bool = _flag()
    log_std_init: float = _real("a number")


@dataclass(frozen=True)
class PPOConfig(_Section):
    prefix: ClassVar[str] = "ppo."
    total_steps: int = _whole(1)
    num_envs: int = _whole(1)
    num_steps: int = _whole(1)
    num_minibatches: int = _whole(1)
    update_epochs: int = _whole(1, below=2**31)
    optimizer: str = _one_of(lambda: ["adam", "muon"])
    learning_rate: float = _positive()
    anneal_lr: bool = _flag()
    gamma: float = _fraction()
    gae_lambda: float = _fraction()
    clip_coef: float = _positive()
    norm_adv: bool = _flag()
    ent_coef: float = _not_negative()
    vf_coef: float = _not_negative()
    max_grad_norm: float = _positive()

    @property
    def batch_size(self) -> int:
        """Samples of one iteration, N * T."""
        return self.num_envs * self.num_steps

    @property
    def minibatch_size(self) -> int:
        return self.batch_size // self.num_minibatches

    def __post_init__(self) -> None:
        super().__post_init__()
        batch = f"num_envs * num_steps = {self.num_envs} * {self.num_steps} = {self.batch_size}"
        if self.batch_size >= 2**31:
            _refuse("ppo.num_envs", "num_envs * num_steps below 2147483648", self.batch_size)
        if self.batch_size % self.num_minibatches:
            small = [n for n in range(1, math.isqrt(self.batch_size) + 1) if self.batch_size % n == 0]
            divisors = {*small, *(self.batch_size // n for n in small)}
            nearest = sorted(sorted(divisors, key=lambda n: abs(n - self.num_minibatches))[:2])
            hint = f"Nearest: {', '.join(map(str, nearest))}"
            _refuse("ppo.num_minibatches", f"a divisor of {batch}", self.num_minibatches, hint)
        if self.total_steps < self.batch_size:
            _refuse("ppo.total_steps", f"at least one iteration of {batch} steps", self.total_steps)


@dataclass(frozen=True)
class DeviceConfig(_Section):
    prefix: ClassVar[str] = "device."
    name: str = _one_of(lambda: group_options("device"))
    threads: int = _whole(0, below=1024)
    fused: bool = _flag()
    matmul: str = _one_of(lambda: ["float32", "tf32", "bf16"])

    def resolve(self) -> str:
        """The type of the device that training runs on, cpu or cuda. UserError: cuda without a CUDA device."""
        if self.name in ("cpu", "emulated"):
            return "cpu"
        import torch  # seconds to import, and most of this module's users need none of it

        if torch.cuda.is_available():
            return "cuda"
        if self.name == "cuda":
            _refuse("device", "a CUDA device", "none that torch can use", "Use device=cpu or device=auto")
        return "cpu"


@dataclass(frozen=True)
class EvaluateConfig(_Section):
    prefix: ClassVar[str] = "evaluate."
    episodes: int = _whole(1)
    split: str = _one_of(lambda: ["held_out", "selection"])
    deterministic: bool = _flag()
    transfer: bool = _flag()


@dataclass(frozen=True)
class ReplayConfig(_Section):
    prefix: ClassVar[str] = "replay."
    split: str = _one_of(lambda: ["held_out", "selection", "train"])
    episode: int = _whole(0)
    render: bool = _flag()
    environment: int | None = _optional_whole(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.split == "train") != (self.environment is not None):
            wanted = "one with replay.split=train, to count its episodes in" if self.split == "train" else (
                "null: only replay.split=train has environments"
            )  # fmt: skip
            _refuse("replay.environment", wanted, self.environment)


@dataclass(frozen=True)
class ValidateConfig(_Section):
    prefix: ClassVar[str] = "validate."
    num_envs: int = _whole(1)
    steps: int = _whole(1)
    strict: bool = _flag()


@dataclass(frozen=True)
class TrackingConfig(_Section):
    prefix: ClassVar[str] = "tracking."
    enabled: bool = _flag()
    experiment: str = _text("the name of an MLflow experiment")
    uri: str | None = _text("the address of an MLflow store, or null", optional=True)


@dataclass(frozen=True)
class Config(_Section):
    env: EnvConfig
    policy: PolicyConfig
    ppo: PPOConfig
    device: DeviceConfig
    evaluate: EvaluateConfig
    replay: ReplayConfig
    validate: ValidateConfig
    tracking: TrackingConfig
    seed: int = _whole(0, below=2**63)
    seeds: tuple[int, ...] = _wholes(0, "a list of different training seeds, each a whole number of at least 0", True)
    out: str = _text("a folder to write to")
    checkpoint: str | None = _text("the folder of a checkpoint, or null", optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ppo.optimizer == "muon" and len(self.policy.hidden) < 2:
            hint = "Give policy.hidden two layers or more: Muon steps the matrices between them"
            _refuse("ppo.optimizer", "adam, for a single hidden layer", self.ppo.optimizer, hint)


SECTIONS: dict[str, Any] = {
    "env": NativeConfig,
    "policy": PolicyConfig,
    "ppo": PPOConfig,
    "device": DeviceConfig,
    "evaluate": EvaluateConfig,
    "replay": ReplayConfig,
    "validate": ValidateConfig,
    "tracking": TrackingConfig,
}


# Environments of others have keys beside those of `EnvConfig`.
HOSTS: dict[str, Any] = {
    "gymnasium": GymnasiumConfig,
    "atari": AtariConfig,
    "envpool": EnvPoolConfig,
    "pettingzoo": WorldConfig,
}


def _kind(section: str, content: object) -> Any:
    """The dataclass of a section; that of an environment follows from its name."""
    name = content.get("name") if isinstance(content, Mapping) else None
    return HOSTS[name] if section == "env" and name in HOSTS else SECTIONS[section]


def _keys() -> Iterator[str]:
    for item in fields(Config):
        yield item.name
        if item.name in SECTIONS:
            yield from (f"{item.name}.{each.name}" for each in fields(SECTIONS[item.name]))
    usual = {each.name for each in fields(EnvConfig)}
    yield from (f"env.{each.name}" for kind in HOSTS.values() for each in fields(kind) if each.name not in usual)


KEYS: tuple[str, ...] = tuple(dict.fromkeys(_keys()))
GROUPS: tuple[str, ...] = tuple(sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"))
NAMES: tuple[str, ...] = tuple(dict.fromkeys((*KEYS, *GROUPS)))


def _unknown(key: str) -> UserError:
    """The refusal of a key: the nearest keys, else those of its section, else the sections and the keys beside them."""
    section = key.split(".")[0] + "."
    family = [each for each in KEYS if each.startswith(section)] or [each for each in NAMES if "." not in each]
    found = near(key, NAMES)
    hint = f"Nearest: {', '.join(found)}" if found else f"Valid: {', '.join(family)}"
    return UserError(f"wanted a key of the configuration; got {key!r}. {hint}")


def parse(node: DictConfig | Mapping[str, Any]) -> Config:
    """The checked configuration in `node`, a composed configuration or plain nested mappings. Raises UserError."""
    try:
        content = OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else node
    except OmegaConfBaseException as error:
        raise UserError(_one_line(error)) from error
    assert isinstance(content, Mapping)
    config = _build(Config, {key: value for key, value in content.items() if key != "hydra"}, "")
    assert isinstance(config, Config)
    return config


def _build(kind: Any, content: object, prefix: str) -> Any:
    names = {item.name: item for item in fields(kind)}
    if not isinstance(content, Mapping):
        _refuse(prefix[:-1], f"the keys {', '.join(names)}", content)
    for key in content:
        if key not in names:
            raise _unknown(f"{prefix}{key}")
    values = {}
    for name, item in names.items():
        value = content.get(name, MISSING if item.default is MISSING else item.default)
        if value is MISSING or value == "???":
            raise UserError(f"{prefix}{name}: wanted a value; got none. Give {prefix}{name}=<value>")
        if kind is Config and name in SECTIONS:
            value = _build(_kind(name, value), value, f"{name}.")
        values[name] = value
    return kind(**values)


def to_dict(config: Any) -> dict[str, Any]:
    """The configuration, or one of its sections, as plain nested dicts and lists that JSON and `parse` take."""
    content = json.loads(json.dumps(asdict(config)))
    assert isinstance(content, dict)
    return content


def decisive(config: Config) -> dict[str, Any]:
    """Every key that can change what training makes, as plain nested values, the device resolved."""
    content = to_dict(config)
    path = {"device": config.device.resolve(), "fused": config.device.fused, "matmul": config.device.matmul}
    for key in config.env.indecisive:
        del content["env"][key]
    return {key: content[key] for key in ("env", "policy", "ppo", "seed")} | path


def sha256_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of canonical JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sha256(config: Config) -> str:
    """The hash of what training follows from: `sha256_of(decisive(config))`."""
    return sha256_of(decisive(config))


# ---------------------------------------------------------------------------------------------------------------------
# Composition
# ---------------------------------------------------------------------------------------------------------------------


def compose(overrides: Sequence[str], config_name: str = "config", config_dir: Path | None = None) -> DictConfig:
    """Hydra's composition of conf/ with `overrides`, without the `hydra` node. Raises UserError."""
    folders = [CONF] if config_dir is None else [CONF, config_dir.resolve()]
    # Hydra finds the first file only in its own folder, so the one that holds it comes first.
    folders.sort(key=lambda folder: not _config_file(config_name, folder).is_file())
    quoted = [str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in folders]
    search = [f"hydra.searchpath=['file://{folder}']" for folder in quoted[1:]]
    try:
        with hydra.initialize_config_dir(str(folders[0]), version_base=HYDRA_VERSION):
            return hydra.compose(config_name, [*overrides, *search])
    except MissingConfigException as error:
        wanted = error.missing_cfg_file or config_name
        options = [f"{wanted.rpartition('/')[0]}/{option}".lstrip("/") for option in error.options or []]
        hint = f". Valid: {', '.join(near(wanted, options) or options)}" if options else ""
        raise UserError(f"wanted a configuration file; got {wanted!r}{hint}") from error
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        if (found := re.match(r"Could not override '(env\.\w+)'", str(error))) and found[1] in KEYS:
            having = " or ".join(f"env={name}" for name in group_options("env") if _has_key(name, found[1]))
            raise UserError(f"{found[1]}: wanted {having} with it; other environments have no such key") from error
        raise UserError(_one_line(error)) from error


def _has_key(env: str, key: str) -> bool:
    return OmegaConf.select(OmegaConf.load(CONF / "env" / f"{env}.yaml"), key, default=MISSING) is not MISSING


def _config_file(name: str, folder: Path) -> Path:
    return folder / f"{name.removesuffix('.yaml')}.yaml"


def load(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration of conf/ with `overrides`, as on a command line; `out` is "." if not given."""
    return next(_checked(_named(overrides, None, False), "config", None))


def _parse_ahead(node: DictConfig) -> Config:
    """`parse` where no Hydra run has named its folder yet."""
    if "out" in node and OmegaConf.is_interpolation(node, "out"):
        node.out = "."
    return parse(node)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


# ---------------------------------------------------------------------------------------------------------------------
# Checks of a command line, before Hydra sees it
# ---------------------------------------------------------------------------------------------------------------------


def check(
    overrides: Sequence[str],
    multirun: bool = False,
    config_name: str = "config",
    config_dir: Path | None = None,
    required: Sequence[str] = (),
) -> list[str]:
    """Check overrides: their names, then each value by composing it (in a sweep: each value, one at a time).

    Returns the overrides to run with: a composed file leaves out keys such as `out`, so there they are added, not
    changed. Raises UserError.
    """
    flat = _flat_file(config_name, config_dir)
    overrides = [f"++{each}" if flat and _is_absent(each, flat) else each for each in overrides]
    multirun = multirun or "hydra.mode=MULTIRUN" in overrides
    parsed = _named(overrides, flat, multirun)
    # A composed file's single run checks its values when it parses them: composing twice would cost half a second.
    if multirun or not flat:
        for config in _checked(parsed, config_name, config_dir):
            _require(config, required)
    return list(overrides)


def _named(overrides: Sequence[str], flat: Path | None, multirun: bool) -> list[Override]:
    """The parsed overrides, their keys, options and number of values checked."""
    parsed = [_parse_override(each) for each in overrides]
    for override in parsed:
        _check_name(override, flat)
        if override.is_hydra_override() or not override.is_sweep_override():
            continue
        if not multirun:
            raise UserError(f"{override.input_line}: wanted one value; got several. Add -m to run a sweep over them")
        if not _values(override):
            raise UserError(f"{override.input_line}: wanted one value or more; got none")
    return parsed


def _checked(parsed: Sequence[Override], config_name: str, config_dir: Path | None) -> Iterator[Config]:
    for line in _one_at_a_time([_values(override) for override in parsed]):
        yield _parse_ahead(compose(line, config_name, config_dir))


def _flat_file(config_name: str, config_dir: Path | None) -> Path | None:
    """The file that the command line names, where it is a composed one: it has no defaults list, so no groups."""
    paths = [_config_file(config_name, folder) for folder in (CONF, config_dir) if folder]
    path = next((path for path in paths if path.is_file()), None)
    return None if path is None or "defaults" in OmegaConf.load(path) else path


def _is_absent(override: str, flat: Path) -> bool:
    key, equals, _ = override.partition("=")
    return bool(equals) and key in KEYS and OmegaConf.select(OmegaConf.load(flat), key, default=MISSING) is MISSING


def _parse_override(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        choices = [f"{group}={option}" for group in GROUPS for option in group_options(group)]
        found = [f"{key}=<value>" for key in near(text, KEYS)] if text in KEYS else near(f"x.{text}", choices)
        key, equals, value = text.partition("=")
        if equals and text != (trimmed := f"{key.strip()}={value.strip()}"):
            hint = f"Write {trimmed}, without spaces around ="
        elif equals:
            hint = f"Put quotes around a value with special characters: \"{key}='{value}'\""
        else:
            hint = f"Nearest: {', '.join(found)}" if found else f"Valid keys: {', '.join(KEYS)}"
        raise UserError(f"wanted key=value; got {text!r}. {hint}") from error


def _check_name(override: Override, flat: Path | None) -> None:
    key = override.key_or_group
    if override.is_hydra_override() or (override.package and key in GROUPS):
        return
    if key not in NAMES:
        raise _unknown(key)
    if key not in GROUPS or isinstance(override.value(), dict):
        return
    if flat:
        raise UserError(
            f"{override.input_line}: wanted a single key, since {flat.name} is composed already; got a group's option. "
            f"Put it into `overrides` of params.yaml, or leave out --config-dir and --config-name"
        )
    options = [*group_options(key), *(["null"] if key == "experiment" else [])]
    for text in _value_texts(override):
        if text.startswith("[") and key != "experiment":
            _refuse(key, "one option", text, "Hydra would let the last one win; for a sweep give them without brackets")
        for option in text.strip("[]").split(","):
            if option not in options:
                _refuse(key, f"one of {', '.join(options)}", option, _nearest(option, options))


def _value_texts(override: Override) -> list[str]:
    """Every value that an override sets, as text: one, or those of a sweep (the ends of an interval)."""
    swept = override.value()
    if override.is_delete():
        return []
    if isinstance(swept, IntervalSweep):
        return [str(swept.start), str(swept.end)]
    if isinstance(swept, Glob):
        return swept.filter(group_options(override.key_or_group))
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]


def _values(override: Override) -> list[str]:
    if override.is_hydra_override() or not override.is_sweep_override():
        return [str(override.input_line)]
    return [f"{override.get_key_element()}={text}" for text in _value_texts(override)]


def _one_at_a_time(values: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """The first value of each, then every other value beside the first ones of the rest: not the whole product."""
    first = [each[0] for each in values]
    yield first
    for index, each in enumerate(values):
        for other in each[1:]:
            yield [*first[:index], other, *first[index + 1 :]]


# ---------------------------------------------------------------------------------------------------------------------
# A stage's command line
# ---------------------------------------------------------------------------------------------------------------------

# Keys that have no default and that only these stages need.
REQUIRED: dict[str, tuple[str, ...]] = {"evaluate": ("checkpoint",), "replay": ("checkpoint",)}


def main(stage: str, run: Callable[[Config], None]) -> None:
    """Run a stage as its command line says, once or as a sweep (-m). A UserError: one line and exit code 2."""
    # Hydra would cut the trace of a fault and print two more lines with a user's mistake.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    required = REQUIRED.get(stage, ())

    begun = False

    def job(node: DictConfig) -> None:
        nonlocal begun
        begun = True
        try:
            with expect_memory():
                config = parse(node)
                _require(config, required)
                run(config)
        except UserError as error:
            # Raised to Hydra, it would be led in by a line of Hydra's; a sweep needs that: its other jobs still run.
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            fail(stage, error)

    job.__module__ = f"pipeline.{stage}"  # Hydra names the job after it
    # A sweep's worker processes import the stage: what stands in __main__ would be sent to them by value.
    started = getattr(sys.modules["__main__"], "__spec__", None)  # of python -m
    if started and started.name == job.__module__:
        run = getattr(importlib.import_module(started.name), run.__name__)
    try:
        sys.argv[1:] = _check_arguments(sys.argv[1:], required)
        hydra.main(version_base=HYDRA_VERSION, config_path=str(CONF), config_name="config")(job)()
    except UserError as error:
        fail(stage, error)
    except CompactHydraException as error:
        fail(stage, UserError(_one_line(error)))
    except OSError as error:
        if begun:
            raise
        wanted = "hydra.run.dir (with -m hydra.sweep.dir): wanted a folder to write to"
        fail(stage, UserError(f"{wanted}; {error.filename}: {error.strerror}. Start in another folder, or give one"))


@contextmanager
def expect_memory() -> Iterator[None]:
    """Makes a lack of memory, which NumPy and torch report in their own ways, a user's mistake."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = _one_line(error)
        if not isinstance(error, MemoryError) and not re.search("allocate memory|out of memory", text):
            raise
        hint = "Give smaller ppo.num_envs, ppo.num_steps, policy.hidden, validate.num_envs or validate.steps"
        raise UserError(f"wanted memory for this configuration; {text.split(': ')[-1][:150]}. {hint}") from error


def fail(stage: str, error: UserError) -> NoReturn:
    """Print a user's mistake and exit with code 2."""
    print(f"{stage}: {error}", file=sys.stderr)
    sys.exit(2)


def _require(config: Config, required: Sequence[str]) -> None:
    for key in required:
        if getattr(config, key) is None:
            raise UserError(f"{key}: wanted a value; got none. Give {key}=<value>")


def _check_arguments(arguments: Sequence[str], required: Sequence[str]) -> list[str]:
    """Check flags and overrides; returns the arguments with the overrides last, where Hydra takes them all."""
    parser: ArgumentParser = get_args_parser()
    flags = [text for action in parser._actions for text in action.option_strings]
    parser.error = _refuse_arguments(arguments, flags)  # type: ignore[assignment, method-assign]
    given = parser.parse_intermixed_args(list(arguments))
    overrides = list(given.overrides)
    rest = list(arguments)
    for override in overrides:
        rest.remove(override)
    if given.help or given.hydra_help or given.shell_completion or given.info or given.experimental_rerun:
        return [*rest, *overrides]
    if given.config_path:
        return [*rest, *overrides]  # another tree than conf/: Hydra's own checks, and those of every value, remain
    config_dir = Path(given.config_dir) if given.config_dir else None
    if config_dir and not config_dir.is_dir():
        _refuse("--config-dir", "a folder", given.config_dir)
    return [*rest, *check(overrides, given.multirun, given.config_name or "config", config_dir, required)]


def _refuse_arguments(arguments: Sequence[str], flags: Sequence[str]) -> Callable[[str], NoReturn]:
    def refuse(message: str) -> NoReturn:
        for argument in arguments:
            name = argument.split("=")[0]
            if name.startswith("-") and name not in flags:
                keys = [f"{key}=<value>" for key in near(name.lstrip("-").replace("-", "_"), NAMES)]
                options = [*keys, *near(name, flags)]
                hint = f"Nearest: {', '.join(dict.fromkeys(options))}" if options else "See --help"
                raise UserError(f"wanted key=value or a flag of Hydra's; got {argument!r}. {hint}")
        raise UserError(f"wanted a flag of Hydra's; {message}. See --help")

    return refuse
