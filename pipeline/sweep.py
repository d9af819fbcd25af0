"""The Hydra callback of a sweep: one parent row in MLflow for all its jobs.

Wired by conf/hydra/callbacks/sweep.yaml. Hydra calls the methods by name, so nothing of Hydra's is imported here.
What the jobs must know goes through the environment, which the processes of any launcher inherit.
"""

import os
import sys
from typing import Any

from kernels.errors import UserError
from pipeline import tracking


class Sweep:
    """The on_multirun methods run once, where the sweep was started; on_job_start in the process of each job."""

    def __init__(self) -> None:
        self.overrides: list[str] = []
        self._run: tracking.Run = tracking.NullRun()

    def __getstate__(self) -> dict[str, Any]:
        """Without the parent's row, which stays where it was opened: launchers send copies to their workers."""
        return {"overrides": self.overrides, "_run": tracking.NullRun()}

    def on_multirun_start(self, config: Any, **_: Any) -> None:
        self.overrides = [str(override) for override in config.hydra.overrides.task]
        run_id = tracking.UNTRACKED
        if config.tracking.enabled:
            try:
                run_id, self._run = tracking.start_sweep(config.tracking, self.overrides)
            except UserError as error:  # Hydra turns any exception of a callback into a warning, but not this exit
                print(f"sweep: {error}", file=sys.stderr)
                sys.exit(2)
        os.environ[tracking.SWEEP] = run_id

    def on_job_start(self, config: Any, **_: Any) -> None:
        if tracking.in_sweep():
            job = [str(override) for override in config.hydra.overrides.task]
            swept = [override for override in job if override not in self.overrides]
            os.environ[tracking.SWEEP_JOB] = "\n".join(swept or job)

    def on_multirun_end(self, config: Any, **_: Any) -> None:
        os.environ.pop(tracking.SWEEP, None)
        os.environ.pop(tracking.SWEEP_JOB, None)
        self._run.finish(tags={}, metrics={})

    def on_run_start(self, config: Any, **_: Any) -> None:
        """Nothing: a single run is no sweep. Hydra wants the method."""

    def on_run_end(self, config: Any, **_: Any) -> None:
        """Nothing."""

    def on_job_end(self, config: Any, **_: Any) -> None:
        """Nothing."""
