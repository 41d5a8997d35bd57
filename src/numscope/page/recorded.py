"""The content of a run folder for a page: statistics, findings, alerts, attempts, and files that could not be read."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numscope.page.histograms import Histograms, read_histograms
from numscope.page.matrices import Matrices, read_matrices
from numscope.page.rank_cells import RankAmax, read_ranks
from numscope.records.alert import Alert, parse_alert
from numscope.records.attempt import attempts
from numscope.records.errors import UsageError
from numscope.records.files import parse_json, read_bytes, read_json
from numscope.records.finding import Finding
from numscope.runs.folder import Run, find_run
from numscope.runs.query import RAW, reading
from numscope.runs.sources import Remote
from numscope.sinks.runfolder import STATISTICS, read_attempts
from numscope.storage.address import is_address

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pydantic import TypeAdapter

MAX_FINDINGS = 200  # on a page; a run that does not stop at the first finding may have one for each step
MAX_ALERTS = 200
SAME_STEPS = 50  # between ranks that come to the same alert
MAX_STACK, MAX_FRAMES = 40, 60
MAX_EVENTS = 2000
LONGEST_NAME = 20_000
MAX_COMMAND, MAX_SETTING = 20_000, 4000  # characters
MAX_STEP = 1 << 53  # what JavaScript counts exactly

Differing = list[tuple[str, str, str]]  # name, A's value and B's; "" where a run has none

_NAME = re.compile(r"findings-rank(\d+)(?:-(\d+))?\.json")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened at a step and is not a finding, such as a step that GradScaler skipped."""

    step: int
    rank: int  # the first one of those that had it at that step
    text: str
    num_ranks: int = 1  # how many had


@dataclass(frozen=True, slots=True)
class AlertOfRanks:
    """An alert, with the ranks that had it; its step and numbers are those of the first of them."""

    alert: Alert
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as its folder holds it."""

    path: str  # the folder, absolute
    run: Run | None  # its statistics; None if there are none
    findings: tuple[Finding, ...]  # escaped ones, then contained ones, each by step; at most ``MAX_FINDINGS``
    num_findings: int  # how many there are
    latest: tuple[Finding, ...]  # those of the last attempt, in the same order
    alerts: tuple[AlertOfRanks, ...]  # by step; at most ``MAX_ALERTS``
    num_alerts: int  # how many there are
    events: tuple[Happening, ...]  # by step
    num_steps: int  # steps that detection counted, over all ranks and attempts
    model: str  # classes of the watched models
    attempts: tuple[dict[str, Any], ...]  # the entries of ``run.json``
    layers: tuple[tuple[str, str], ...]  # layers that the ranks described: name, class
    watched: bool  # whether detection wrote findings files
    killed: tuple[str, ...]  # names of findings files of processes that did not end by themselves
    problems: tuple[str, ...]  # what could not be read, a sentence each

    @property
    def last_attempt(self) -> dict[str, Any]:
        """The entry of ``run.json`` on it; empty without one."""
        return self.attempts[-1] if self.attempts else {}

    @property
    def num_ended(self) -> int:
        """Steps that had ended when the run did, as its last line counts them; 0 where they are not known, or of several attempts."""
        return self.num_steps if self.watched and not self.killed and len(self.attempts) <= 1 else 0

    @property
    def versions(self) -> dict[str, str]:
        """Versions of numscope, Python and torch in the last attempt."""
        return self._texts("versions")

    @property
    def environment(self) -> dict[str, str]:
        """The last attempt's environment: facts besides its code on which its numbers depend."""
        return self._texts("environment")

    def _texts(self, key: str) -> dict[str, str]:
        told = self.last_attempt.get(key)
        return {str(name): str(value) for name, value in told.items()} if isinstance(told, dict) else {}

    @property
    def command(self) -> str:
        """The last attempt's command line, which a shell reads; empty if none was stored."""
        words = self.last_attempt.get("command")
        text = shlex.join(map(str, words)) if isinstance(words, list) else words if isinstance(words, str) else ""
        return text[:MAX_COMMAND]

    @property
    def settings(self) -> dict[str, str]:
        """The last attempt's, in the order in which they matter: what was run, with what, on what."""
        versions = {f"version of {name}": value for name, value in self.versions.items()}
        told = {"command": self.command, "configuration": str(self.last_attempt.get("config", "")), "model": self.model}
        told |= {"world size": str(self.last_attempt.get("world_size", "")), **versions, **self.environment}
        return {name[:200]: value[:MAX_SETTING] for name, value in told.items()}

    @property
    def marked_steps(self) -> list[int]:
        """Steps with findings and alerts."""
        return [finding.step for finding in self.findings] + [one.alert.step for one in self.alerts]


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """A run's statistics as a page shows them."""

    matrices: Matrices
    histograms: Histograms | None
    ranks: RankAmax | None
    starts: tuple[tuple[int, int], ...]  # the first step of each attempt


