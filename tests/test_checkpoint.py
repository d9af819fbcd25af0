"""Checkpoints: every change in either file is seen and told in one line, and nothing is overwritten."""

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors
from torch import Tensor
from training import faulty, small

import envs
from kernels.errors import UserError
from pipeline import checkpoint as product
from pipeline import evaluate, files, provenance, train
from pipeline.config import sha256_of

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "CHECKOUT", folder)
        train.run(small(folder / "out"))
    return folder / "out"


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(trained, tmp_path / "checkpoint"))


def refused(folder: Path, *words: str, module: ModuleType = product) -> str:
    """The line that a checkpoint is refused with. Reading changes nothing."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UserError) as error:
        module.load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text
    return text


def edit(folder: Path, change: Change) -> None:
    path = folder / product.MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def resave(folder: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], object]) -> None:
    """A change that someone hid: all hashes are made right again."""
    loaded = product.load(folder)
    tensors = {name: tensor.clone() for name, tensor in loaded.tensors.items()}
    manifest = json.loads(json.dumps({k: v for k, v in loaded.manifest.items() if k != "manifest_sha256"}))
    change(tensors, manifest)
    product.save(folder, tensors, manifest)


def test_a_checkpoint_comes_back(trained: Path) -> None:
    loaded = product.load(trained)
    assert loaded.manifest == json.loads((trained / product.MANIFEST).read_text())
    assert product.parameters_sha256(loaded.tensors["parameters"]) == loaded.manifest["params_sha256"]
    assert product.encode(loaded.tensors) == (trained / product.TENSORS).read_bytes()
    assert {tensor.device.type for tensor in loaded.tensors.values()} == {"cpu"}


def check_flipped_bits(folder: Path, module: ModuleType = product) -> None:
    path = folder / product.TENSORS
    whole = path.read_bytes()
    draw = random.Random(2)
    header = int.from_bytes(whole[:8], "little")
    places = [0, 8, 8 + header // 2, 8 + header, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(20))]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        wanted = json.loads((folder / product.MANIFEST).read_text())["sha256"]
        text = refused(folder, wanted, module=module)
        assert text.startswith(f"checkpoint: expected {path} to have SHA-256 {wanted}; found ")
        assert text.endswith("Restore it (`dvc checkout`), or train again")


def test_one_flipped_bit_is_refused(folder: Path) -> None:
    check_flipped_bits(folder)


def test_planted_flipped_bits(folder: Path) -> None:
    module = faulty(product, ("    if wanted != found:\n", "    if not wanted:\n"))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_flipped_bits(folder, module)


@pytest.mark.parametrize("damage", ["truncated", "longer", "empty", "missing"])
def test_damaged_tensors_are_refused(folder: Path, damage: str) -> None:
    path = folder / product.TENSORS
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:-7], "longer": whole + b"\0"}.get(damage, b""))
    if damage == "missing":
        path.unlink()
        refused(folder, f"checkpoint: wanted {path}; No such file or directory. Restore it")
    else:
        refused(folder, "to have SHA-256", "; found ")


def paths(node: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a manifest, those of its sections too."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from paths(value, (*path, key))


def another(value: object) -> object:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    return [*value, 1] if isinstance(value, list) else {} if isinstance(value, dict) else f"{value[:-1]}~"  # type: ignore[index]


def check_edits(folder: Path, module: ModuleType = product) -> None:
    """Each key of the manifest: with another value, with none, with a value of another kind, left out."""
    text = (folder / product.MANIFEST).read_text()
    for path in paths(json.loads(text)):
        for change in (another, lambda value: None if value is not None else 7, lambda value: [value], None):
            manifest = node = json.loads(text)
            for key in path[:-1]:
                node = node[key]
            if change is None:
                del node[path[-1]]
            else:
                node[path[-1]] = change(node[path[-1]])
            (folder / product.MANIFEST).write_text(json.dumps(manifest))
            line = refused(folder, module=module)
            assert "expected" in line or "wanted" in line, line
            assert any(word in line for word in ("found", "has", "lacks")), line


def test_every_edit_of_the_manifest_is_refused(folder: Path) -> None:
    check_edits(folder)


def test_planted_edits_of_the_manifest(folder: Path) -> None:
    """Without the manifest's own hash an edited step would pass."""
    module = faulty(
        product, ('manifest["manifest_sha256"], sha256_of(others)', "(hidden := sha256_of(others)), hidden")
    )
    with pytest.raises(pytest.fail.Exception):
        check_edits(folder, module)


