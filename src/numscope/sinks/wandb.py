"""Weights & Biases: statistics alongside the run's own metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.observation import Observation
from numscope.records.words import escape
from numscope.sinks.protocol import Sink

PREFIX = "numscope/"
STEP = f"{PREFIX}step"
TITLE = "numscope: "
MAX_TITLE = 63
NO_WAIT_S = 0.001  # 0 stands for a minute, in which alerts with the same title are dropped


class WandbSink(Sink):
    """Logs ``numscope/<layer>_<tensor>_<stat>`` against ``numscope/step``; histograms as ``wandb.Histogram`` over binary exponents.

    The run's own rows stay as they are: a step's statistics join the row that the run is filling, and the run ends it. Only if the run has
    not ended a row since the last statistics do they end it.

    Args:
        run: a run of ``wandb.init``, which is not finished here. None: the process's run at the first write, else a new one.
        folder: for the files of a new run.
    """

    def __init__(self, run: Any = None, folder: str | os.PathLike[str] | None = None) -> None:
        self._run = run
        self._folder = folder
        self._is_ours = False
        self._is_told = False
        self._filling: int | None = None  # the row that the last statistics joined

    def write(self, observations: Sequence[Observation]) -> None:
        row: dict[str, Any] = {}
        for seen in observations:
            for label, value in seen.values.items():
                if value is not None:
                    row[f"{PREFIX}{seen.name}_{label}"] = value if isinstance(value, int | float) else _histogram(value)
        if not row:
            return
        run = self._opened()
        if self._filling == run.step:
            run.log({}, commit=True)
        run.log({**row, STEP: observations[0].step}, commit=self._is_ours)
        self._filling = None if self._is_ours else run.step

    def alert(self, alert: Alert) -> None:
        """Send it as one of the run's own alerts: by mail or Slack, as its owner has set it up."""
        title = f"{TITLE}{escape(alert.rule)}"[:MAX_TITLE]
        self._opened().alert(title=title, text=escape(alert.line()), level="WARN", wait_duration=NO_WAIT_S)

    def close(self) -> None:
        if self._is_ours:
            self._run.finish()

    def _opened(self) -> Any:
        if self._run is None:  # not earlier: our run would replace one that the script is about to begin
            import wandb

            self._run = wandb.run
            if self._run is None:
                self._run = wandb.init(dir=self._folder)
                self._is_ours = True
        if not self._is_told:
            self._run.define_metric(STEP)
            self._run.define_metric(f"{PREFIX}*", step_metric=STEP)
            self._is_told = True
        return self._run


def _histogram(counts: Sequence[float]) -> Any:
    import wandb

    from numscope.sinks.textlog import FIRST_EXPONENT

    edges = list(range(FIRST_EXPONENT, FIRST_EXPONENT + len(counts) + 1))
    both: Any = ([int(count) for count in counts], edges)  # its types require arrays, its code sequences
    return wandb.Histogram(np_histogram=both)
