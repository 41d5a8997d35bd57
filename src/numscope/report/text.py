"""A finding as a report in a terminal: what is bad, the line at fault, why, what to do, and the frames up to it.

Names and code come from models and files: they are never read as markup, and control characters are escaped.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.style import Style
from rich.table import Table
from rich.text import Text

from numscope.records.finding import Culprit, Finding, Kind, Numbers, Operand
from numscope.records.places import place, source, terminal_link
from numscope.records.words import escape
from numscope.report import frames as frames_text
from numscope.report.frames import NUM_FRAMES

NUM_CALLERS = 3
BAD = "bold red"
QUIET = "dim"
NAME = "bold cyan"


def print_finding(finding: Finding, file: TextIO | None = None, width: int | None = None) -> None:
    """Print the report of a finding.

    Args:
        finding: what to report.
        file: stderr if not given. Colors are used only on a terminal.
        width: columns; if not given, the terminal's, or 80 in a pipe (``COLUMNS`` says otherwise).
    """
    print_plain(render(finding), sys.stderr if file is None else file, width)


def print_plain(report: RenderableType, file: TextIO, width: int | None = None) -> None:
    """Print a report to a file, as ``plain_text`` has it."""
    text = plain_text(report, file, width)
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, "backslashreplace").decode(encoding))  # an ASCII pipe must not end the training
    file.flush()


def plain_text(report: RenderableType, file: TextIO, width: int | None = None, *, colors: bool = True) -> str:
    """A report as it is printed to a file, which decides on colors, if there may be any, and on the width, if none is given."""
    plain = {} if colors else {"color_system": None}  # FORCE_COLOR counts for terminals
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False, force_jupyter=False, **plain)  # type: ignore[arg-type]
    with console.capture() as capture:
        console.print(report, crop=False)
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def apart(blocks: Iterable[Sequence[RenderableType]]) -> list[RenderableType]:
    """The lines of a report's blocks, with an empty line after each block but none for an empty one."""
    return [line for block in blocks if block for line in (*block, Text(""))]


def render(finding: Finding) -> RenderableType:
    """The report of a finding, for any rich console."""
    blocks: list[list[RenderableType]] = [_head(finding)]
    if finding.culprit is not None:
        blocks += [_culprit(finding.culprit), _operands(finding.culprit)]
    elif finding.kind in (Kind.NAN, Kind.INF):
        blocks.append([_field("Culprit", f"unknown: {finding.replay}")])
        if finding.frames:
            blocks[-1].append(_field("", "The frames below end at the first bad value.", QUIET))
    blocks.append(_frames(finding))
    return Group(*apart(blocks)[:-1], Rule(style=BAD))


def _head(finding: Finding) -> list[RenderableType]:
    word = {Kind.SCALER_SKIPS: "skipped steps", Kind.DEAD_GRADIENTS: "dead gradients"}.get(finding.kind, finding.kind.value)
    facts = [f"step {finding.step}", f"batch {finding.batch}", finding.phase.value, f"rank {finding.rank}"]
    if finding.model:
        facts.append(finding.model)
    title = Text.assemble(("numscope: ", "bold"), (f"{'contained ' if finding.contained else ''}{word}", BAD))
    lines: list[RenderableType] = [Rule(title, align="left", style=BAD), _field("Where", str(finding.site), NAME)]
    lines.append(_field("When", ", ".join(facts)))
    if finding.numbers is not None:
        lines.append(_field("What", _sentence(finding.numbers)))
    if finding.note:
        lines.append(_field("Note", finding.note))
    return lines


def _culprit(culprit: Culprit) -> list[RenderableType]:
    module = f" in {culprit.module}" if culprit.module else ""
    lines: list[RenderableType] = [_field("Culprit", f"{culprit.op} ({culprit.phase.value}){module}", NAME)]
    if culprit.file:
        lines.append(_long(Text.assemble(("Line     ", "bold"), _place(culprit.file, culprit.line, "bold"))))
        if culprit.code:  # none in what was exec'd or compiled without its source
            lines.append(_source(culprit))
    callers = [entry for entry in culprit.stack if (entry[0], entry[1]) != (culprit.file, culprit.line)][::-1]
    if len(callers) > NUM_CALLERS:  # the innermost ones, and the outermost, which is the user's script
        callers[NUM_CALLERS - 1 :] = callers[-1:]
    for file, number, function, _ in callers:
        called = Text.assemble(("         called from ", QUIET), _place(file, number, QUIET), (f" in {escape(function)}", QUIET))
        lines.append(_long(called))
    lines.append(_field("Reason", f"{culprit.reason.value}. {culprit.detail}".strip(), "bold"))
    if culprit.advice:
        lines.append(_field("Advice", culprit.advice, "green"))
    return lines


