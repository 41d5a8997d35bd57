"""The verdict as a report to read, and as JSON values.

Names, errors and values come from hosts and other programs: they are shown as they are, never read as markup, and what would steer a
terminal is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from numscope.doctor.diagnose.baseline import measured
from numscope.doctor.diagnose.blame import hosts_of
from numscope.doctor.findings.telling import named
from numscope.doctor.records import PHASES, Examined, Finding, PhaseResult, Verdict
from numscope.doctor.records import to_json as as_json
from numscope.doctor.redact import Redaction

SCHEMA = 1  # of the JSON; grows when a key changes its meaning or goes
MOST_ROWS = 32  # ranks, above which a row stands for a host, and only for those with something to say
MOST_NODES = 12  # of the matrix of links
_EVIDENCE_LINES = 6
_BROKEN = tuple({"rendezvous": "rendez-\nvous", "collectives": "collec-\ntives"}.get(name, name) for name in PHASES)
_EXIT = {
    0: "healthy",
    1: "something is broken, and it is known what",
    2: "wrong use",
    3: "something is broken, and what was seen does not say what",
    4: "works, worse than it could",
    5: "incomplete: not all was examined",
    70: "the doctor itself failed",
}
_CELL = {
    "ok": ("ok", "green"),
    "failed": ("FAILED", "bold red"),
    "skipped": ("skipped", "dim"),
    "timeout": ("TIMEOUT", "bold red"),
    "silent": ("SILENT", "bold red"),
}
_SEVERITY = {"fault": "bold red", "degraded": "bold yellow", "note": "cyan"}
_LINK = {
    "ok": ".",
    "refused": "R",
    "dropped": "D",
    "unreachable": "U",
    "reset": "X",
    "silent": "S",
    "stranger": "W",
    "denied": "T",
    "stalled": "M",
    "skipped": " ",
    "failed": "F",
}
_MARKS = {
    ".": "works",
    "R": "refused",
    "D": "dropped",
    "U": "unreachable",
    "X": "reset",
    "S": "process silent",
    "W": "somebody else answers",
    "T": "other token",
    "M": "large packets stall",
    "P": "freshly opened ports blocked",
    "F": "failed",
    "C": "corrupt",
    "H": "hangs",
    "E": "error",
    "?": "other",
}


def print_verdict(verdict: Verdict, examined: Examined, file: TextIO, width: int | None = None) -> None:
    """Prints the report.

    Args:
        width: columns; if not given, the terminal's, or 100 in a pipe. Colors only on a terminal.
    """
    verdict, examined = Redaction(examined).applied(verdict, examined) if examined.settings.redact else (verdict, examined)
    if width is None and not file.isatty():
        width = 100
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(render(verdict, examined), crop=False)
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, "backslashreplace").decode(encoding))  # a pipe in ASCII must not end the report
    file.flush()


def to_json(verdict: Verdict, examined: Examined) -> dict[str, Any]:
    """The report as JSON values, as docs/doctor-json.md says. The token is never in it."""
    from numscope.version import __version__

    verdict, examined = Redaction(examined).applied(verdict, examined) if examined.settings.redact else (verdict, examined)
    settings = {key: value for key, value in as_json(examined.settings).items() if key != "token"}
    return {
        "schema": SCHEMA,
        "numscope": __version__,
        "exit_code": verdict.exit_code,
        "summary": _EXIT.get(verdict.exit_code, ""),
        "seconds": verdict.seconds,
        "expected": examined.expected,
        "came": len(examined.roster),
        "ok": list(verdict.ok),
        "findings": [as_json(each) for each in verdict.findings],
        "settings": settings,
        "roster": {str(rank): dict(entry) for rank, entry in sorted(examined.roster.items())},
        "refused": [dict(each) for each in examined.refused],
        "hub": dict(examined.hub),
        "results": [{**as_json(result), "name": result.name} for result in examined.results],
        "measured": measured(examined),
    }


def escape(text: str) -> str:
    """The text with everything that a terminal would not print written as its escape: line breaks, colors, bells, direction marks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def render(verdict: Verdict, examined: Examined) -> RenderableType:
    """The report, for any rich console."""
    blocks: list[RenderableType] = [_head(verdict, examined)]
    if examined.results and examined.roster:
        blocks += [Text(""), _Fitting(examined, verdict)]
        if any(result.rank in verdict.ok and result.status in ("failed", "timeout", "silent") for result in examined.results):
            blocks.append(Text("failed in small letters: only because of another rank or link", "dim"))
    for name, matrix in _matrices(examined):
        blocks += [Text(""), Text(name), matrix]
    for finding in verdict.findings:
        blocks += [Text(""), *_finding(finding)]
    return Group(*blocks)


