"""Stage `train`: synchronous PPO on one training seed, to a checkpoint and its curves.

A training that is stopped at any moment goes on when it is started again with the same command, and ends with the same
checkpoint as one that was not.
"""

import csv
import dataclasses
import hashlib
import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors import SafetensorError, safe_open

import envs
from kernels import compiler, launcher
from kernels.errors import UserError
from pipeline import checkpoint, evaluation, files, provenance, seeds, tracking
from pipeline import config as configuration
from pipeline.assembly import assemble
from pipeline.config import Config
from pipeline.log import Log
from pipeline.policy import FlatParameters
from pipeline.ppo import PPO
from pipeline.profile import clock_of
from pipeline.progress import TrainingProgress

PARTIAL_SECONDS = 10.0
CURVE = (
    "step", "episode_return_mean", "approx_kl", "clip_fraction", "value_loss", "policy_loss", "entropy",
    "explained_variance", "grad_norm", "learning_rate", "clip_fraction_after", "episode_length_mean", "episodes",
)  # fmt: skip


def run(config: Config) -> None:
    """Trains and writes `<out>/{checkpoint.safetensors,checkpoint.json,curve.csv,timing.csv,profile.json}`.

    Raises:
        UserError: `out` holds a finished training already, or a damaged unfinished one; numbers that are not finite
            came up.
    """
    out = Path(config.out)
    files.refuse_existing(out, checkpoint.MANIFEST)
    torch.set_num_threads(1)  # torch's own kernels promise the same bits only so; ours do with any number
    compiler.set_threads(config.device.threads)
    launcher.choose(emulated=config.device.name == "emulated")
    device = torch.device(config.device.resolve())
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    identity = {"config_sha256": configuration.sha256(config), "env_spec_sha256": spec.sha256()}
    partial = out / partial_name({**identity, "sources_sha256": provenance.sources_sha256()})
    facts = provenance.collect(str(device))

    log, tensors, iteration = _read_partial(partial)
    clock = clock_of(device, log.seconds)
    training = assemble(config, spec, device, clock)
    ppo, flat = training.ppo, training.flat
    initial_sha256 = checkpoint.parameters_sha256(flat.parameters)
    if tensors:
        flat.parameters.copy_(tensors["parameters"])
        ppo.load_state(tensors, iteration)
    _announce(config, ppo, f"{training.path} on {device}")

    try:
        with tracking.start(config, facts) as row:
            _iterate(ppo, flat, log, row, partial if spec.resumable else None)
            manifest: dict[str, Any] = {
                "step": ppo.steps,
                "policy_version": ppo.iteration,
                "initial_params_sha256": initial_sha256,
                "config": configuration.decisive(config),
                **identity,
                "env_spec": spec.fields(),
                "seeds": seeds.closed_form(config.seed, ppo.env.state()["episode_index"][:: spec.agents]),
                "path": ppo.path.name,
                "parent": None,
            }
            frames = getattr(training.played, "frames", 0)
            if frames:
                manifest["frames"] = frames
            seconds = clock.seconds()
            profile = {**seconds, "steps_per_second": ppo.steps / seconds["wall"]}
            files.refuse_existing(
                out, checkpoint.MANIFEST
            )  # another training into the same folder may have been faster
            files.write(out / "curve.csv", _csv(CURVE, ([row.get(name) for name in CURVE] for row in log.curve)))
            files.write(out / "timing.csv", _csv(("step", "wall_s"), log.timing))
            files.write_json(out / "profile.json", profile)
            manifest = checkpoint.save(out, {"parameters": flat.parameters, **ppo.state()}, manifest)
            files.remove(partial)
            if tracking.in_sweep():
                row.evaluation(_selection(config, manifest, flat, ppo, device, out), "selection")
            tags = {key: manifest[key] for key in ("params_sha256", "env_spec_sha256", "path")}
            row.finish(tags={"checkpoint_sha256": manifest["sha256"], **tags}, metrics=profile)
    except KeyboardInterrupt:
        kept = f"with out={out} goes on from what it kept" if partial.exists() else "begins again"
        line = f"train: stopped by Ctrl-C at step {ppo.steps:,}; the same command {kept}"
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)
        raise SystemExit(130) from None
    provenance.write(f"train-{spec.name}-seed-{config.seed}", facts)
    counted = f", {ppo.steps:,} steps and {frames:,} frames" if frames else ""
    Console().print(f"train: wrote {out}{counted}", highlight=False, soft_wrap=True)