def _source(culprit: Culprit) -> RenderableType:
    """The line at fault between its neighbors; alone if the file is gone or has changed."""
    lines = source(culprit.file, culprit.line, culprit.code)
    if not lines:
        return _long(Text(f"{'> ':>12}{escape(culprit.code.strip())}", style=BAD))
    text = _long(Text())
    for number, code in lines:
        mark, style = (">", BAD) if number == culprit.line else (" ", "")
        text.append(f"{mark:>3}{number:>6} | {escape(code)}".rstrip() + ("\n" if number != lines[-1][0] else ""), style=style)
    return text


def _place(file: str, line: int, style: str) -> Text:
    """A line's place, whole: terminals and editors open it where it is clicked, by its text or by its link."""
    link = terminal_link(file, line)
    return Text(escape(place(file, line)), style=Style.parse(style) + Style(link=link) if link else style)


def _operands(culprit: Culprit) -> list[RenderableType]:
    if not culprit.inputs and not culprit.outputs:
        return []
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("operand", "dtype", "shape"):
        table.add_column(name, overflow="fold")
    for name in ("abs min", "abs max", "nan", "inf"):
        table.add_column(name, justify="right", no_wrap=True)
    for operand in culprit.inputs:
        table.add_row(*_operand_cells(operand, "", "input"))
    for operand in culprit.outputs:
        table.add_row(*_operand_cells(operand, "-> ", "output"))
    return [table]


def _operand_cells(operand: Operand, mark: str, default: str) -> list[Text]:
    name = Text(mark + escape(operand.name or default))
    n = operand.numbers
    if n is None:
        return [name, Text(escape(operand.value))]
    bad = n.num_nonfinite > 0
    cells = [_dtype(n), "x".join(map(str, n.shape)) or "scalar"]
    cells += [_magnitude(0.0 if n.num_zero else n.abs_min), _magnitude(n.abs_max), _count(n.num_nan), _count(n.num_pos_inf + n.num_neg_inf)]
    return [name, *(Text(escape(cell), style=BAD if bad and i >= 4 else "") for i, cell in enumerate(cells))]


def _frames(finding: Finding) -> list[RenderableType]:
    if not finding.frames:
        return []
    shown = finding.frames[-NUM_FRAMES:]
    title = f"Last {len(shown)} of {len(finding.frames)} frames" if len(shown) < len(finding.frames) else "Frames"
    text = _long(Text())
    text.append(f"{title}\n", style="bold")
    text.append(frames_text.HEADER, style=QUIET)
    last = shown[-1].lines
    where = [i for i, line in enumerate(last) if frames_text.is_bad(line)]
    bad = next((i for i in where if last[i].slot == finding.site.slot), where[0] if where else None)
    for frame in shown:
        text.append("\n" + escape(frames_text.head_line(frame)), style=NAME)
        for i, line in enumerate(frame.lines):
            first = frame is shown[-1] and i == bad
            text.append("\n" + escape(frames_text.line_text(line)), style=BAD if first else "")
            if first:
                text.append("   <-- here", style=BAD)
    return [text]


def _long(text: Text) -> Text:
    """Text that only the terminal wraps: a path in two halves can be neither clicked nor copied."""
    text.no_wrap, text.overflow = True, "ignore"
    return text


class _Field:
    """A field whose words are wrapped, and never broken: some of them are to be clicked or pasted."""

    def __init__(self, name: str, value: str, style: str) -> None:
        self._name, self._value, self._style = name, value, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        width = max(1, options.max_width - 9)
        lines = textwrap.wrap(self._value, width, break_long_words=False, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            yield _long(Text.assemble((f"{'' if number else self._name:<9}", "bold"), (line, self._style)))


def _field(name: str, value: str, style: str = "") -> RenderableType:
    return _Field(name, escape(value), style)


def _sentence(n: Numbers) -> str:
    shape = "x".join(map(str, n.shape)) or "scalar"
    counts = [f"{count:,} {word}" for count, word in ((n.num_nan, "nan"), (n.num_pos_inf, "inf"), (n.num_neg_inf, "-inf")) if count]
    parts = [f"{_dtype(n)} {shape}: {', '.join(counts) or 'no nan or inf'} of {n.numel:,}"]
    if n.abs_max is not None:
        parts.append(f"finite magnitudes {_magnitude(0.0 if n.num_zero else n.abs_min)} to {_magnitude(n.abs_max)}")
    return "; ".join(parts)


def _dtype(n: Numbers) -> str:
    return n.dtype.removeprefix("torch.")


def _magnitude(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _count(value: int) -> str:
    return f"{value:,}"
