"""The verdict as a readable report, and as JSON values.

Names, errors and values come from hosts and other programs: they are never interpreted as markup, and control characters are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import Any, TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from numscope.doctor.diagnose.baseline import measured
from numscope.doctor.diagnose.blame import hosts_of
from numscope.doctor.diagnose.transfers import pair_cells
from numscope.doctor.findings import listed
from numscope.doctor.phases.rounds import group_of
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase, PhaseResult, Verdict, cells_of
from numscope.doctor.records import to_json as as_json
from numscope.doctor.redact import redacted
from numscope.records.words import count, escape, named
from numscope.version import __version__

SCHEMA = 4  # version of the JSON; increases when a key changes its meaning or is removed
MOST_ROWS = 32  # with more ranks a row stands for a host, and few healthy ones are shown
MOST_NODES = 12  # rows of the matrix of links
_EVIDENCE_LINES = 6
_NARROW = 90  # columns, below which long headers take two lines: the host's name would be cut otherwise
_BROKEN_HEADERS = {ExamPhase.RENDEZVOUS: "rendez-\nvous", ExamPhase.COLLECTIVES: "collec-\ntives"}
_EXIT = {
    0: "healthy",
    1: "a fault was found",
    2: "wrong usage",
    3: "something failed, and the cause is unknown",
    4: "degraded",
    5: "incomplete: not everything was examined",
    70: "the doctor itself failed",
}
_SEVERITY = {"fault": "bold red", "degraded": "bold yellow", "note": "cyan"}
_MARKS = {  # by status of a link or a pair: its mark in a matrix, and what that means
    "ok": (".", "works"),
    "refused": ("R", "refused"),
    "dropped": ("D", "dropped"),
    "unreachable": ("U", "unreachable"),
    "reset": ("X", "reset"),
    "silent": ("S", "process unresponsive"),
    "stranger": ("W", "something else answers"),
    "denied": ("T", "wrong token"),
    "stalled": ("M", "large packets stall"),
    "blocked": ("P", "ephemeral ports blocked"),
    "failed": ("F", "failed"),
    "corrupt": ("C", "corrupt"),
    "timeout": ("H", "hangs"),
    "error": ("E", "error"),
    "other": ("?", "other"),
    "skipped": (" ", ""),
}
_FINE = ". "  # marks of what does not fail


def print_verdict(verdict: Verdict, examined: Examined, file: TextIO, width: int | None = None) -> None:
    """Prints the report, in the terminal's or 100 columns, with colors only on a terminal."""
    verdict, examined = redacted(verdict, examined) if examined.settings.redact else (verdict, examined)
    width = width or (None if file.isatty() else 100)
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(_render(verdict, examined, console.width), crop=False)
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    encoding = getattr(file, "encoding", None) or "utf-8"
    file.write(text.encode(encoding, "backslashreplace").decode(encoding))  # an ASCII pipe must not end the report
    file.flush()


def to_json(verdict: Verdict, examined: Examined) -> dict[str, Any]:
    """The report as JSON values, documented in docs/doctor-json.md. It never contains the token."""
    verdict, examined = redacted(verdict, examined) if examined.settings.redact else (verdict, examined)
    settings = {key: value for key, value in as_json(examined.settings).items() if key not in ("token", "file")}
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
        "results": [{**as_json(result), "name": result.phase.label} for result in examined.results],
        "not_examined": not_examined(examined),
        "measured": measured(examined),
    }


