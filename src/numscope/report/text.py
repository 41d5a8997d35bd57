"""A finding as a report in a terminal, on one screen: what is bad, the line at fault, why, what to do, and the module calls before it.

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
from rich.text import Text

from numscope.records.finding import Culprit, Finding, Kind, Numbers, Operand, magnitudes
from numscope.records.places import place, source, terminal_link
from numscope.records.words import escape
from numscope.report import frames as frames_text
from numscope.report.frames import NUM_FRAMES

_MOST_OUTPUTS = 2
_WIDEST = 2000  # columns of a line that is not wrapped
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
    head = _head(finding)
    blocks = [head, [] if finding.culprit is None else _operands(finding.culprit), _frames(finding)]
    if finding.culprit is not None:
        head += _culprit(finding.culprit)
    elif finding.kind in (Kind.NAN, Kind.INF):
        head.append(_field("Culprit", f"unknown: {finding.replay}"))
        if finding.frames:
            head.append(_field("", "The calls below end at the first bad value.", QUIET))
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
        lines.append(_field("What", _sentence(finding.numbers, magnitudes=finding.culprit is None)))
    if finding.note:
        lines.append(_field("Note", finding.note))
    return lines


def _culprit(culprit: Culprit) -> list[RenderableType]:
    module = f" in {culprit.module}" if culprit.module else ""
    values = ", ".join(f"{one.name or 'input'}={one.value}" for one in culprit.inputs if one.numbers is None)
    name = f"{culprit.op} ({culprit.phase.value}){module}{' with ' if values else ''}{values}"
    lines: list[RenderableType] = [_field("Culprit", name, NAME)]
    if culprit.file:
        lines.append(_long(Text.assemble(("Line     ", "bold"), _place(culprit.file, culprit.line, "bold"))))
        if culprit.code:  # none in what was exec'd or compiled without its source
            lines.append(_source(culprit))
    callers = [entry for entry in culprit.stack if (entry[0], entry[1]) != (culprit.file, culprit.line)]
    for file, number, function, _ in [*callers[:0:-1][:1], *callers[:1]]:  # the innermost one, and the outermost: the user's script
        called = Text.assemble(("         called from ", QUIET), _place(file, number, QUIET), (f" in {escape(function)}", QUIET))
        lines.append(_long(called))
    lines.append(_field("Reason", f"{culprit.reason.value}. {culprit.detail}".strip(), "bold"))
    if culprit.advice:
        lines.append(_field("Advice", culprit.advised, "green"))
    lines += [_field("" if number else "Tried", str(trial), "green" if trial.worked else "") for number, trial in enumerate(culprit.tried)]
    return lines


def _source(culprit: Culprit) -> RenderableType:
    """The line at fault and the one before it; alone if the file is gone or has changed."""
    lines = [one for one in source(culprit.file, culprit.line, culprit.code) if culprit.line - 1 <= one[0] <= culprit.line]
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
    """The tensors that went in, and of those that came out the first and the first bad ones."""
    given = [one for one in culprit.inputs if one.numbers is not None]
    made = [one for one in culprit.outputs if one.numbers is not None]
    bad = [one for one in made if one.numbers is not None and one.numbers.num_nonfinite]
    shown = [one for one in made if one in [*bad, *made][:_MOST_OUTPUTS]]
    if not (given or shown):
        return []
    heads = [Text(name, style="bold") for name in ("operand", "dtype", "shape", "min |x|", "max |x|", "nan", "inf")]
    rows = [heads, *(_operand_cells(one, "", "input") for one in given), *(_operand_cells(one, "-> ", "output") for one in shown)]
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    lines: list[RenderableType] = []
    for row in rows:  # rich's own table takes as long as all the rest
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            (cell.pad_left if number > 2 else cell.pad_right)(width - cell.cell_len)
        lines.append(_long(Text("  ").join(row)))
    return lines


def _operand_cells(operand: Operand, mark: str, default: str) -> list[Text]:
    n = operand.numbers
    assert n is not None
    bad = n.num_nonfinite > 0
    cells = [_dtype(n), "x".join(map(str, n.shape)) or "scalar"]
    cells += [
        *map(_magnitude, magnitudes(n) if n.numel else (None, None)),
        _count(n.num_nan),
        _count(n.num_pos_inf + n.num_neg_inf),
    ]
    styled = [Text(escape(cell), style=BAD if bad and i >= 4 else "") for i, cell in enumerate(cells)]
    return [Text(mark + escape(operand.name or default)), *styled]


def _frames(finding: Finding) -> list[RenderableType]:
    """The last module calls, a line each: what came out of them, and of the last one what went bad."""
    if not finding.frames:
        return []
    shown = finding.frames[-NUM_FRAMES:]
    text = _long(Text())
    of = f"the last {len(shown)} of {len(finding.frames)} module calls" if len(shown) < len(finding.frames) else "module calls"
    text.append(f"{'min |x|':>8} {'max |x|':>8} {of}", style="bold")
    for frame in shown:
        where = [one for one in frame.lines if frames_text.is_bad(one)]
        told = next((one for one in where if one.slot == finding.site.slot), None) if frame is shown[-1] else None
        told = told or (where[0] if where else next((one for one in reversed(frame.lines) if one.numbers is not None), None))
        if told is not None:
            name = f"{frames_text.named(frame)} {told.slot}".strip()
            numbers = frames_text.line_text(told).removesuffix(told.slot).rstrip()
            text.append(f"\n{numbers} {escape(name)}", style=BAD if frame is shown[-1] and where else "")
            text.append("   <-- here" if frame is shown[-1] and where else "", style=BAD)
    return [text]


def _long(text: Text) -> Text:
    """Text that only the terminal wraps: a path in two halves can be neither clicked nor copied."""
    text.no_wrap, text.overflow = True, "ignore"
    return text


class Wide:
    """Text that the terminal alone wraps, as ``_long``: names stay whole."""

    def __init__(self, inner: RenderableType) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        for line in console.render_lines(self._inner, options.update(width=_WIDEST, max_width=_WIDEST, no_wrap=True), pad=False):
            yield _long(Text.assemble(*((segment.text, segment.style or "") for segment in line)))


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


def _sentence(n: Numbers, *, magnitudes: bool) -> str:
    shape = "x".join(map(str, n.shape)) or "scalar"
    counts = [f"{count:,} {word}" for count, word in ((n.num_nan, "nan"), (n.num_pos_inf, "inf"), (n.num_neg_inf, "-inf")) if count]
    parts = [f"{_dtype(n)} {shape}: {', '.join(counts) or 'no nan or inf'} of {n.numel:,}"]
    if magnitudes and n.abs_max is not None:
        parts.append(f"finite magnitudes {_magnitude(0.0 if n.num_zero else n.abs_min)} to {_magnitude(n.abs_max)}")
    return "; ".join(parts)


def _dtype(n: Numbers) -> str:
    return n.dtype.removeprefix("torch.")


def _magnitude(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


def _count(value: int) -> str:
    return f"{value:,}"
