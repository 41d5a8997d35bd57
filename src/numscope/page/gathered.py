"""A page's statistics of a run, gathered part by part, so that only new rows of a live run are read."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from numscope.page.grid import Misfit
from numscope.page.histograms import HistogramCells, Histograms
from numscope.page.matrices import Cells, Matrices
from numscope.page.rank_cells import RankAmax, RankCells
from numscope.records.errors import UsageError
from numscope.runs.folder import Run, find_run
from numscope.runs.query import EVERY, VIEW, reading, strings
from numscope.runs.sources import Fingerprint
from numscope.sinks.part_files import PartName
from numscope.sinks.runfolder import STATISTICS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """A run's statistics as a page shows them."""

    matrices: Matrices
    histograms: Histograms | None
    ranks: RankAmax | None
    starts: tuple[tuple[int, int], ...]  # the first step of each attempt
    problems: tuple[str, ...]  # parts that could not be read, a sentence each


@dataclass(frozen=True, slots=True)
class _Known:
    """A part that was read."""

    part: PartName
    fingerprint: Fingerprint
    num_rows: int


@dataclass(slots=True)
class Gathered:
    """Numbers of the parts that were read. All of it follows from the parts, in whatever order and portions they came."""

    _cells: Cells = field(default_factory=Cells)
    _ranks: RankCells = field(default_factory=RankCells)
    _histograms: HistogramCells = field(default_factory=HistogramCells)
    _known: dict[str, _Known] = field(default_factory=dict)
    _spans: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # first and last step by rank and attempt, of all rows
    _starts: dict[int, int] = field(default_factory=dict)  # first step by attempt, of the rows that count
    _damaged: dict[str, Fingerprint] = field(default_factory=dict)
    _findings: tuple[int, ...] = ()

    def update(self, run: Run, findings: Sequence[int]) -> bool:
        """Read what the run has beyond what is known. If it has less, all is read again.

        Args:
            findings: steps with findings.

        Returns: whether anything changed.
        Raises: UsageError where nothing can be read.
        """
        before = (dict(self._known), dict(self._damaged), self._findings)
        try:
            self._update(run, tuple(findings))
        except Misfit:
            self._set(Gathered())
            self._update(run, tuple(findings))
        return before != (self._known, self._damaged, self._findings)

    def statistics(self) -> RunStatistics:
        """The statistics for a page."""
        shown = self._cells.shown()
        matrices = self._cells.matrices(self._findings, shown, self._ranks.num_ranks(shown))
        problems = tuple(f"{STATISTICS}/{name} could not be read and is left out." for name in sorted(self._damaged))
        starts = tuple(sorted(self._starts.items()))
        return RunStatistics(matrices, self._histograms.histograms(shown), self._ranks.ranks(shown), starts, problems)

    def _set(self, other: Gathered) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))

    def _update(self, run: Run, findings: tuple[int, ...]) -> None:
        if self._new(run).parts:
            try:
                self._take(run, findings, self._new)
            except UsageError:
                run = find_run(run.path)  # it may have merged parts meanwhile
                if not self._leave_out_damaged(self._new(run)):
                    raise
                if self._new(run).parts:
                    self._take(run, findings, self._new)
        if findings != self._findings:
            self._cells = self._cells.refit(findings)
            self._findings = findings

    def _leave_out_damaged(self, run: Run) -> bool:
        """Read each part by itself to see which ones can't be. Returns: whether there are such, and others."""
        damaged = {}
        for part in run.parts:
            try:
                Gathered()._take(run, (), lambda run, part=part: replace(run, parts=(part,), known_rows={}, known_starts={}))  # type: ignore[misc]
            except UsageError:
                damaged[part.name] = run.listed[part.name]
        if not damaged or (len(damaged) == len(run.parts) and not self._known):
            return False
        self._damaged.update(damaged)
        return True

    def _take(self, run: Run, findings: tuple[int, ...], choose: Callable[[Run], Run]) -> None:
        chosen = run

        def choose_anew(run: Run) -> Run:
            nonlocal chosen
            chosen = choose(run)
            return chosen

        known = set(run.broken)
        self._set(reading(run, lambda connection: self._with_rows(connection, chosen, findings), choose_anew, held=True))
        self._damaged |= {name: chosen.listed[name] for name in chosen.broken if name not in known and name in chosen.listed}

    def _with_rows(self, connection: DuckDBPyConnection, run: Run, findings: tuple[int, ...]) -> Gathered:
        """These numbers with a connection's rows added. Raises: Misfit."""
        spans = dict(self._spans)
        rows = connection.execute(f"SELECT rank, attempt, min(step), max(step) FROM {EVERY} GROUP BY ALL").fetchall()
        for rank, attempt, first, last in rows:
            known = self._spans.get((rank, attempt), (first, last))
            spans[rank, attempt] = first, last = min(first, known[0]), max(last, known[1])
            if any(r == rank and a < attempt and end >= first for (r, a), (_, end) in self._spans.items()):
                raise Misfit  # a restarted job ran steps again that are known from before
        starts = dict(self._starts)
        for attempt, step in connection.execute(f"SELECT attempt, min(step) FROM {VIEW} GROUP BY attempt").fetchall():
            starts[attempt] = min(step, starts.get(attempt, step))
        paths = {run.path_of(part.name): part for part in run.parts}
        sql = f"SELECT file_name, num_rows FROM parquet_file_metadata([{strings(map(glob.escape, paths))}])"
        sizes = dict(connection.execute(sql).fetchall())
        new = {part.name: _Known(part, run.listed[part.name], int(sizes[path])) for path, part in paths.items()}
        known_parts = {name: one for name, one in self._known.items() if not any(part.holds(one.part) for part in run.parts)} | new
        cells = self._cells.with_rows(connection, findings)
        ranks, histograms = self._ranks.with_rows(connection), self._histograms.with_rows(connection)
        return Gathered(cells, ranks, histograms, known_parts, spans, starts, self._damaged, findings)

    def _new(self, run: Run) -> Run:
        """The run reduced to the rows that are not known yet. Raises: Misfit."""
        present = {part.name: run.listed[part.name] for part in run.parts}
        if any(name in present and present[name] != known.fingerprint for name, known in self._known.items()):
            raise Misfit  # written anew
        gone = self._known.keys() - present.keys()
        wanted, rows = [], {}
        for part in run.parts:
            if part.name in self._known or self._damaged.get(part.name) == present[part.name]:
                continue
            inside = [known for known in self._known.values() if part.holds(known.part)]
            inside.sort(key=lambda known: known.part.first)
            ends = [part.first, *(known.part.last + 1 for known in inside)]
            if any(known.part.first != end for known, end in zip(inside, ends, strict=False)):
                raise Misfit  # something between them was not read
            gone -= {known.part.name for known in inside}
            wanted.append(part)
            rows[part.name] = sum(known.num_rows for known in inside)
        if gone:
            raise Misfit
        starts = {key: first for key, (first, _) in self._spans.items()}
        return replace(run, parts=tuple(wanted), known_rows=rows, known_starts=starts)
