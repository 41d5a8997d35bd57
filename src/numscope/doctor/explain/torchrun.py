"""torchrun's output: which rank failed first, how it ended, and what that means; with its ranks' tracebacks, and kernel messages."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.explain.log_files import LogLine
from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.patterns import PATTERNS, MatchedLine, Messages
from numscope.doctor.findings import TABLE, capital, finding, named
from numscope.doctor.records import DoctorFinding

MAX_FAILURES = 1 << 17
SHOWN = 4
_FIELD = re.compile(r"(?:^|\s)(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")
_RANK = re.compile(r"^(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,7})\)")
_EXIT = re.compile(r"^(?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,10})\)")
_PROGRAM_XIDS = {13, 31, 43, 45}
MAX_RAISED = 4096
MAX_RANKS = 1 << 20

_FRAME = re.compile(r"File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d{1,9})(?:, in (?P<name>[^\n]{1,120}))?")
_RAISED = re.compile(
    r"(?:^|[\s:>|])(?P<type>(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Refused)): (?P<text>.*)$"
)
_INSIDE = ("/torch/", "\\torch\\", "<frozen", "/lib/python", "/bin/torchrun", "/bin/accelerate", "site-packages")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as it was printed."""

    line: LogLine
    rank: int  # -1 if the line has no prefix
    text: str
    site: str  # file:line (function) of the innermost frame in the user's code
    echo: bool  # an exception of the kind that another rank's fault causes


@dataclass(slots=True)
class Failure:
    """One row of torchrun's table."""

    line: LogLine
    root: bool
    time: str = ""
    host: str = ""
    rank: int = -1
    local_rank: int = -1
    code: int = 0
    pid: int = -1
    traceback: str = ""


