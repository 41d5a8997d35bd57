"""Weights & Biases: statistics alongside the run's own metrics, alerts and findings as the run's alerts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.observation import Names, Observation
from numscope.records.words import escape
from numscope.sinks.destinations import scripts_run
from numscope.sinks.loggers import Sink
from numscope.sinks.logs import FIRST_EXPONENT
from numscope.sinks.outbox import Outbox

PREFIX = "numscope/"
STEP = f"{PREFIX}step"
TITLE = "numscope: "
MAX_TITLE = 63
NO_WAIT_S = 0.001  # 0 stands for a minute, in which alerts with the same title are dropped


class WandbSink(Sink):
    """Logs ``<tensor>.<stat>/<layer>`` against ``numscope/step``, so that each statistic has a section; a histogram is a
    ``wandb.Histogram`` over binary exponents.

    The script's own rows stay as they are: a step's statistics join the row that its run is filling, and it ends the row. Only if it has
    not ended a row since the last statistics do they end it. A run of the sink's own is served by a thread: beginning one asks the server.

    Args:
        run: a run of ``wandb.init``, which is not finished here. None: the script's run, else a new one.
        folder, project, note: of a new run; ``project`` is ``PROJECT`` or ``ENTITY/PROJECT``; "": as the library decides.
        names: of the metrics; ``te``: behind ``numscope/``.
    """

    def __init__(
        self,
        run: Any = None,
        folder: str | os.PathLike[str] | None = None,
        project: str = "",
        note: str = "",
        names: Names = "grouped",
    ) -> None:
        self._run = scripts_run("wandb") if run is None else run
        self._own = Outbox("numscope-wandb") if self._run is None else None
        self._folder = folder
        self._entity, _, self._project = project.rpartition("/")
        self._note = note
        self._names: Names = names
        self._prefix = PREFIX if names == "te" else ""
        self._known: set[str] = set()  # groups of metrics whose charts have our steps
        self._num_findings = 0
        self._filling: int | None = None  # the row that the last statistics joined

    def write(self, observations: Sequence[Observation]) -> None:
        row: dict[str, Any] = {}
        for seen in observations:
            for label, value in seen.values.items():
                if value is not None:
                    row[f"{self._prefix}{seen.named(label, self._names)}"] = value
        if row:
            self._do(lambda run: self._log(run, row, observations[0].step))

    def parameters(self, values: Mapping[str, str]) -> None:
        """Put them into the run's config, under ``numscope``."""
        self._do(lambda run: run.config.update({"numscope": dict(values)}, allow_val_change=True))

    def alert(self, alert: Alert) -> None:
        """Send it as one of the run's own alerts: by mail or Slack, as its owner has set it up."""
        title, text = f"{TITLE}{escape(alert.rule)}"[:MAX_TITLE], escape(alert.line())
        self._do(lambda run: run.alert(title=title, text=text, level="WARN", wait_duration=NO_WAIT_S), is_news=True)

    def finding(self, finding: Finding, report: str) -> None:
        """Send it as an alert of level ERROR with its report, and keep its headline in the run's summary."""
        self._num_findings += 1
        title, headline = f"{TITLE}{escape(f'{finding.kind.value} in {finding.site}')}"[:MAX_TITLE], escape(finding.headline())

        def send(run: Any) -> None:
            run.alert(title=title, text=report, level="ERROR", wait_duration=NO_WAIT_S)
            run.summary[f"{PREFIX}finding"] = headline

        self._do(send, is_news=True)

    def settle(self) -> None:
        if self._own is not None:
            self._own.settle()

    def close(self) -> None:
        if self._own is not None:
            self._own.drain(last=lambda: self._begun().finish(exit_code=min(self._num_findings, 1)))
            if self._own.num_left_out:
                raise RuntimeError(f"the service was too slow: {self._own.num_left_out} steps were left out")

    def _do(self, work: Callable[[Any], object], is_news: bool = False) -> None:
        """Call it with the run: at once with the script's, which hands all to a process of its own; else on the outbox's thread."""
        if self._own is None:
            work(self._run)
        else:
            (self._own.put_news if is_news else self._own.put)(lambda: work(self._begun()))

    def _begun(self) -> Any:
        if self._run is None:
            import wandb

            settings = wandb.setup().settings
            if settings.mode in (None, "online") and not settings.identity_token_file and wandb.api.api_key is None:
                raise RuntimeError("no API key. Log in first (wandb login), or set WANDB_MODE=offline")  # it would ask on the terminal
            self._run = wandb.init(
                dir=self._folder,
                project=self._project or None,
                entity=self._entity or None,
                notes=self._note or None,
                reinit="create_new",  # the script's own run may still come
            )
        return self._run

    def _log(self, run: Any, values: dict[str, Any], step: int) -> None:
        for group in {name.partition("/")[0]: None for name in values}:
            if group not in self._known:
                self._known.add(group)
                run.define_metric(f"{group}/*", step_metric=STEP)
        row = {name: value if isinstance(value, int | float) else _histogram(value) for name, value in values.items()}
        if self._filling == run.step:
            run.log({}, commit=True)
        is_ours = self._own is not None
        run.log({**row, STEP: step}, commit=is_ours)
        self._filling = None if is_ours else run.step


def _histogram(counts: Sequence[float]) -> Any:
    import wandb

    edges = list(range(FIRST_EXPONENT, FIRST_EXPONENT + len(counts) + 1))
    both: Any = ([int(count) for count in counts], edges)  # its types require arrays, its code sequences
    return wandb.Histogram(np_histogram=both)