@pytest.mark.parametrize(
    ("change", "wanted", "found"),
    [
        (lambda m: m.update(sha256="0" * 64), "0" * 64, "params"),
        (lambda m: m.update(params_sha256="0" * 64), "to have SHA-256 " + "0" * 64, "; found "),
        (lambda m: m.update(config_sha256="0" * 64), "expected config_sha256 of", "; found " + "0" * 64),
        (lambda m: m["config"]["ppo"].update(gamma=0.5), "expected config_sha256 of", "; found "),
        (lambda m: m.update(format=2), "wanted format 1", "has 2. Train again"),
        (lambda m: m.pop("step"), "wanted the keys format, sha256,", "lacks step"),
        (lambda m: m.update(step=10**6), "to have manifest_sha256", "; found "),
        (lambda m: m["seeds"].update(run_seed=2), "to have run_seed 1", "its manifest has 2"),
        (lambda m: m["seeds"].update(split="held_out"), "to have split 'train'", "its manifest has 'held_out'"),
        (lambda m: m["seeds"].update(environments=5), "to have environments 4", "its manifest has 5"),
    ],
)
def test_edits_are_named(folder: Path, change: Change, wanted: str, found: str) -> None:
    edit(folder, change)
    refused(folder, wanted, found.replace("params", "; found "))


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "null", '{"step": 1', "\x00"])
def test_a_manifest_that_is_none_is_refused(folder: Path, content: str) -> None:
    (folder / product.MANIFEST).write_text(content)
    refused(folder, "checkpoint: wanted", str(folder / product.MANIFEST))


def test_bytes_that_are_no_text_are_refused(folder: Path) -> None:
    (folder / product.MANIFEST).write_bytes(b"\xff\xfe\x00")
    refused(folder, "checkpoint: wanted JSON")


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "checkpoint: wanted a folder with checkpoint.json", "No such file or directory")


def test_tensors_that_are_none_are_refused_though_their_hash_is_right(folder: Path) -> None:
    def replace(content: bytes) -> None:
        (folder / product.TENSORS).write_bytes(content)
        edit(folder, lambda manifest: manifest.update(sha256=product.hashlib.sha256(content).hexdigest()))

    replace(b"not a safetensors file")
    refused(folder, "checkpoint: wanted a safetensors file")
    replace(safetensors.save({"weights": torch.ones(3)}))
    refused(
        folder, "checkpoint: wanted the tensors parameters, env.episode_seed, env.episode_index", "lacks parameters"
    )
    replace(safetensors.save({"parameters": torch.ones(3)}))
    refused(folder, "lacks env.episode_seed")


# ---------------------------------------------------------------------------------------------------------------------
# Another environment
# ---------------------------------------------------------------------------------------------------------------------


