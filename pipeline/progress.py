"""What a person sees of a training: a bar on a terminal, a line every few seconds elsewhere."""

import math
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 5.0
BAR_SECONDS = 0.1


class TrainingProgress:
    """Shows steps, steps per second and the mean return of the episodes that ended last.

    Args:
        title: in front of the bar.
        total: environment steps of the whole training.
        done: steps that an interrupted training had taken already.
        console: where it is shown; the terminal, if none is given.
    """

    def __init__(self, title: str, total: int, done: int = 0, console: Console | None = None) -> None:
        self._console = console or Console()
        self._title, self._total, self._begun_at, self._begun = title, total, done, time.perf_counter()
        self._return = math.nan
        self._last_line = self._last_bar = self._begun
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(title, total=total, completed=done, text="")

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, step: int, episode_return: float) -> None:
        """After an iteration: `episode_return` is NaN where no episode ended in it."""
        now = time.perf_counter()
        self._return = self._return if math.isnan(episode_return) else episode_return
        if now - self._last_bar < BAR_SECONDS and step < self._total:
            return
        self._last_bar = now
        rate = (step - self._begun_at) / max(now - self._begun, 1e-9)
        shown = "no episode ended yet" if math.isnan(self._return) else f"return {self._return:.1f}"
        text = f"{step:,}/{self._total:,} steps  {rate:,.0f} steps/s  {shown}"
        self._bar.update(self._task, completed=step, text=text)
        if self._bar.disable and (now - self._last_line > LINE_SECONDS or step == self._total):
            self._last_line = now
            self._console.print(f"{self._title}: {text}", highlight=False)