def _head(verdict: Verdict, examined: Examined) -> Text:
    hosts = len(set(hosts_of(examined).values()))
    came = (
        f"{len(examined.roster)} of {examined.expected} ranks came, on {hosts} host{'s' if hosts != 1 else ''}; " if examined.roster else ""
    )
    style = "bold green" if verdict.exit_code == 0 else "bold yellow" if verdict.exit_code in (4, 5) else "bold red"
    words = _EXIT.get(verdict.exit_code, "")
    degraded = sum(each.severity == "degraded" for each in verdict.findings)
    if verdict.exit_code == 0 and degraded:
        words += f", with {degraded} thing{'s' if degraded > 1 else ''} that could be better"
    facts = f"{came}{verdict.seconds:.1f} s; exit code {verdict.exit_code}"
    return Text.assemble(("numscope doctor: ", "bold"), (words, style), "\n", (facts, "dim"))


class _Fitting:
    """The table of phases, closer, its long headers in two lines, where the console is narrow: what is cut else is the host's name."""

    def __init__(self, examined: Examined, verdict: Verdict) -> None:
        self._examined = examined
        self._verdict = verdict

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _phases(self._examined, self._verdict, PHASES)
        if console.measure(table, options=options.update(width=1000)).maximum > options.max_width:
            table = _phases(self._examined, self._verdict, _BROKEN)
            table.padding = 0
        yield table


def _phases(examined: Examined, verdict: Verdict, headers: Sequence[str]) -> Table:
    """Phases across, ranks (or hosts, if they are many) down."""
    phases = sorted({result.phase for result in examined.results})
    of: dict[tuple[int, int], PhaseResult] = {(result.rank, result.phase): result for result in examined.results}
    hosts = hosts_of(examined)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("host", overflow="fold", min_width=4)
    for phase in phases:
        table.add_column(headers[phase], no_wrap=True)
    rows: dict[str, list[int]] = {}
    ranks = sorted({result.rank for result in examined.results} | set(examined.roster))
    for rank in ranks:
        key = hosts.get(rank, "?") if len(ranks) > MOST_ROWS else str(rank)
        rows.setdefault(key, []).append(rank)
    left_out = 0
    for at, members in enumerate(rows.values()):
        fine = all(rank in verdict.ok for rank in members)
        if at >= MOST_ROWS or (len(ranks) > MOST_ROWS and fine and at >= 4):
            left_out += 1
            continue
        cells = [_cell([of.get((rank, phase)) for rank in members], verdict) for phase in phases]
        table.add_row(named(members, 3).partition(" ")[2], escape(hosts.get(members[0], "did not come")), *cells)
    if left_out:
        table.add_row("…", f"{left_out} more", *[""] * len(phases))
    return table


def _cell(results: list[PhaseResult | None], verdict: Verdict) -> Text:
    worst = ("failed", "timeout", "silent", "skipped", "ok")
    there = [result for result in results if result is not None]
    if not there:
        return Text("", "dim")
    status = min((result.status for result in there), key=worst.index)
    word, style = _CELL[status]
    if word.isupper() and all(result.rank in verdict.ok for result in there if result.status == status):
        word, style = word.lower(), "yellow"  # only because of another rank
    count = sum(result.status == status for result in there)
    if status == "ok":
        return Text(f"{word} {_seconds(max(result.seconds for result in there))}", style)
    return Text(word if len(there) == 1 else f"{count} {word}", style)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds >= 0.1 else f"{seconds * 1e3:.0f}ms"