def check_environment(manifest: dict[str, Any], tmp_path: Path, module: ModuleType = product) -> None:
    own = envs.spec("cartpole", 20)
    module.expect_environment(manifest, own)
    header = tmp_path / own.header.name
    header.write_text(own.header.read_text().replace("gravity, 9.8f", "gravity, 9.9f"))
    assert header.read_text() != own.header.read_text()
    cases = {
        envs.spec("pendulum"): "wanted one of environment 'pendulum'; it was trained on 'cartpole'. Give env=cartpole,",
        envs.spec("cartpole", 21): "wanted one of cartpole with max_episode_steps 21; it was trained with 20.",
        dataclasses.replace(own, header=header): "wanted one of cartpole with the dynamics of SHA-256",
        dataclasses.replace(
            own, reward_range=(0.0, 1.0)
        ): "with reward_range [0.0, 1.0]; it was trained with [1.0, 1.0].",
    }
    for spec, words in cases.items():
        with pytest.raises(UserError) as error:
            module.expect_environment(manifest, spec)
        assert words in str(error.value)
        assert "\n" not in str(error.value)


def test_another_environment_is_refused(trained: Path, tmp_path: Path) -> None:
    check_environment(dict(product.load(trained).manifest), tmp_path)


def test_planted_environment(trained: Path, tmp_path: Path) -> None:
    """Names alone are compared: another time limit passes."""
    module = faulty(product, ('manifest["env_spec_sha256"] == spec.sha256()', 'found["name"] == spec.name'))
    with pytest.raises(pytest.fail.Exception):
        check_environment(dict(product.load(trained).manifest), tmp_path, module)


@pytest.mark.parametrize("override", ["env=pendulum", "env.max_episode_steps=30"])
def test_the_evaluation_asks_for_the_environment(trained: Path, tmp_path: Path, override: str) -> None:
    config = dataclasses.replace(small(tmp_path / "out", override), checkpoint=str(trained))
    if override == "env=pendulum":
        config = dataclasses.replace(config, env=dataclasses.replace(config.env, max_episode_steps=200))
    with pytest.raises(UserError, match=r"^checkpoint: wanted one of "):
        evaluate.run(config)
    assert not (tmp_path / "out").exists()


def test_an_initial_policy_that_cannot_be_made_again_is_refused(folder: Path, tmp_path: Path) -> None:
    resave(folder, lambda tensors, manifest: manifest.update(initial_params_sha256="0" * 64))
    config = dataclasses.replace(small(tmp_path / "out"), checkpoint=str(folder))
    with pytest.raises(
        UserError, match=rf"expected the initial policy to have SHA-256 {'0' * 64}; made [0-9a-f]{{64}} "
    ):
        evaluate.run(config)
    assert not (tmp_path / "out").exists()


def test_parameters_of_another_size_are_refused(folder: Path, tmp_path: Path) -> None:
    resave(folder, lambda tensors, manifest: tensors.update(parameters=tensors["parameters"][:-16].clone()))
    with pytest.raises(UserError, match=r"^evaluate: wanted \d+ parameters; the checkpoint has \d+$"):
        evaluate.run(dataclasses.replace(small(tmp_path / "out"), checkpoint=str(folder)))
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Writing whole files
# ---------------------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "file"
    files.write(path, "old")
    for call in ("fsync", "chmod"):
        with monkeypatch.context() as patch:
            patch.setattr(
                files.os if call == "fsync" else Path,
                call,
                lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
            )
            with pytest.raises(
                UserError, match=r"^out: wanted a folder to write file to; .*: No space left on device$"
            ):
                files.write(path, b"new")
        assert path.read_text() == "old"
        assert [each.name for each in path.parent.iterdir()] == ["file"]  # no rest of the other name
    files.write(path, b"new")
    assert path.read_text() == "new"


def test_json_without_numbers_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "file", {"value": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("config", []), ("config", {"seed": 1}), ("config", {"policy": {}, "seed": 1}), ("env_spec", []), ("seeds", "x")],
)
def test_a_manifest_of_another_shape_is_refused(folder: Path, key: str, value: object) -> None:
    """Also where its hashes were made right again."""

    def change(_: dict[str, Tensor], manifest: dict[str, Any]) -> None:
        manifest[key] = value
        manifest["config_sha256"] = sha256_of(manifest["config"])

    resave(folder, change)
    refused(folder)