def partial_name(identity: Mapping[str, str]) -> str:
    """The unfinished training's file in `out`: its own for each configuration and state of the sources.

    So none goes on from another's, and each is still there when its configuration is trained again.
    """
    return f"partial-{configuration.sha256_of(identity)[:16]}.safetensors"


def _iterate(ppo: PPO, flat: FlatParameters, log: Log, row: tracking.Run, partial: Path | None) -> None:
    saved = time.perf_counter()
    title = f"{ppo.env.spec.name} seed {ppo.run_seed}"
    with TrainingProgress(title, ppo.iterations * ppo.config.batch_size, ppo.steps) as progress:
        waits = ppo.env.device.type != "cpu"  # a device for the host, which then has no work for it
        while not ppo.finished:
            due = partial and time.perf_counter() - saved > PARTIAL_SECONDS
            log.iteration(ppo, ppo.iterate(ahead=waits and not due), row, progress)
            if partial and due and not ppo.finished:
                with ppo.clock.phase("logging"):
                    saved = time.perf_counter()
                    _write_partial(partial, ppo, flat, log)


def _announce(config: Config, ppo: PPO, path: str) -> None:
    steps, wanted = ppo.iterations * config.ppo.batch_size, config.ppo.total_steps
    rounding = f" (whole iterations of {wanted:,})" if steps != wanted else ""
    start = f", going on from step {ppo.steps:,}" if ppo.iteration else ""
    frames = f" (up to {steps * config.env.frames_a_step:,} frames)" if config.env.frames_a_step else ""
    text = f"train: {config.env.title}, seed {config.seed}, {path}, {steps:,} steps{rounding}{frames}{start}"
    if not ppo.env.spec.resumable:
        text += ". Stopped, it begins again: the state of such environments cannot be saved"
    Console().print(text, highlight=False, soft_wrap=True)


def _selection(
    config: Config, manifest: Mapping[str, Any], flat: FlatParameters, ppo: PPO, device: torch.device, out: Path
) -> dict[str, Any]:
    """A sweep's job on the selection episodes; the held-out ones are for the report alone."""
    chosen = dataclasses.replace(config.evaluate, split="selection")
    played = evaluation.compare(manifest, flat.parameters.clone(), ppo.env.spec, chosen, device, tensors=ppo.state())
    metrics = evaluation.metrics(played, manifest, chosen)
    files.write(out / "selection" / "episodes.csv", evaluation.episodes_csv(played))
    files.write_json(out / "selection" / "metrics.json", metrics)
    return metrics


def _csv(columns: Sequence[str], rows: Any) -> str:
    """Floats by repr, so that they read back to the same bits; what was not measured is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if value != value else repr(value) for value in row])
    return text.getvalue()


def _write_partial(path: Path, ppo: PPO, flat: FlatParameters, log: Log) -> None:
    log.seconds = ppo.clock.seconds()
    state = json.dumps({"iteration": ppo.iteration, "log": dataclasses.asdict(log)})
    tensors = {"parameters": flat.parameters, **ppo.state()}
    files.write(path, checkpoint.encode(tensors, {"state": state, "sha256": _partial_sha256(state, tensors)}))


def _partial_sha256(state: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """So that a bit lost on the disk is found before a training goes on from it."""
    return hashlib.sha256(state.encode() + checkpoint.encode(tensors)).hexdigest()


def _read_partial(path: Path) -> tuple[Log, dict[str, torch.Tensor], int]:
    """The log, tensors and iteration of an unfinished training in this folder; of a new one if there is none."""
    if not path.exists():
        return Log(), {}, 0
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        text, wanted = metadata["state"], metadata["sha256"]
        if (found := _partial_sha256(text, tensors)) != wanted:
            raise ValueError(f"expected SHA-256 {wanted}, found {found}")
        state = json.loads(text)
    except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise UserError(f"out: wanted an unfinished training in {path}; it is damaged ({error}). Remove it") from error
    log = state["log"]
    timing = [(int(step), float(wall)) for step, wall in log["timing"]]
    return Log(log["curve"], timing, log["seconds"]), tensors, int(state["iteration"])


if __name__ == "__main__":
    configuration.main("train", run)
