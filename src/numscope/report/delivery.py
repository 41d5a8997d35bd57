"""Delivers findings and alerts to the terminal, a JSON file, and a folder with one file per rank."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numscope.records.alert import Alert
from numscope.records.attempt import Attempt
from numscope.records.faults import ours, suppress
from numscope.records.files import write_atomically, write_where_asked
from numscope.records.finding import Finding, Frame, plain
from numscope.records.words import count, escape
from numscope.report import page
from numscope.report.frames import HEADER, batch_line, finding_text, frame_text, one_line
from numscope.report.sarif import sarif_json, script_path, source_root
from numscope.report.stderr import marked, say

NUM_WHOLE = 3  # alerts of one rule with one advice; of later ones the fourth, the eighth and so on stand for the rest
_HEAD, _INDENT = "numscope: alert:", "    "


class AlertLines:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}  # by rule and advice

    def text(self, alert: Alert, who: str = "") -> str | None:
        """The text to print of an alert; None where it is folded into a later one.

        Args:
            who: the ranks that have it.
        """
        key = alert.rule, alert.advice
        before = self._told[key] = self._told.get(key, -1) + 1
        if before >= NUM_WHOLE and (before + 1) & before:  # no power of two
            return None
        folded = before // 2 if before > NUM_WHOLE else 0
        more = f" (and {count(folded, 'alert')} of this rule before it)" if folded else ""
        place = " ".join(filter(None, (alert.layer, alert.tensor)))
        when = f"step {alert.step}{f', {who}' if who else ''}"
        head = escape(f"{when}: {alert.rule}{': ' if place else ''}{place}{more}")
        said = [alert.text] if before else [alert.text, alert.advice]
        told = [escape(one) for one in said if one]
        if not _is_read():
            return f"{_HEAD} {': '.join(filter(None, (head, ' '.join(told))))}"
        wraps = textwrap.TextWrapper(
            max(40, shutil.get_terminal_size().columns - 1),
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return "\n".join([f"{marked(_HEAD)} {head}", *map(wraps.fill, told)])


def _is_read() -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False


log = logging.getLogger("numscope")

show: Callable[[Finding], bool] | None = None  # shows a finding in place of the terminal; False: it does not
show_alert: Callable[[Alert, str], bool] | None = None

# The JSON file's version; incremented when a reader of the previous version would misread it. Added keys do not count.
SCHEMA_VERSION = 1
PLAIN_WIDTH = 100  # columns of a report that goes elsewhere than to a terminal


@dataclass(slots=True)
class _Share:
    """The content of files that several watched models share: a later model must not overwrite an earlier one's findings."""

    attempt: Attempt | None = None  # in the folder, if there is one
    due: int = 1  # number of findings and alerts, kept and reported, at which the files are written again
    open: int = 0
    findings: list[Finding] = field(default_factory=list)
    told: list[Finding | Alert] = field(default_factory=list)  # reported by this rank for all ranks that know them
    contained: list[Finding] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    steps: int = 0
    batches: int = 0
    events: list[tuple[int, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    lines: AlertLines = field(default_factory=AlertLines)

    def document(self, meta: Mapping[str, Any]) -> bytes:
        """Findings and alerts as a JSON document; ``docs/json.md`` describes it, ``schema.json`` checks it.

        Args:
            meta: facts on the run, by name; values that JSON lacks are written as their ``str``.
        """
        document = {
            "schema_version": SCHEMA_VERSION,
            "meta": plain(dict(meta)),
            "findings": [plain(finding) for finding in self.findings],
            "contained": [plain(finding) for finding in self.contained],
            "alerts": [plain(alert) for alert in self.alerts],
        }
        # With ensure_ascii (the default): a lone surrogate in a file's name is not valid UTF-8, but JSON can escape it.
        return json.dumps(document, indent=1, allow_nan=False, default=str).encode() + b"\n"


_shares: dict[tuple[str | None, str | None, str | None, int], _Share] = {}  # by files and process: a fork has its own


class Delivery:
    """Reports findings as they come and writes the files at the end.

    Attributes:
        outlet: takes each finding that this rank reports for all ranks.

    Args:
        json: file for all findings; on ranks other than 0 the rank is inserted before its suffix.
        log_dir: folder for ``report-rank<r>.txt`` (reports with all frames) and ``findings-rank<r>.json``; a later attempt's files have
            its number: ``findings-rank<r>-2.json``.
        rank: this process's.
        sarif: file for what this rank reports, as SARIF; ranks other than 0 write theirs only if they report something.
        meanings: of the alerts' rules, for that file.
        shown_as: the log dir as the user has named it, where it is in another storage and ``log_dir`` is what is sent there.
        prints_frames: all frames of a finding are printed above its report.
        detecting: detection is on. Without it the folder gets a file only if there are alerts.
    """

    def __init__(
        self,
        json: str | None,
        log_dir: str | None,
        model: str,
        rank: int,
        *,
        sarif: str | None = None,
        meanings: Mapping[str, str] | None = None,
        detecting: bool = True,
        shown_as: str | None = None,
        prints_frames: bool = False,
    ) -> None:
        self._detecting, self._prints_frames = detecting, prints_frames
        self._json = None if json is None else _of_rank(json, rank)
        self._sarif = None if sarif is None else _of_rank(os.path.abspath(sarif), rank)
        self._meanings = meanings or {}
        self._root = "" if sarif is None else source_root()  # now: the script may change its folder
        self._log_dir = log_dir
        self._shown_as = shown_as or log_dir
        self.model = model
        self._rank = rank
        self._files = (self._json, self._sarif, log_dir, os.getpid())
        self._share = _Share() if json is None and sarif is None and log_dir is None else _shares.setdefault(self._files, _Share())
        self._share.open += 1
        self.outlet: Callable[[Finding], None] | None = None
        if detecting:
            self._take_attempt()

    def _take_attempt(self) -> None:
        if self._log_dir is not None and self._share.attempt is None:
            try:
                self._share.attempt = Attempt.take(self._log_dir, self._rank, "findings")
            except ours(OSError) as error:
                log.error("log_dir: got %r, expected a folder that can be written to: %s. No report will be in it.", self._log_dir, error)

    def finding(self, finding: Finding, *, speaks: bool = True, whole: bool = False) -> None:
        """Report a finding: in full on the rank where it began, by its place and operation elsewhere.

        Args:
            whole: in full here too.
            speaks: this rank passes it to the outlet, for all ranks that know it.
        """
        in_full = whole or finding.rank == self._rank
        if in_full and show is not None and show(finding):
            pass
        elif in_full:
            if self._prints_frames and finding.frames:
                frames = "\n".join(map(escape, finding_text(finding).split("\n")))
                say(f"\n{frames}\n")
            _print(finding)
        else:
            say(f"numscope: rank {self._rank}: {one_line(finding).partition(' — ')[0]}")  # the rest is in the report
        share = self._share
        share.text.append(f"{one_line(finding)}\n\n{finding_text(finding)}\n")
        share.findings.append(finding)
        if speaks:
            share.told.append(finding)
        self._write_early()
        if speaks and self.outlet is not None:
            self.outlet(finding)
        if share.attempt is None or self._log_dir is None or self._shown_as is None:
            return
        if self._shown_as == self._log_dir:
            page.due(page.Due(self._log_dir, share.attempt.number))
        elif finding.rank == self._rank:
            page.tell(self._shown_as)

    def alert(self, alert: Alert) -> None:
        """Keep an alert of this rank for the files. ``tell`` prints it."""
        self._take_attempt()
        self._share.alerts.append(alert)
        self._share.text.append(f"alert: {escape(alert.line())}")
        self._write_early()

    def tell(self, alert: Alert, who: str = "") -> None:
        """Print an alert. ``who``: the ranks that have it."""
        self._share.told.append(alert)
        if (show_alert is None or not show_alert(alert, who)) and (text := self._share.lines.text(alert, who)) is not None:
            say(text)
        self._write_early()

    def contained(self, finding: Finding) -> None:
        """Log a contained finding: as a warning with its line if the script skipped a batch because of it."""
        log.log(logging.WARNING if finding.note else logging.INFO, "numscope: %s", one_line(finding))

    def event(self, step: int, text: str) -> None:
        """Log an event that is not a finding."""
        log.info("step %d: %s", step, text)

    def trace(self, batch: int, frames: Sequence[Frame]) -> None:
        text = "\n".join([batch_line(batch), HEADER, *map(frame_text, frames)])
        print(text)
        self._share.text.append(text)

    @property
    def has_files(self) -> bool:
        """Whether it writes any."""
        return self._files[:3] != (None, None, None)

    def close(
        self,
        findings: Sequence[Finding],
        contained: Sequence[Finding],
        events: Sequence[tuple[int, str]],
        steps: int,
        batches: int,
        *,
        ended: bool = True,
    ) -> None:
        """Write the files, together with what models watched at the same time had to report; ``ended``: the run ends by itself."""
        share = self._share
        share.open -= 1
        if not share.open:
            _shares.pop(self._files, None)
        share.models.insert(0, self.model)  # the last model watched is closed first
        share.findings = [*findings, *(finding for finding in share.findings if all(finding is not one for one in findings))]
        share.contained[:0] = contained
        share.events = sorted({*share.events, *events})
        share.steps = max(share.steps, steps)
        share.batches += batches
        facts = {"steps": share.steps, "batches": share.batches, "events": [list(e) for e in share.events]}
        self._write_files({"model": ", ".join(share.models), **facts, "ended": ended}, early=False)

    def _write_early(self) -> None:
        """The run may be killed; of very many findings and alerts the last ones wait for its end."""
        share = self._share
        num = len(share.findings) + len(share.alerts) + len(share.told)
        if num >= share.due:
            share.due = num + 1 + num // 8
            self._write_files({"model": self.model, "ended": False}, early=True)

    def _write_files(self, meta: Mapping[str, Any], *, early: bool) -> None:
        """``early``: there will be more; a pipe or a device takes everything at the end, once."""
        share = self._share
        meta = {**meta, "rank": self._rank}
        if self._json is not None and not (early and _is_stream(self._json)):
            with _said(f"the findings to {escape(self._json)}"):
                _write_asked(self._json, share.document(meta))
        if self._sarif is not None and (self._rank == 0 or share.told) and not (early and _is_stream(self._sarif)):
            with _said(f"the findings as SARIF to {escape(self._sarif)}"):
                told = [one for one in share.told if isinstance(one, Finding)], [one for one in share.told if isinstance(one, Alert)]
                _write_asked(self._sarif, sarif_json(*told, self._meanings, self._root, script_path()))
        self._write_folder(meta)

    def _write_folder(self, meta: Mapping[str, Any]) -> None:
        share = self._share
        if share.attempt is None or self._log_dir is None:
            return
        meta = {**meta, "attempt": share.attempt.number, **({} if self._detecting else {"detecting": False})}
        with _said("the findings' files"):
            name = share.attempt.file_name("findings", ".json")
            write_atomically(os.path.join(self._log_dir, name), share.document(meta))
            if share.text:
                name = share.attempt.file_name("report", ".txt")
                write_atomically(os.path.join(self._log_dir, name), "\n".join(share.text).encode(errors="backslashreplace"))


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """Logs an error, which must not end the run."""
    try:
        yield
    except ours() as error:
        log.error("numscope could not write %s: %s: %s", what, type(error).__name__, error)


def _print(finding: Finding) -> None:
    if sys.stderr is None:
        return
    with _same_random_numbers(), suppress(OSError, ValueError):  # as in ``say``
        from numscope.report.text import print_finding

        print_finding(finding, file=sys.stderr)


def plain_report(finding: Finding) -> str:
    """The report of a finding as text, for other places than a terminal."""
    with _same_random_numbers():
        from numscope.report.text import plain_text, render

        return plain_text(render(finding), io.StringIO(), PLAIN_WIDTH, colors=False)


@contextlib.contextmanager
def _same_random_numbers() -> Iterator[None]:
    state = random.getstate()  # rich draws numbers from the script's generator, as it is imported and for each link
    try:
        yield
    finally:
        random.setstate(state)


def _is_stream(path: str) -> bool:
    return os.path.lexists(path) and not os.path.isfile(path)


def _write_asked(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_where_asked(path, data)


def _of_rank(path: str, rank: int) -> str:
    stem, suffix = os.path.splitext(path)
    return path if rank == 0 else f"{stem}-rank{rank}{suffix}"