def differing(a: Recorded, b: Recorded) -> Differing:
    """The settings that two runs were started with and that are not the same. Facts that one run did not record are no difference."""
    left, right = a.settings, b.settings
    asked = dict.fromkeys([*left, *right])
    if not (a.environment and b.environment):
        asked = {name: None for name in asked if name in left and name in right}
    return [(name, left.get(name, ""), right.get(name, "")) for name in asked if left.get(name, "") != right.get(name, "")]


def read_recorded(folder: str | os.PathLike[str], where: str = "RUN", copied: str | None = None) -> Recorded:
    """Reads a run's folder. Damaged files are left out and named in ``problems``.

    Args:
        folder: the ``log_dir`` of the run.
        where: what messages call it.
        copied: where the files of a run in another storage are; None: its JSON files are copied, and its statistics read where they are.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    """
    given = os.fspath(folder)
    if copied is not None or not is_address(given):
        return _read(given, copied or os.path.abspath(given), copied or given, where)
    source = Remote(given, where)
    try:
        source.check()
        return _read(given, source.fetch({name: told for name, told in source.signature().items() if name.endswith(".json")}), given, where)
    finally:
        source.close()


def _read(given: str, path: str, statistics: str, where: str) -> Recorded:
    """A run, whose JSON files are in the folder ``path``, and its statistics in another one or in the same."""
    names = sorted(filter(_NAME.fullmatch, os.listdir(path))) if os.path.isdir(path) else []
    problems: list[str] = []
    run = None
    try:
        run = find_run(statistics, where)
        problems += run.problems
    except UsageError as error:
        if not names:
            raise
        parts = os.path.join(path, STATISTICS)
        if os.path.islink(parts) or (os.path.isdir(parts) and any(name.endswith(".parquet") for name in os.listdir(parts))):
            problems.append(f"No statistics could be read. {error}")
    files = read_findings(path, names, problems)
    findings, alerts = distinct_findings(files), merged_alerts(files)
    last = max((file.attempt for file in files), default=0)
    return Recorded(
        path=given.rstrip("/") if is_address(given) else path,
        run=run,
        findings=tuple(findings[:MAX_FINDINGS]),
        num_findings=len(findings),
        latest=tuple(distinct_findings(file for file in files if file.attempt == last)[:MAX_FINDINGS]),
        alerts=tuple(alerts[:MAX_ALERTS]),
        num_alerts=len(alerts),
        events=tuple(_merged_events(files)[:MAX_EVENTS]),
        num_steps=max((file.num_steps for file in files), default=0),
        model=", ".join(dict.fromkeys(file.model for file in files if file.model)),
        attempts=tuple(read_attempts(path)),
        layers=tuple(_layers(path, problems)),
        watched=any(file.detecting for file in files),
        killed=tuple(file.name for file in files if not file.ended),
        problems=tuple(problems),
    )


def read_statistics(recorded: Recorded) -> tuple[RunStatistics | None, tuple[str, ...]]:
    """A run's statistics, None if it has none, and the problems of the run together with those of its statistics.

    Around steps with findings each step has its own column.

    Raises: UsageError where the statistics can't be read and there are no findings to show.
    """

    def read(connection: DuckDBPyConnection) -> RunStatistics:
        matrices = read_matrices(connection, recorded.marked_steps)
        starts = connection.execute(f"SELECT attempt, min(step) FROM {RAW} GROUP BY attempt ORDER BY attempt").fetchall()
        return RunStatistics(matrices, read_histograms(connection), read_ranks(connection), tuple(starts))

    if recorded.run is None:
        return None, recorded.problems
    try:
        return reading(recorded.run, read, held=True), recorded.problems
    except UsageError as error:
        if not recorded.watched:
            raise
        return None, (*recorded.problems, f"No statistics could be read. {error}")


@dataclass(frozen=True, slots=True)
class FindingsFile:
    """A findings file of one process."""

    name: str
    attempt: int
    findings: list[Finding]
    alerts: list[Alert]
    events: list[Happening]
    num_steps: int
    model: str
    ended: bool
    detecting: bool


