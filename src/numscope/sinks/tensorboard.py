"""TensorBoard: scalars, exponent histograms, alerts and findings as text, through the run's own writer or a file of ours."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.finding import Finding
from numscope.records.heap import instances_of
from numscope.records.observation import Histogram, Names, Observation
from numscope.records.words import escape
from numscope.sinks.loggers import Sink, call_if_there
from numscope.sinks.logs import FIRST_EXPONENT

TAG = "numscope/alerts"
FINDINGS = "numscope/findings"
RUN = "numscope/run"


class TensorBoardSink(Sink):
    """Writes statistics to TensorBoard under the tag ``<tensor>.<stat>/<layer>``: one group of charts per statistic.

    A histogram shows how often each binary exponent occurs: its axis is the exponent, log2 of the magnitude, and the bin of exponent e
    reaches from e to e + 1. The axis is not the magnitude itself: TensorBoard draws bins of equal width, and magnitudes span 76 decades.

    Args:
        writer: ``torch.utils.tensorboard.SummaryWriter``, tensorboardX's, or an object with their ``add_scalar`` (and
            ``add_histogram_raw`` for histograms). It is flushed but never closed.
        is_ours: it is flushed after each step, and closed: the script's writer has its own times.
        names: of the tags; whoever opens the process's sinks sets it on a sink that was handed in.

    Raises: UsageError for an object without ``add_scalar``.
    """

    def __init__(self, writer: Any, *, is_ours: bool = False, names: Names = "grouped") -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise UsageError(
                f"tb_writer: got {writer!r}, expected a writer with add_scalar(tag, value, step), such as TensorBoard's SummaryWriter."
            )
        self._writer = writer
        self._is_ours = is_ours
        self.names = names

    def write(self, observations: Sequence[Observation]) -> None:
        add_scalar = self._writer.add_scalar
        for seen in observations:
            for label, value in seen.values.items():
                if isinstance(value, int | float):
                    add_scalar(seen.named(label, self.names), value, seen.step)
                elif value is not None:
                    self._add_histogram(seen.named(label, self.names), value, seen.step)

    def parameters(self, values: Mapping[str, str]) -> None:
        """Add them as the text ``numscope/run``, if the writer takes text."""
        lines = [line for name, value in values.items() for line in _lines(name, value)]
        call_if_there(self._writer, "add_text", RUN, "\n".join(f"    {escape(line)}" for line in lines), 0)  # indented, as below

    def alert(self, alert: Alert) -> None:
        """Add it to the text ``numscope/alerts``, if the writer takes text."""
        call_if_there(self._writer, "add_text", TAG, f"    {escape(alert.line())}", alert.step)  # indented: text, not Markdown
        self.flush()

    def finding(self, finding: Finding, report: str) -> None:
        """Add it to the text ``numscope/findings``, and write it through: the run may be about to end."""
        call_if_there(self._writer, "add_text", FINDINGS, finding_markdown(finding, report), finding.step)
        call_if_there(self._writer, "flush")

    def flush(self) -> None:
        if self._is_ours:
            self._writer.flush()

    def close(self) -> None:
        call_if_there(self._writer, "flush")
        if self._is_ours:
            self._writer.close()

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


def _lines(name: str, value: str) -> list[str]:
    """A parameter in lines: a value of several is indented below its name."""
    lines = value.expandtabs(4).splitlines()
    return [f"{name}:", *(f"    {line}" for line in lines)] if len(lines) > 1 else [f"{name}: {value}"]


def tensorboard_in(folder: str, names: Names) -> TensorBoardSink:
    """Writes with the writer that the script has open now and that writes to this folder, which stays open; else to a file in it.

    ``folder`` "": with any writer of the script's, else in ``runs/numscope-…``.
    """
    writer = _scripts_writer(folder)
    if writer is not None:
        return TensorBoardSink(writer, names=names)
    ours = EventFile(folder or os.path.join("runs", time.strftime("numscope-%Y%m%d-%H%M%S")))
    return TensorBoardSink(ours, is_ours=True, names=names)


class EventFile:
    """TensorBoard's event file, written as it comes: no thread, and nothing in memory that a killed run would lose.

    It has what numscope needs of ``SummaryWriter``. The folder is created if missing; each process has a file of its own in it.

    Raises: OSError.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.numscope-{time.monotonic_ns()}"
        self._records = RecordWriter(open(os.path.join(folder, name), "wb"))
        self._write(file_version="brain.Event:2")
        self.flush()

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self._add(step, tag=tag, simple_value=float(value))

    def add_text(self, tag: str, text: str, step: int) -> None:
        metadata_of, shape_of = _proto("summary").SummaryMetadata, _proto("tensor_shape").TensorShapeProto
        metadata = metadata_of(plugin_data=metadata_of.PluginData(plugin_name="text"))
        shape = shape_of(dim=[shape_of.Dim(size=1)])
        content = _proto("tensor").TensorProto(dtype="DT_STRING", string_val=[text.encode(errors="backslashreplace")], tensor_shape=shape)
        self._add(step, tag=f"{tag}/text_summary", metadata=metadata, tensor=content)

    def add_histogram_raw(
        self, tag: str, *, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Any, bucket_counts: Any,
        global_step: int,
    ) -> None:  # fmt: skip
        histogram = _proto("summary").HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares)
        histogram.bucket_limit.extend(bucket_limits)
        histogram.bucket.extend(bucket_counts)
        self._add(global_step, tag=tag, histo=histogram)

    def flush(self) -> None:
        self._records.flush()

    def close(self) -> None:
        self._records.close()

    def _add(self, step: int, **value: Any) -> None:
        summary = _proto("summary").Summary
        self._write(step=step, summary=summary(value=[summary.Value(**value)]))

    def _write(self, **content: Any) -> None:
        self._records.write(_proto("event").Event(wall_time=time.time(), **content).SerializeToString())


def _proto(name: str) -> Any:
    """A module of TensorBoard's messages."""
    return importlib.import_module(f"tensorboard.compat.proto.{name}_pb2")


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


def text(content: str) -> str:
    """Text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~$&!" else c for c in content)


def code(content: str) -> str:
    """Text as code; a table's cell ends at no bar in it."""
    return f"`{content.replace('`', chr(0x2019)).replace('|', chr(0xA6))}`" if content else ""


def finding_markdown(finding: Finding, report: str) -> str:
    """A finding: a heading, where, why and what to do, then the report as the terminal has it."""
    when = f"step {finding.step}, batch {finding.batch}, {finding.phase.value}, rank {finding.rank}"
    lines = [f"### {finding.kind.value} in {code(escape(str(finding.site)))}", "", when, ""]
    lines += [f"- **Note:** {text(escape(finding.note))}"] if finding.note else []
    c = finding.culprit
    if c is None:
        lines.append(f"- **Operation unknown:** {text(escape(finding.replay))}")
    else:
        lines.append(f"- **Operation:** {code(escape(c.op))} ({c.phase.value})" + (f" in {code(escape(c.module))}" if c.module else ""))
        lines += [f"- **Line:** {code(escape(f'{c.file}:{c.line}'))}: {code(escape(c.code))}"] if c.file else []
        lines.append(f"- **Reason:** {c.reason.value}. {text(escape(c.detail))}")
        lines += [f"- **Advice:** {text(escape(c.advised))}"] if c.advice else []
        lines += [f"- **Tried:** {text(escape(str(one)))}" for one in c.tried]
    # The paragraph ends the list: what is indented after a list belongs to it, and would be read as Markdown.
    return "\n".join([*lines, "", "The whole report:", "", *(f"    {line}" for line in report.rstrip("\n").split("\n"))])
