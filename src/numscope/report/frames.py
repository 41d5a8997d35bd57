"""Findings and frames as text; frames in the format of the underflow/overflow guide: one line per tensor, ``abs min  abs max  metadata``.

Only this file formats these lines, also those of ``compat/underflow_overflow.py``.
"""

from __future__ import annotations

from numscope.records.finding import Finding, Frame, Kind, Line, magnitudes
from numscope.records.places import place
from numscope.records.site import Phase
from numscope.records.words import escape

NUM_FRAMES = 4  # frames that a finding's report shows
PREFIX = " " * 17  # the width of two numbers and a blank
HEADER = f"{'abs min':8} {'abs max':8} metadata"


def magnitude_line(low: object, high: object, slot: str) -> str:
    """One tensor's line. ``low`` and ``high`` can be anything that formats as ``8.2e``: a float, an int, a tensor of one element."""
    return f"{low:8.2e} {high:8.2e} {slot}"


def note_line(note: str, slot: str) -> str:
    """The line of a value without magnitudes: ``None``, ``not a tensor``, ``empty``."""
    return f"{note:>17} {slot}"


def module_line(module: str, cls: str) -> str:
    """A frame's first line; the watched model has the empty name."""
    return f"{PREFIX} {module} {cls}"


def head_line(frame: Frame) -> str:
    """A frame's first line; a frame without a module (the loss) is named after its phase."""
    return module_line(frame.module, frame.cls) if frame.module or frame.cls else f"{PREFIX} ({frame.phase.value})"


def named(frame: Frame) -> str:
    """A frame's module and its class in one word each; the loss is named after its phase."""
    return f"{frame.module} ({frame.cls})".strip() if frame.module or frame.cls else f"({frame.phase.value})"


def batch_line(batch: int) -> str:
    """The line that announces a batch, after two empty lines."""
    return f"\n\n{PREFIX} *** Starting batch number={batch} ***"


def line_text(line: Line) -> str:
    """A record's line in the guide's format."""
    if line.numbers is None:
        return note_line(line.note or "None", line.slot)
    if line.numbers.numel == 0:
        return note_line("empty", line.slot)
    return magnitude_line(*magnitudes(line.numbers), line.slot)


def frame_text(frame: Frame) -> str:
    """A frame in the guide's format: the module, then one line per tensor."""
    return "\n".join([head_line(frame), *map(line_text, frame.lines)])


def is_bad(line: Line) -> bool:
    """Whether the line's tensor holds a nan or inf."""
    return line.numbers is not None and line.numbers.num_nonfinite > 0


def report_head(batch: int, num_frames: int, words: str = "forward frames") -> list[str]:
    """The three lines above the frames of a report."""
    return [f"Detected inf/nan during batch_number={batch}", f"Last {num_frames} {words}:", HEADER]


def finding_text(finding: Finding) -> str:
    """The guide's report of a finding: its last frames, oldest first, ending at the first bad one.

    Returns:
        Text without a final newline; the word "forward" is left out if the frames include one of backward or the optimizer.
    """
    forward_only = all(frame.phase is Phase.FORWARD for frame in finding.frames)
    words = "forward frames" if forward_only else "frames"
    return "\n".join([*report_head(finding.batch, len(finding.frames), words), *map(frame_text, finding.frames)])


def one_line(finding: Finding) -> str:
    """A finding in one line, for logs."""
    where = f"{finding.site} ({finding.phase.value}) at step {finding.step}, rank {finding.rank}"
    if finding.contained:
        line = f"contained: {finding.kind.value} in {where}; "
        line += finding.note or "it never reached the loss, a gradient, a weight or the optimizer's state"
        if (culprit := finding.culprit) is not None:
            line += f"; {culprit.op} at {place(culprit.file, culprit.line)}"
            line += f" `{culprit.code}` — {culprit.reason.value}: {culprit.detail}" if finding.note else ""
    elif finding.kind in (Kind.SCALER_SKIPS, Kind.DEAD_GRADIENTS):
        line = f"{finding.kind.value}: {finding.note} (step {finding.step}, rank {finding.rank})"
    else:
        line = finding.headline()
    return escape(line)
