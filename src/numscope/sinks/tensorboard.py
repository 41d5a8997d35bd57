"""TensorBoard: scalars, exponent histograms, alerts and findings as text, through the run's own writer or a file of ours."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.finding import Finding
from numscope.records.heap import instances_of
from numscope.records.markdown import finding_markdown
from numscope.records.observation import Histogram, Observation
from numscope.records.words import escape
from numscope.sinks.eventfile import EventFile
from numscope.sinks.loggers import call_if_there
from numscope.sinks.protocol import Sink
from numscope.sinks.textlog import FIRST_EXPONENT

TAG = "numscope/alerts"
FINDINGS = "numscope/findings"


class TensorBoardSink(Sink):
    """Writes statistics to TensorBoard under the tag ``<layer>_<tensor>_<stat>``.

    A histogram shows how often each binary exponent occurs: its axis is the exponent, log2 of the magnitude, and the bin of exponent e
    reaches from e to e + 1. The axis is not the magnitude itself: TensorBoard draws bins of equal width, and magnitudes span 76 decades.

    Args:
        writer: ``torch.utils.tensorboard.SummaryWriter``, tensorboardX's, or an object with their ``add_scalar`` (and
            ``add_histogram_raw`` for histograms). It is flushed but never closed.

    Raises: UsageError for an object without ``add_scalar``.
    """

    def __init__(self, writer: Any) -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise UsageError(
                f"tb_writer: got {writer!r}, expected a writer with add_scalar(tag, value, step), such as TensorBoard's SummaryWriter."
            )
        self._writer = writer

    def write(self, observations: Sequence[Observation]) -> None:
        add_scalar = self._writer.add_scalar
        for seen in observations:
            for label, value in seen.values.items():
                if isinstance(value, int | float):
                    add_scalar(f"{seen.name}_{label}", value, seen.step)
                elif value is not None:
                    self._add_histogram(f"{seen.name}_{label}", value, seen.step)

    def alert(self, alert: Alert) -> None:
        """Add it to the text ``numscope/alerts``, if the writer takes text."""
        call_if_there(self._writer, "add_text", TAG, f"    {escape(alert.line())}", alert.step)  # indented: text, not Markdown

    def finding(self, finding: Finding, report: str) -> None:
        """Add it to the text ``numscope/findings``, and write it through: the run may be about to end."""
        call_if_there(self._writer, "add_text", FINDINGS, finding_markdown(finding, report), finding.step)
        call_if_there(self._writer, "flush")

    def close(self) -> None:
        call_if_there(self._writer, "flush")

    def _add_histogram(self, tag: str, counts: Histogram, step: int) -> None:
        add = getattr(self._writer, "add_histogram_raw", None)
        bins = [(e, count) for e, count in enumerate(counts, FIRST_EXPONENT) if count]
        if add is None or not bins:
            return
        first, last = bins[0][0], bins[-1][0]
        shown = [float(count) for count in counts[first - FIRST_EXPONENT : last + 1 - FIRST_EXPONENT]]
        # TensorBoard takes the right edges of the bins; the left edge of the first bin comes from `min`.
        edges = [float(exponent + 1) for exponent in range(first, last + 1)]
        add(
            tag,
            min=float(first),
            max=float(last + 1),
            num=sum(shown),
            sum=sum(e * count for e, count in bins),
            sum_squares=sum(e * e * count for e, count in bins),
            bucket_limits=edges,
            bucket_counts=shown,
            global_step=step,
        )


class TensorBoardTo(Sink):
    """Writes as ``TensorBoardSink`` does: with the writer that the script has open at the first call, which stays open, else to a file.

    Args:
        folder: where to write; a script's writer is used only if it writes there. "": any writer of the script's, else ``runs/numscope-…``.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._sink: TensorBoardSink | None = None
        self._own: EventFile | None = None

    def write(self, observations: Sequence[Observation]) -> None:
        self._opened().write(observations)

    def alert(self, alert: Alert) -> None:
        self._opened().alert(alert)
        self.flush()

    def finding(self, finding: Finding, report: str) -> None:
        self._opened().finding(finding, report)
        self.flush()

    def flush(self) -> None:
        if self._own is not None:  # the script's writer has its own times
            self._own.flush()

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
        if self._own is not None:
            self._own.close()

    def _opened(self) -> TensorBoardSink:
        if self._sink is None:
            writer = _scripts_writer(self._folder)
            if writer is None:
                folder = self._folder or os.path.join("runs", time.strftime("numscope-%Y%m%d-%H%M%S"))
                writer = self._own = EventFile(folder)
            self._sink = TensorBoardSink(writer)
        return self._sink


def _scripts_writer(folder: str) -> Any:
    """A ``SummaryWriter`` that the script has open, torch's or tensorboardX's. *Cost:* a walk over all objects, once."""
    for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        kind = getattr(sys.modules.get(module), "SummaryWriter", None)
        for writer in () if kind is None else instances_of(kind):
            place = getattr(writer, "log_dir", None) or getattr(writer, "logdir", None)
            is_there = not folder or (place is not None and os.path.realpath(place) == os.path.realpath(folder))
            if is_there and getattr(writer, "file_writer", None) is not None:
                return writer
    return None
