"""TensorBoard: scalars and exponent histograms, through the run's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.observation import Histogram, Observation
from numscope.records.words import escape
from numscope.sinks.loggers import call_if_there
from numscope.sinks.protocol import Sink
from numscope.sinks.textlog import FIRST_EXPONENT

TAG = "numscope/alerts"


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