def not_examined(examined: Examined) -> list[str]:
    """A sentence for each phase that did not examine all pairs of nodes or ranks that took part in it: a fault there is not excluded."""
    links = [(cell["from_node"], cell["to_node"], cell) for _, cell in examined.each(ExamPhase.LINKS, "cells")]
    pairs = [(rank, pair["peer"], pair) for rank, pair in examined.each(ExamPhase.PAIRS, "pairs")]
    found = []
    for phase, what, between in ((ExamPhase.LINKS, "nodes", links), (ExamPhase.PAIRS, "ranks", pairs)):
        done = {frozenset((one, other)) for one, other, cell in between if cell.get("status") != "skipped"}
        skipped = {frozenset((one, other)): str(cell.get("error", "")) for one, other, cell in between if cell.get("status") == "skipped"}
        num = len({each for one, other, _ in between for each in (one, other)})
        if len(done) < num * (num - 1) // 2:
            partners = Counter(each for pair in done for each in pair).values()
            each = f"{min(partners)} to {max(partners)}" if partners and min(partners) < max(partners) else str(max(partners, default=0))
            text = (
                f"{phase.title} examined {len(done):,} of {num * (num - 1) // 2:,} pairs of {what}, each of the {num:,} with {each} others"
            )
            names = [
                f"{' and '.join(map(str, sorted(pair)))} ({why})" for pair, why in sorted(skipped.items(), key=str) if pair not in done
            ]
            found.append(f"{text}{f'; skipped: {listed(names)}' if names else ''}. A fault between two others stays unseen.")
    groups = group_of(max(examined.expected - 1, 0), max(examined.expected, 1)) + 1
    if groups > 1 and examined.of(ExamPhase.BACKEND):
        found.append(f"Phases 4 to 6 ran in {groups} groups of ranks, so nothing between these groups was examined there.")
    return found


def _render(verdict: Verdict, examined: Examined, width: int) -> RenderableType:
    blocks: list[RenderableType] = [_head(verdict, examined)]
    if examined.results and examined.roster:
        blocks += [Text(""), _phases(examined, verdict, width)]
        well = set(verdict.ok)
        if any(result.rank in well and result.status in ("failed", "timeout", "silent") for result in examined.results):
            blocks.append(Text("failed in lower case: caused by another rank or link", "dim"))
    blocks += _matrices(examined)
    if missed := not_examined(examined):
        blocks += [Text(""), *(Text(escape(line), "dim") for line in missed)]
    for finding in verdict.findings:
        blocks += [Text(""), *_finding(finding)]
    return Group(*blocks)


def _head(verdict: Verdict, examined: Examined) -> Text:
    hosts = len(set(hosts_of(examined).values()))
    came = f"{len(examined.roster)} of {examined.expected} ranks joined, on {count(hosts, 'host')}; " if examined.roster else ""
    style = "bold green" if verdict.exit_code == 0 else "bold yellow" if verdict.exit_code in (4, 5) else "bold red"
    words = _EXIT.get(verdict.exit_code, "")
    degraded = sum(each.severity == "degraded" for each in verdict.findings)
    if verdict.exit_code == 0 and degraded:
        words += f", with {count(degraded, 'degradation')}"
    facts = f"{came}{verdict.seconds:.1f} s; exit code {verdict.exit_code}"
    return Text.assemble(("numscope doctor: ", "bold"), (words, style), "\n", (facts, "dim"))


def _phases(examined: Examined, verdict: Verdict, width: int) -> Table:
    """A column per phase, a row per rank (or per host, if there are many)."""
    phases = sorted({result.phase for result in examined.results})
    of = {(result.rank, result.phase): result for result in examined.results}
    hosts = hosts_of(examined)
    narrow = width < _NARROW
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0 if narrow else (0, 1, 0, 0))
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("host", overflow="fold", min_width=4)
    for phase in phases:
        table.add_column(_BROKEN_HEADERS.get(phase, phase.label) if narrow else phase.label, no_wrap=True)
    ranks = sorted({result.rank for result in examined.results} | set(examined.roster))
    many = len(ranks) > MOST_ROWS
    rows: dict[str, list[int]] = {}
    for rank in ranks:
        rows.setdefault(hosts.get(rank, "?") if many else str(rank), []).append(rank)
    well = set(verdict.ok)
    healthy = [members for members in rows.values() if well.issuperset(members)][: 4 if many else MOST_ROWS]
    others = [members for members in rows.values() if not well.issuperset(members)][:MOST_ROWS]
    for members in sorted(healthy + others):
        cells = [_cell([result for rank in members if (result := of.get((rank, phase)))], well) for phase in phases]
        table.add_row(named(members, 3).partition(" ")[2], escape(hosts.get(members[0], "did not join")), *cells)
    if left_out := len(rows) - len(healthy) - len(others):
        table.add_row("…", f"{left_out} more", *[""] * len(phases))
    return table


