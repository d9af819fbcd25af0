"""What a training writes down after each of its iterations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline import tracking
from pipeline.ppo import PPO
from pipeline.progress import TrainingProgress

TRACKED = 500  # points of a curve in MLflow, about: its writer takes longer for one than a fast iteration does


@dataclass
class Log:
    """What a training has written down so far; it travels in the partial checkpoint."""

    curve: list[dict[str, float]] = field(default_factory=list)
    timing: list[tuple[int, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def iteration(self, ppo: PPO, metrics: Mapping[str, float], row: tracking.Run, progress: TrainingProgress) -> None:
        """Writes the metrics of the iteration that has just ended here, to the terminal, and into MLflow's row.

        The curve here has every iteration. MLflow gets every k-th one and the last, by the training's length alone.
        """
        with ppo.clock.phase("logging"):
            self.curve.append({"step": ppo.steps, **metrics})
            self.timing.append((ppo.steps, ppo.clock.wall))
            if ppo.iteration % -(-ppo.iterations // TRACKED) == 0 or ppo.finished:
                row.curve(ppo.steps, {**metrics, "wall_s": ppo.clock.wall})
            progress.update(ppo.steps, metrics["episode_return_mean"])
