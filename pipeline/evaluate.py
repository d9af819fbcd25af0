"""Stage `evaluate`: a checkpoint's policy, and the one that it began as, on the same held-out episodes."""

from pathlib import Path

from rich.console import Console

from pipeline import config as configuration
from pipeline import files, tracking
from pipeline.config import Config


def run(config: Config) -> None:
    """Verifies the checkpoint, plays the episodes and writes `<out>/{episodes.csv,metrics.json}`.

    Raises:
        UserError: the checkpoint is damaged, of another environment, or was trained on an evaluation episode; `out`
            holds results already.
    """
    out = Path(config.out)
    files.refuse_existing(out, "metrics.json")
    assert config.checkpoint is not None  # config.main requires it
    row = tracking.Evaluation(config)
    # Imported here, so that torch's import and the tracking's, seconds each, run side by side.
    import torch

    import envs
    from kernels import compiler
    from pipeline import checkpoint, evaluation, seeds

    torch.set_num_threads(1)
    compiler.set_threads(config.device.threads)
    device = torch.device(config.device.resolve())
    console = Console()

    loaded = checkpoint.load(Path(config.checkpoint))
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    chosen = config.evaluate
    checkpoint.expect_environment(loaded.manifest, spec, chosen.transfer)
    seeds.prove_split(seeds.evaluation_seeds(chosen.split, chosen.episodes), chosen.split)
    console.print(f"evaluate: {spec.name}, split {chosen.split}, checkpoint {loaded.manifest['sha256'][:12]} verified")

    played = evaluation.compare(
        loaded.manifest,
        loaded.tensors["parameters"],
        spec,
        chosen,
        device,
        lambda line: console.print(f"  {line}"),
        loaded.tensors,
    )
    metrics = evaluation.metrics(played, loaded.manifest, chosen)
    files.write(out / "episodes.csv", evaluation.episodes_csv(played))
    files.write_json(out / "metrics.json", metrics)
    parameters = loaded.manifest["config"]
    row.attach(loaded.manifest["sha256"], int(loaded.manifest["config"]["seed"]), metrics, chosen.split, parameters)


if __name__ == "__main__":
    configuration.main("evaluate", run)
