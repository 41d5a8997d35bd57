"""What a run folder holds for a page: statistics, findings, alerts, attempts, and what could not be read."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numscope.page.gathered import Gathered, Statistics
from numscope.records.alert import Alert, parse_alert
from numscope.records.attempt import attempts
from numscope.records.errors import UsageError
from numscope.records.files import read_json
from numscope.records.finding import Finding
from numscope.runs.folder import Run, find_run
from numscope.runs.sources import Remote
from numscope.sinks.runfolder import STATISTICS, read_attempts
from numscope.storage.address import is_address

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_FINDINGS = 200  # of a page; a run that does not stop at the first finding may have one for each step
MAX_ALERTS = 200
SAME_STEPS = 50  # between ranks that come to the same alert
MAX_STACK, MAX_FRAMES = 40, 60
MAX_EVENTS = 2000
LONGEST_NAME = 20_000
MAX_STEP = 1 << 53  # what JavaScript counts exactly

_NAME = re.compile(r"findings-rank(\d+)(?:-(\d+))?\.json")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened at a step and is not a finding, such as a step that GradScaler skipped."""

    step: int
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class AlertOfRanks:
    """An alert, with the ranks that had it; its step and numbers are those of the first of them."""

    alert: Alert
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as its folder holds it.

    Args:
        path: the folder, absolute.
        run: its statistics; None if there are none.
        findings: those that escaped, then contained ones, each by step; at most ``MAX_FINDINGS``.
        num_findings: how many there are.
        alerts: by step; at most ``MAX_ALERTS``.
        num_alerts: how many there are.
        events: by step.
        num_steps: steps that detection counted, over all ranks and attempts.
        model: classes of the watched models.
        attempts: the entries of ``run.json``.
        layers: layers that the ranks described: name, class.
        watched: whether detection wrote findings files.
        killed: names of findings files of processes that did not end by themselves.
        problems: what could not be read, a sentence each.
    """

    path: str
    run: Run | None
    findings: tuple[Finding, ...]
    num_findings: int
    alerts: tuple[AlertOfRanks, ...]
    num_alerts: int
    events: tuple[Happening, ...]
    num_steps: int
    model: str
    attempts: tuple[dict[str, Any], ...]
    layers: tuple[tuple[str, str], ...]
    watched: bool
    killed: tuple[str, ...]
    problems: tuple[str, ...]


def read_recorded(folder: str | os.PathLike[str], where: str = "RUN", copied: str | None = None) -> Recorded:
    """What a run's folder holds. A part that is damaged is left out and named in ``problems``.

    Args:
        folder: the ``log_dir`` of the run.
        where: what messages call it.
        copied: where the JSON files of a run in another storage are; None: they are copied now.

    Raises: UsageError where there is no folder, no run, or nothing in it yet.
    """
    given = os.fspath(folder)
    if is_address(given) and copied is None:
        source = Remote(given, where)
        try:
            source.check()
            return read_recorded(given, where, source.fetch(source.signature()))
        finally:
            source.close()
    path = copied or os.path.abspath(given)
    names = sorted(filter(_NAME.fullmatch, os.listdir(path))) if os.path.isdir(path) else []
    problems: list[str] = []
    run = None
    try:
        run = find_run(folder, where)
        problems += run.problems
    except UsageError as error:
        if not names:
            raise
        statistics = os.path.join(path, STATISTICS)
        if os.path.islink(statistics) or (os.path.isdir(statistics) and any(name.endswith(".parquet") for name in os.listdir(statistics))):
            problems.append(f"No statistics could be read. {error}")
    files = list(_documents(path, names, problems))
    # A finding that stopped all ranks is written by each of them.
    by_text = {(attempt_of(file.name), repr(one)): one for file in files for one in file.findings}
    findings = sorted(by_text.values(), key=lambda one: (one.contained, one.step, one.rank))
    alerts = merged_alerts((attempt_of(file.name), one) for file in files for one in file.alerts)
    return Recorded(
        path=given.rstrip("/") if is_address(given) else path,
        run=run,
        findings=tuple(findings[:MAX_FINDINGS]),
        num_findings=len(findings),
        alerts=tuple(alerts[:MAX_ALERTS]),
        num_alerts=len(alerts),
        events=tuple(sorted((event for file in files for event in file.events), key=lambda event: event.step)[:MAX_EVENTS]),
        num_steps=max((file.num_steps for file in files), default=0),
        model=", ".join(dict.fromkeys(file.model for file in files if file.model)),
        attempts=tuple(read_attempts(path)),
        layers=tuple(_layers(path, problems)),
        watched=any(file.detecting for file in files),
        killed=tuple(file.name for file in files if not file.ended),
        problems=tuple(problems),
    )


def attempt_of(name: str) -> int:
    """Of a findings file's processes."""
    match = _NAME.fullmatch(name)
    return int(match[2] or 1) if match else 0