@dataclass(slots=True)
class Torchrun:
    """Reads torchrun's table of failures, and the exceptions of its ranks with the frames above them."""

    messages: Messages
    failures: list[Failure] = field(default_factory=list)
    raised: list[Raised] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)  # that printed anything
    _root: dict[str, bool] = field(default_factory=dict)
    _open: dict[str, Failure] = field(default_factory=dict)
    _sites: dict[tuple[str, int], str] = field(default_factory=dict)

    def site(self, line: LogLine) -> str:
        """Adds a line that may be of a traceback; returns its rank's current frame in the user's code."""
        text, rank, row = line.text, line.rank, self._open.get(line.file)
        if rank < 0 and row is not None and row.traceback:
            rank = row.rank  # a traceback in the table has no prefix
        if rank >= MAX_RANKS:
            return ""
        if rank >= 0:
            self.ranks.add(rank)
        key = (line.file, rank)
        if "Traceback (most recent call last)" in text:
            self._sites.pop(key, None)
        elif 'File "' in text and (frame := _FRAME.search(text)) is not None:
            if not any(part in frame["file"] for part in _INSIDE):
                self._sites[key] = shown(f"{frame['file']}:{frame['line']}" + (f" ({frame['name'].strip()})" if frame["name"] else ""))
        elif (m := _RAISED.search(text)) is not None and len(self.raised) < MAX_RAISED:
            text = shown(f"{m['type']}: {m['text']}")
            self.raised.append(Raised(line, rank, text, self._sites.get(key, ""), bool(PATTERNS["echo of another rank"].search(text))))
        return self._sites.get(key, "")

    def line(self, line: LogLine) -> bool:
        """Adds a line; returns whether it is part of a table."""
        text = line.text
        if "Root Cause (first observed failure)" in text:
            self._root[line.file] = True
        elif text.rstrip().endswith("Failures:"):
            self._root[line.file] = False
        elif text.startswith("======") and line.file in self._open:
            del self._open[line.file]
        elif line.file in self._root and " : " in text and (m := _FIELD.search(text)) is not None:
            self._field(line, m["key"], m["value"].strip())
        else:
            return False
        return True

    def _field(self, line: LogLine, key: str, value: str) -> None:
        row = self._open.get(line.file)
        if key == "time":
            begun = self._open[line.file] = Failure(line, self._root[line.file], time=value[:32])
            if len(self.failures) < MAX_FAILURES:
                self.failures.append(begun)
        elif row is None:
            return
        elif key == "host":
            row.host = shown(value)
        elif key == "rank" and (m := _RANK.search(value)) is not None:
            row.rank, row.local_rank = int(m["rank"]), int(m["local"])
        elif key == "exitcode" and (m := _EXIT.search(value)) is not None:
            row.code, row.pid, row.line = int(m["code"]), int(m["pid"]), line
        elif key == "traceback":
            row.traceback = shown(value)

    def ended(self) -> set[int]:
        """Ranks that the launcher terminated."""
        return {failure.rank for failure in self.failures if failure.code == -signal.SIGTERM and failure.rank >= 0}

    def findings(self, watchdog_ranks: set[int]) -> list[DoctorFinding]:
        """Findings; ``watchdog_ranks`` are those with messages of NCCL's watchdog."""
        return [*self._kernel(), *self._failed(watchdog_ranks)]

    def _exception(self, rank: int) -> Raised | None:
        """A rank's exception, preferably one that another rank's fault did not cause."""
        mine = [one for one in self.raised if one.rank == rank >= 0]
        return min(mine, key=lambda one: one.echo, default=None)

    def _failed(self, watchdog_ranks: set[int]) -> Iterator[DoctorFinding]:
        rows = self.failures or [
            Failure(seen.line, True, local_rank=int(seen.match["local"]), code=int(seen.match["code"]), pid=int(seen.match["pid"]))
            for seen in self.messages.of("failed")
        ]
        others = [row for row in rows if row.code != -signal.SIGTERM]
        if not rows:
            own = next((one for one in self.raised if not one.echo and (one.rank >= 0 or one.site)), None)
            if own is not None and own.rank >= 0:
                yield _raised(own, None)
        elif not others:
            evidence = [*map(_row, rows[:SHOWN]), *(seen.line.quoted for seen in self.messages.of("signaled")[:2])]
            yield finding("job-terminated", ranks=[row.rank for row in rows], evidence=evidence)
        else:
            root = self._first(others)
            yield self._ended(root, rows, self._exception(root.rank), root.rank in watchdog_ranks)

    def _first(self, rows: list[Failure]) -> Failure:
        """The first rank to fail: by time; within the same second a signal, then its own exception, then torchrun's choice."""

        def order(row: Failure) -> tuple[str, int, bool]:
            mine = self._exception(row.rank)
            grade = 2 if mine is None else 3 if mine.echo else 1
            return (row.time, 0 if row.code < 0 and row.code != -signal.SIGABRT else grade, not row.root)

        return min(rows, key=order)

    def _ended(self, row: Failure, rows: list[Failure], raised: Raised | None, watchdog: bool) -> DoctorFinding:
        who = named([row.rank]) if row.rank >= 0 else f"local rank {row.local_rank}"
        at = f" on {row.host}" if row.host and row.host != "localhost" else ""
        others = [other.rank for other in rows if other is not row and other.rank >= 0]
        after = f"; {named(others)} followed" if others else ""
        words: dict[str, Any] = {"first": f"{capital(who)}{at} was the first to end", "after": after}

        def found(id: str, evidence: Iterable[str] = (), **more: Any) -> DoctorFinding:
            return finding(id, ranks=[row.rank], hosts=[row.host], evidence=[_row(row), *evidence], **words, **more)

        if row.code == -signal.SIGKILL:
            oom = [seen.line.quoted for seen in self.messages.of("out of memory") if _pid(seen) in (-1, row.pid)]
            why = "because memory ran out, according to the kernel" if oom else "usually by the kernel because memory ran out"
            return found("rank-killed", oom[:2], confidence="certain" if oom else "likely", why=why, place=at.strip() or "on its host")
        if row.code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE):
            bus_error = "df -h /dev/shm  # a bus error usually means that /dev/shm is full" if row.code == -signal.SIGBUS else ""
            return found("rank-crashed", signal=signal.Signals(-row.code).name, bus_error=bus_error)
        own = raised is not None and not raised.echo
        if row.code == -signal.SIGABRT and not (own and not watchdog):  # after an exception gloo's threads abort the process as it ends
            why = "NCCL's watchdog ended it after a timeout" if watchdog else "a C++ exception or assertion, or NCCL's watchdog"
            text = [raised.text] if raised is not None else []
            return found("rank-aborted", text, confidence="likely" if watchdog else "possible", why=why)
        if raised is None:
            return found("cause-unknown/exit", code=row.code, what="its exception is not in these files.")
        if own:
            return _raised(raised, row, after, at)
        what = f"its exception is a consequence of another fault: {raised.text[:120]}"
        return found("cause-unknown/exit", [raised.line.quoted], code=row.code, what=what)

    def _kernel(self) -> Iterator[DoctorFinding]:
        if oom := self.messages.of("out of memory"):
            killed = set(map(_pid, oom)) - {-1}
            ranks = [row.rank for row in self.failures if row.pid in killed and row.rank >= 0]
            evidence = [seen.line.quoted for seen in oom[:SHOWN]]
            yield finding("host-out-of-memory", ranks=ranks, evidence=evidence, whose=f" ({named(ranks)})" if ranks else "")
        if cuda := self.messages.of("cuda memory"):
            evidence = [seen.line.quoted for seen in cuda[:SHOWN]]
            yield finding("gpu-out-of-memory/torch", ranks=[seen.rank for seen in cuda], evidence=evidence)
        xids = [(int(seen.match["xid"] or 79), (seen.match["bus"] or "?").lower(), seen.line.quoted) for seen in self.messages.of("xid")]
        if xids:
            hardware = [xid for xid in xids if xid[0] not in _PROGRAM_XIDS]
            worst, meanings = hardware or xids, TABLE["gpu-xid"]["xids"]
            kinds = sorted({(xid, bus) for xid, bus, _ in worst})[:4]
            told = "; ".join(f"{xid} on {bus} ({meanings.get(xid, 'see the list of Xids')})" for xid, bus in kinds)
            evidence = [line for _, _, line in worst[:SHOWN]]
            yield finding("gpu-xid", evidence=evidence, confidence="certain" if hardware else "possible", kinds=told)


def _pid(seen: MatchedLine) -> int:
    return int(next((group for group in seen.match.groups() if group), -1))


def _row(row: Failure) -> str:
    what = f"rank {row.rank} (local rank {row.local_rank})" if row.rank >= 0 else f"local rank {row.local_rank}"
    return f"{row.line.place}: {row.time + ' ' if row.time else ''}{what}, exit code {row.code}, pid {row.pid}" + (
        f": {row.traceback}" if row.traceback and "To enable" not in row.traceback else ""
    )


def _raised(raised: Raised, row: Failure | None, after: str = "", at: str = "") -> DoctorFinding:
    return finding(
        "rank-failed",
        ranks=[raised.rank],
        hosts=[row.host] if row is not None else [],
        evidence=[raised.line.quoted, *([_row(row)] if row is not None else [])],
        confidence="certain" if row is not None else "likely",
        site=f" at {raised.site}" if raised.site else "",
        at=at,
        exception=raised.text,
        after=after,
    )