def _matrices(examined: Examined) -> list[tuple[str, Table]]:
    """Who reaches whom, where somebody does not."""
    found = []
    hosts = hosts_of(examined)
    links: dict[tuple[str, str], str] = {}
    for rank, result in sorted(examined.of(3).items()):
        for cell in result.data.get("cells", ()):
            one, other = hosts.get(rank, str(cell.get("from_host", ""))), hosts.get(int(cell["to_rank"]), str(cell.get("to_host", "")))
            status = str(cell["status"])
            links[one, other] = "P" if status == "ok" and cell.get("ephemeral", "ok") != "ok" else _LINK.get(status, "?")
    if any(mark not in ". " for mark in links.values()):
        found.append(("links, from the row's host to the column's", links))
    for backend in sorted({str(pair.get("backend")) for result in examined.of(5).values() for pair in result.data.get("pairs", ())}):
        marks = {"ok": ".", "corrupt": "C", "timeout": "H", "error": "E", "skipped": " "}
        pairs = {
            (str(pair["peer"]), str(rank)): marks.get(str(pair["status"]), "?")
            for rank, result in sorted(examined.of(5).items())
            for pair in result.data.get("pairs", ())
            if str(pair.get("backend")) == backend
        }
        if any(mark not in ". " for mark in pairs.values()):
            found.append((f"transfers over {backend}, from the row's rank to the column's", pairs))
    return [(_legend(name, cells), _matrix(cells)) for name, cells in found]


def _legend(name: str, cells: Mapping[tuple[str, str], str]) -> str:
    used = [mark for mark in _MARKS if mark in cells.values()]
    return f"{name} ({', '.join(f'{mark} {_MARKS[mark]}' for mark in used)})"


def _matrix(cells: Mapping[tuple[str, str], str]) -> Table:
    def key(name: str) -> tuple[int, str]:
        return (int(name), "") if name.isdigit() else (-1, name)

    names = sorted({name for pair in cells for name in pair}, key=key)
    if len(names) > MOST_NODES:  # those with something wrong first
        bad = {name for pair, mark in cells.items() if mark not in ". " for name in pair}
        counts = {name: sum(mark not in ". " for pair, mark in cells.items() if name in pair) for name in bad}
        names = sorted(sorted(names, key=lambda name: -counts.get(name, 0))[:MOST_NODES], key=key)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for name in names:
        table.add_column(escape(name), justify="center")
    for one in names:
        marks = [Text("-", "dim") if one == other else _mark(cells.get((one, other), " ")) for other in names]
        table.add_row(Text(escape(one)), *marks)
    return table


def _mark(mark: str) -> Text:
    return Text(mark, "green" if mark == "." else "bold red")


def _finding(finding: Finding) -> list[RenderableType]:
    head = Text.assemble(
        (f"{finding.severity}: ", _SEVERITY[finding.severity]),
        (escape(finding.summary), "bold"),
        (f"  [{finding.id}, {finding.confidence}]", "dim"),
    )
    lines: list[RenderableType] = [head]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=8, style="dim")
    grid.add_column(overflow="fold")
    for at, line in enumerate(finding.evidence[:_EVIDENCE_LINES]):
        grid.add_row("  seen" if at == 0 else "", escape(line))
    if len(finding.evidence) > _EVIDENCE_LINES:
        grid.add_row("", f"and {len(finding.evidence) - _EVIDENCE_LINES} more, in the JSON report")
    for at, line in enumerate(finding.remedy):
        grid.add_row("  try" if at == 0 else "", Text(escape(line), "cyan"))
    return [head, grid] if finding.evidence or finding.remedy else lines
