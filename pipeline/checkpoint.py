"""Checkpoints: the tensors in a safetensors file, and a manifest that says what they are and proves them whole.

Both hold only what a second run would reproduce: no clock, no host, no path but the names of their own files.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

import envs
from envs import parameters
from envs.spec import EnvSpec
from kernels.errors import UserError
from pipeline import files, seeds
from pipeline.config import PolicyConfig, sha256_of

TENSORS, MANIFEST = "checkpoint.safetensors", "checkpoint.json"
FORMAT = 1
_REQUIRED = (
    "format", "sha256", "params_sha256", "initial_params_sha256", "step", "policy_version", "config", "config_sha256",
    "env_spec", "env_spec_sha256", "seeds", "path", "parent", "manifest_sha256",
)  # fmt: skip
_REQUIRED_TENSORS = ("parameters", "env.episode_seed", "env.episode_index")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `tensors` on the CPU, `manifest` as in checkpoint.json."""

    manifest: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def parameters_sha256(parameters: Tensor) -> str:
    """SHA-256 of the flat parameters' bytes alone, little-endian float32."""
    return hashlib.sha256(parameters.detach().cpu().numpy().astype("<f4").tobytes()).hexdigest()


def encode(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return bytes(safetensors.save(content, dict(metadata) if metadata else None))


def save(folder: Path, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Writes both files, the manifest last, and returns the manifest with the hashes in it."""
    content = encode(tensors)
    whole = {
        **manifest,
        "format": FORMAT,
        "sha256": hashlib.sha256(content).hexdigest(),
        "params_sha256": parameters_sha256(tensors["parameters"]),
    }
    whole["manifest_sha256"] = sha256_of(whole)
    files.write(folder / TENSORS, content)
    files.write_json(folder / MANIFEST, whole)
    return whole


def load(folder: Path) -> Checkpoint:
    """Reads and verifies a checkpoint: its manifest is whole, tensors and training seeds are the ones that it names.

    Raises:
        UserError: what was expected and what was found, in one line.
    """
    manifest = _read_manifest(folder)
    path = folder / TENSORS
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"checkpoint: wanted {path}; {error.strerror}. {_MEND}") from error
    _expect(f"{path} to have SHA-256", manifest["sha256"], hashlib.sha256(content).hexdigest())
    try:
        tensors = safetensors.load(content)
    except SafetensorError as error:
        raise UserError(f"checkpoint: wanted a safetensors file; {path}: {error}. {_MEND}") from error
    if missing := [name for name in _REQUIRED_TENSORS if name not in tensors]:
        raise UserError(
            f"checkpoint: wanted the tensors {', '.join(_REQUIRED_TENSORS)}; {path} lacks {missing[0]}. {_MEND}"
        )
    _expect(
        f"the parameters in {path} to have SHA-256", manifest["params_sha256"], parameters_sha256(tensors["parameters"])
    )
    seeds.prove_training(
        int(manifest["config"]["seed"]), manifest["seeds"], tensors, manifest["env_spec"].get("agents", 1)
    )
    # Last, since it only says that something changed; what can be told apart was told above.
    others = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    _expect(
        f"the other keys of {folder / MANIFEST} to have manifest_sha256", manifest["manifest_sha256"], sha256_of(others)
    )
    return Checkpoint(manifest, tensors)


def expect_environment(manifest: Mapping[str, Any], spec: EnvSpec, transfer: bool = False) -> None:
    """Raises UserError where the checkpoint was trained on another environment than `spec`.

    Args:
        transfer: it may have been trained under other ranges of parameters, or none, if the held-out ones of `spec`
            have no value in common with what it was trained on.
    """
    found = manifest["env_spec"]
    if manifest["env_spec_sha256"] == spec.sha256():
        return
    name, ranges = found.get("name"), found.get("parameters")
    if name == spec.name and spec.fields().get("parameters") != ranges:
        if not transfer:
            wanted = spec.fields().get("parameters", "none")
            raise UserError(
                f"checkpoint: wanted one trained with the env.parameters {wanted}; it was trained with "
                f"{ranges or 'none'}. Give env.parameters as it was trained, or evaluate.transfer=true to see how it "
                "does with others"
            )
        trained = envs.spec(name, spec.max_episode_steps, ranges)
        expect_environment(manifest, trained)
        parameters.expect_unseen(spec, trained)
        return
    if name != spec.name:
        own = manifest["config"]["env"]
        choice = f"env={own['name']} env.id={own['id']}" if "id" in own else f"env={name}"
        raise UserError(
            f"checkpoint: wanted one of environment {spec.name!r}; it was trained on {name!r}. "
            f"Give {choice}, or the checkpoint of a training on {spec.name}"
        )
    wanted = spec.fields()
    differing = next((key for key in wanted if wanted[key] != found.get(key)), None)
    what = f"{differing} {wanted[differing]}; it was trained with {found.get(differing)}" if differing else (
        f"the dynamics of SHA-256 {spec.sha256()[:12]}; it was trained with {manifest['env_spec_sha256'][:12]}"
    )  # fmt: skip
    raise UserError(f"checkpoint: wanted one of {spec.name} with {what}. Train it again on this environment")


_MEND = "Restore it (`dvc checkout`), or train again"


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"checkpoint: wanted a folder with {MANIFEST}; {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"checkpoint: wanted JSON; {path}: {error}. {_MEND}") from error
    missing = [key for key in _REQUIRED if not isinstance(manifest, dict) or key not in manifest]
    if missing:
        raise UserError(
            f"checkpoint: wanted the keys {', '.join(_REQUIRED)}; {path} lacks {', '.join(missing)}. {_MEND}"
        )
    if manifest["format"] != FORMAT:
        raise UserError(f"checkpoint: wanted format {FORMAT}; {path} has {manifest['format']!r}. Train again")
    _expect(f"config_sha256 of {path}", sha256_of(manifest["config"]), manifest["config_sha256"])
    try:
        PolicyConfig(**manifest["config"]["policy"])
        well_formed = isinstance(manifest["config"]["seed"], int) and isinstance(manifest["env_spec"], dict)
    except (TypeError, KeyError, IndexError):
        well_formed = False
    if not well_formed:
        raise UserError(
            "checkpoint: wanted config.policy, config.seed and env_spec as a training writes them; "
            f"{path} has them in another form. {_MEND}"
        )
    return manifest


def _expect(what: str, wanted: str, found: str) -> None:
    if wanted != found:
        raise UserError(f"checkpoint: expected {what} {wanted}; found {found}. {_MEND}")