def read_statistics(recorded: Recorded, gathered: Gathered | None = None) -> tuple[Statistics | None, tuple[str, ...]]:
    """A run's statistics, None if it has none, and the problems of the run together with those of its statistics.

    Args:
        gathered: what is known of them; it then is as the run is now.

    Raises: UsageError where the statistics can't be read and there are no findings to show.
    """
    if recorded.run is None:
        return None, recorded.problems
    gathered = Gathered() if gathered is None else gathered
    try:
        steps = [finding.step for finding in recorded.findings] + [one.alert.step for one in recorded.alerts]
        gathered.update(recorded.run, steps)
    except UsageError as error:
        if not recorded.watched:
            raise
        return None, (*recorded.problems, f"No statistics could be read. {error}")
    statistics = gathered.statistics()
    return statistics, (*recorded.problems, *statistics.problems)


@dataclass(frozen=True, slots=True)
class _Document:
    """One findings file."""

    name: str
    findings: list[Finding]
    alerts: list[Alert]
    events: list[Happening]
    num_steps: int
    model: str
    ended: bool
    detecting: bool


def _documents(path: str, names: list[str], problems: list[str]) -> Iterator[_Document]:
    for name in names:
        try:
            data = read_json(os.path.join(path, name))
            meta = data["meta"]
            rank = int(meta.get("rank", 0))
            escaped, contained = _findings(data["findings"]), _findings(data["contained"])
            events = [Happening(int(step), rank, str(text)) for step, text in meta.get("events", [])]
            yield _Document(
                name,
                escaped + contained,
                alerts_of(data),
                events,
                int(meta.get("steps", 0)),
                str(meta.get("model", "")),
                bool(meta.get("ended", True)),
                bool(meta.get("detecting", True)),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:  # pydantic's errors are ValueErrors
            problems.append(f"{name} could not be read and is left out: {_first_line(error)}")


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


def alerts_of(data: Any) -> list[Alert]:
    """A findings document's. Raises: ValueError, TypeError, KeyError, AttributeError."""
    found = [parse_alert(one) for one in data.get("alerts", ())]
    for one in found:
        texts = (one.rule, one.layer, one.tensor, one.text, one.advice)
        numbers = (one.step, one.rank)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise ValueError("an alert that is none")
        if not 0 <= one.step <= MAX_STEP or max(map(len, texts)) > LONGEST_NAME:
            raise ValueError("a step below 0 or above 2^53, or a text of more than 20,000 characters")
    return found


def merged_alerts(every: Iterable[tuple[int, Alert]]) -> list[AlertOfRanks]:
    """Attempts' alerts by step; what one rank after the other had within some steps is one."""
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


def _layers(path: str, problems: list[str]) -> Iterator[tuple[str, str]]:
    seen: dict[tuple[str, str], None] = {}
    for by_attempt in attempts(path).values():
        file = by_attempt[max(by_attempt)]
        try:
            for layer in read_json(file)["layers"]:
                seen[str(layer["name"]), str(layer["cls"])] = None
        except (OSError, ValueError, KeyError, TypeError) as error:
            problems.append(f"ranks/{os.path.basename(file)} could not be read and is left out: {_first_line(error)}")
    yield from seen


def _first_line(error: Exception) -> str:
    text = str(error).split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