def _cell(results: list[PhaseResult], well: Set[int]) -> Text:
    """The worst of a row's results."""
    worst = ("failed", "timeout", "silent", "skipped", "ok")
    status: str = min((result.status for result in results), key=worst.index, default="")
    alike = [result for result in results if result.status == status]
    if status == "ok":
        seconds = max(result.seconds for result in alike)
        return Text(f"ok {seconds:.1f}s" if seconds >= 0.1 else f"ok {seconds * 1e3:.0f}ms", "green")
    if status in ("", "skipped"):
        word, style = status, "dim"
    else:
        caused = all(result.rank in well for result in alike)  # by another rank
        word, style = (status, "yellow") if caused else (status.upper(), "bold red")
    return Text(word if len(results) < 2 else f"{len(alike)} {word}", style)


def _matrices(examined: Examined) -> list[RenderableType]:
    """The matrices in which something fails."""
    hosts = hosts_of(examined)
    links: dict[tuple[str, str], str] = {}
    for rank, result in sorted(examined.of(ExamPhase.LINKS).items()):
        for cell in cells_of(result):
            ends = hosts.get(rank, cell.from_host), hosts.get(cell.to_rank, cell.to_host)
            links[ends] = _mark_of("blocked" if cell.status == "ok" and not cell.works else cell.status)
    all_marks = {"links, from the row's host to the column's": links}
    for backend, cells in sorted(pair_cells(examined).items()):
        pairs = {(str(one), str(other)): _mark_of(str(pair["status"])) for (one, other), pair in cells.items()}
        all_marks[f"transfers over {backend}, from the row's rank to the column's"] = pairs
    shown: list[RenderableType] = []
    for name, marks in all_marks.items():
        if not set(marks.values()) <= set(_FINE):
            used = [f"{mark} {meaning}" for mark, meaning in _MARKS.values() if meaning and mark in marks.values()]
            shown += [Text(""), Text(f"{name} ({', '.join(used)})"), _matrix(marks)]
    return shown


def _mark_of(status: str) -> str:
    return _MARKS.get(status, _MARKS["other"])[0]


def _matrix(cells: Mapping[tuple[str, str], str]) -> Table:
    def key(name: str) -> tuple[int, str]:
        return (int(name), "") if name.isdecimal() and len(name) < 10 else (-1, name)  # a number of a node, or a host's name

    names = sorted({name for pair in cells for name in pair}, key=key)
    if len(names) > MOST_NODES:  # those with most failures
        counts = Counter(name for pair, mark in cells.items() if mark not in _FINE for name in pair)
        names = sorted(sorted(names, key=lambda name: -counts[name])[:MOST_NODES], key=key)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for name in names:
        table.add_column(escape(name), justify="center")
    for one in names:
        marks = {other: "-" if one == other else cells.get((one, other), " ") for other in names}
        styles = {"-": "dim", ".": "green"}
        table.add_row(Text(escape(one)), *(Text(mark, styles.get(mark, "bold red")) for mark in marks.values()))
    return table


def _finding(finding: DoctorFinding) -> list[RenderableType]:
    head = Text.assemble(
        (f"{finding.severity}: ", _SEVERITY[finding.severity]),
        (escape(finding.summary), "bold"),
        (f"  [{finding.id}, {finding.confidence}]", "dim"),
    )
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=8, style="dim")
    grid.add_column(overflow="fold")
    evidence = [Text(escape(line)) for line in finding.evidence[:_EVIDENCE_LINES]]
    if len(finding.evidence) > _EVIDENCE_LINES:
        evidence.append(Text(f"and {len(finding.evidence) - _EVIDENCE_LINES} more, in the JSON report"))
    for title, lines in (("  seen", evidence), ("  try", [Text(escape(line), "cyan") for line in finding.remedy])):
        for at, line in enumerate(lines):
            grid.add_row("" if at else title, line)
    return [head, grid] if grid.rows else [head]