def read_findings(folder: str, names: Iterable[str], problems: list[str]) -> list[FindingsFile]:
    """Findings files of a run's folder; of one that can't be read a sentence is added to ``problems``."""
    files = []
    for name in names:
        try:
            data = read_json(os.path.join(folder, name))
            match = _NAME.fullmatch(name)
            meta = data["meta"]
            rank = int(meta.get("rank", 0))
            escaped, contained = _findings(data["findings"]), _findings(data["contained"])
            events = [Happening(int(step), rank, str(text)) for step, text in meta.get("events", [])]
            files.append(
                FindingsFile(
                    name,
                    int(match[2] or 1) if match else 0,
                    escaped + contained,
                    _alerts(data),
                    events,
                    int(meta.get("steps", 0)),
                    str(meta.get("model", "")),
                    bool(meta.get("ended", True)),
                    bool(meta.get("detecting", True)),
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:  # pydantic's errors are ValueErrors
            problems.append(f"{name} could not be read and is left out: {_first_line(error)}")
    return files


def distinct_findings(files: Iterable[FindingsFile]) -> list[Finding]:
    """Escaped findings, then contained ones, each by step and once: a finding that stopped all ranks is in each rank's file."""
    by_text = {(file.attempt, repr(one)): one for file in files for one in file.findings}
    return sorted(by_text.values(), key=lambda one: (one.contained, one.step, one.rank))


@functools.cache
def _reader() -> TypeAdapter[list[Finding]]:
    """*Cost:* 15 ms, once; a run has a file a rank."""
    from pydantic import TypeAdapter

    return TypeAdapter(list[Finding])


def _findings(data: Any) -> list[Finding]:
    found = _reader().validate_python(data)
    for one in found:
        if not 0 <= one.step <= MAX_STEP or len(one.site.module) > LONGEST_NAME:
            raise ValueError("a step below 0 or above 2^53, or a name of more than 20,000 characters")
    return found


def _alerts(data: Any) -> list[Alert]:
    found = [parse_alert(one) for one in data.get("alerts", ())]
    for one in found:
        texts = (one.rule, one.layer, one.tensor, one.text, one.advice)
        numbers = (one.step, one.rank)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise ValueError("an alert that is none")
        if not 0 <= one.step <= MAX_STEP or max(map(len, texts)) > LONGEST_NAME:
            raise ValueError("a step below 0 or above 2^53, or a text of more than 20,000 characters")
    return found


def merged_alerts(files: Iterable[FindingsFile]) -> list[AlertOfRanks]:
    """Attempts' alerts by step; what one rank after the other had within some steps is one."""
    every = [(file.attempt, one) for file in files for one in file.alerts]
    groups: list[dict[int, Alert]] = []  # by rank
    latest: dict[tuple[Any, ...], dict[int, Alert]] = {}
    for attempt, one in sorted(every, key=lambda each: (each[1].step, each[1].rank)):
        key = attempt, one.rule, one.layer, one.tensor
        group = latest.get(key)
        if group is None or one.step - group[next(reversed(group))].step > SAME_STEPS or one.rank in group:
            group = latest[key] = {}
            groups.append(group)
        group[one.rank] = one
    return [AlertOfRanks(next(iter(group.values())), tuple(sorted(group))) for group in groups]


def _merged_events(files: Iterable[FindingsFile]) -> list[Happening]:
    """Events by step; what several ranks had at the same step is one."""
    groups: dict[tuple[int, int, str], list[Happening]] = {}
    for file in files:
        for event in file.events:
            group = groups.setdefault((file.attempt, event.step, event.text), [])
            if not group or group[-1].rank != event.rank:  # a rank may have had it several times
                group.append(event)
    merged = [replace(min(group, key=lambda one: one.rank), num_ranks=len(group)) for group in groups.values()]
    return sorted(merged, key=lambda event: event.step)


def _layers(path: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Layers of all ranks, each once. *Cost:* most ranks have the same ones: text that was read before is not read once more."""
    seen: dict[tuple[str, str], None] = {}
    known: set[bytes] = set()
    for by_attempt in attempts(path).values():
        file = by_attempt[max(by_attempt)]
        try:
            facts, key, layers = read_bytes(file).partition(b'"layers"')
            for layer in parse_json(facts + key + (b": []}" if layers in known else layers))["layers"]:
                seen[str(layer["name"]), str(layer["cls"])] = None
            known.add(layers)
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"ranks/{os.path.basename(file)} could not be read and is left out: {_first_line(error)}")
    yield from seen


def _first_line(error: Exception) -> str:
    text = str(error).split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
