"""torchrun's output: which rank failed first, how it ended, and what that means; and kernel messages, which often accompany it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.reading import Line
from numscope.doctor.explain.tracebacks import Raised, Tracebacks
from numscope.doctor.findings import capital, finding, named
from numscope.doctor.records import Confidence, Finding

MAX_FAILURES = 1 << 17
SHOWN = 4

_FIELD = re.compile(r"(?:^|\s)(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")
_RANK = re.compile(r"^(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,7})\)")
_EXIT = re.compile(r"^(?P<code>-?\d{1,9}) \(pid: (?P<pid>\d{1,10})\)")
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,7}) \(pid: (?P<pid>\d{1,10})\)")
_SIGNALED = re.compile(r"SignalException: Process (?P<pid>\d+) got signal: (?P<signal>\d+)|Received (?P<death>\d+) death signal")
_OOM = re.compile(
    r"Out of memory: Killed process (?P<pid>\d{1,10})|oom-kill:.{0,1000}?pid=(?P<pid2>\d{1,10})|[Dd]etected \d+ oom[-_]kill event"
    r"|oom_kill event|Memory cgroup out of memory: Kill(?:ed)? process (?P<pid3>\d{1,10})|OOMKilled"
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]+)\): (?P<xid>\d{1,4}),?(?P<said>.*)")
_OFF_BUS = re.compile(r"NVRM:.{0,400}fallen off the bus")
_CUDA_OOM = re.compile(r"OutOfMemoryError: CUDA out of memory|CUDA out of memory\. Tried to allocate")

XIDS = {  # what the driver's numbers mean, and the usual cause
    13: "illegal access by a kernel, usually the program's own fault",
    31: "memory page fault by a kernel, usually the program's own fault",
    43: "the GPU stopped the program after a fault in it",
    45: "work was stopped because of another fault or the end of the process",
    48: "double-bit memory error: reset the GPU, and replace it if the error recurs",
    63: "a memory row must be remapped: reset the GPU",
    64: "remapping a memory row failed: replace the GPU",
    74: "NVLink error: check the link, the bridge, the switch",
    79: "the GPU fell off the bus because of power, heat, or the slot: restart the host",
    92: "many single-bit memory errors",
    94: "contained memory error: the program was stopped; reset the GPU",
    95: "uncontained memory error: reset the GPU",
    119: "the GPU's system processor (GSP) does not respond: restart the host",
    120: "the GPU's system processor (GSP) reported an error",
}
_PROGRAM_XIDS = {13, 31, 43, 45}
_OWN = ("torch/distributed/elastic", "torch/distributed/run.py", "torch.distributed.run")


@dataclass(slots=True)
class Failure:
    """One row of torchrun's table."""

    line: Line
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
    """Collects the messages."""

    failures: list[Failure] = field(default_factory=list)
    plain: list[tuple[Line, re.Match[str]]] = field(default_factory=list)
    signaled: list[Line] = field(default_factory=list)
    oom: list[tuple[Line, int]] = field(default_factory=list)
    xids: list[tuple[Line, int, str]] = field(default_factory=list)
    cuda_oom: list[Line] = field(default_factory=list)
    _root: dict[str, bool] = field(default_factory=dict)
    _open: dict[str, Failure] = field(default_factory=dict)

    def line(self, line: Line) -> str:
        """Adds a line; returns its origin: ``torchrun``, ``kernel`` or ""."""
        text = line.text
        if "Root Cause (first observed failure)" in text:
            self._root[line.file] = True
            return "torchrun"
        if text.rstrip().endswith("Failures:"):
            self._root[line.file] = False
            return "torchrun"
        if line.file in self._root and " : " in text and (m := _FIELD.search(text)) is not None:
            self._field(line, m["key"], m["value"].strip())
            return "torchrun"
        if (m := _FAILED.search(text)) is not None:
            if len(self.plain) < MAX_FAILURES:
                self.plain.append((line, m))
            return "torchrun"
        if "signal" in text and _SIGNALED.search(text) is not None:
            self.signaled.append(line) if len(self.signaled) < 64 else None
            return "torchrun"
        if "NVRM" in text:
            if (m := _XID.search(text)) is not None and len(self.xids) < 4096:
                self.xids.append((line, int(m["xid"]), m["bus"].lower()))
            elif _OFF_BUS.search(text) is not None and len(self.xids) < 4096:
                self.xids.append((line, 79, "?"))
            return "kernel"
        if ("oom" in text or "OOM" in text or "ut of memory" in text) and len(self.oom) < 256:
            if (m := _OOM.search(text)) is not None:
                self.oom.append((line, int(next((g for g in m.groups() if g), -1))))
                return "kernel"
            if _CUDA_OOM.search(text) is not None and len(self.cuda_oom) < 256:
                self.cuda_oom.append(line)
        return "torchrun" if any(word in text for word in _OWN) else ""

    def _field(self, line: Line, key: str, value: str) -> None:
        if key == "time":
            begun = self._open[line.file] = Failure(line, self._root[line.file], time=value[:32])
            if len(self.failures) < MAX_FAILURES:
                self.failures.append(begun)
            return
        row = self._open.get(line.file)
        if row is None:
            return
        if key == "host":
            row.host = shown(value)
        elif key == "rank" and (m := _RANK.search(value)) is not None:
            row.rank, row.local_rank = int(m["rank"]), int(m["local"])
        elif key == "exitcode" and (m := _EXIT.search(value)) is not None:
            row.code, row.pid, row.line = int(m["code"]), int(m["pid"]), line
        elif key == "traceback":
            row.traceback = shown(value)

    def hosts(self) -> set[str]:
        """Host names in the tables."""
        return {failure.host for failure in self.failures if failure.host}

    def ranks(self) -> set[int]:
        return {failure.rank for failure in self.failures if failure.rank >= 0}

    def ended(self) -> set[int]:
        """Ranks that the launcher terminated."""
        return {failure.rank for failure in self.failures if failure.code == -signal.SIGTERM and failure.rank >= 0}

    def findings(self, tracebacks: Tracebacks, watchdog_ranks: set[int]) -> list[Finding]:
        """What is wrong; ``watchdog_ranks`` are those with messages of NCCL's watchdog."""
        return [*self._kernel(), *self._failed(tracebacks, watchdog_ranks)]

    def _failed(self, tracebacks: Tracebacks, watchdog_ranks: set[int]) -> Iterator[Finding]:
        rows = self.failures or [
            Failure(line, True, rank=-1, local_rank=int(m["local"]), code=int(m["code"]), pid=int(m["pid"])) for line, m in self.plain
        ]
        if not rows:
            own = next((one for one in tracebacks.raised if not one.echo and (one.rank >= 0 or one.site)), None)
            if own is not None and own.rank >= 0:
                yield _raised(own, None)
        elif all(row.code == -signal.SIGTERM for row in rows):
            evidence = [*(_row(row) for row in rows[:SHOWN]), *(line.quoted for line in self.signaled[:2])]
            yield finding("job-terminated", ranks=[row.rank for row in rows], evidence=evidence)
        else:
            root = self._first([row for row in rows if row.code != -signal.SIGTERM], tracebacks)
            yield self._ended(root, rows, tracebacks.of(root.rank) if root.rank >= 0 else None, root.rank in watchdog_ranks)

    @staticmethod
    def _first(rows: list[Failure], tracebacks: Tracebacks) -> Failure:
        """The first rank to fail: by time; within the same second a signal, then an exception of its own, then torchrun's choice."""

        def order(row: Failure) -> tuple[str, int, int]:
            mine = tracebacks.of(row.rank) if row.rank >= 0 else None
            grade = 2 if mine is None else 3 if mine.echo else 1
            return (row.time, 0 if row.code < 0 and row.code != -signal.SIGABRT else grade, 0 if row.root else 1)

        return min(rows, key=order)

    def _ended(self, row: Failure, rows: list[Failure], raised: Raised | None, watchdog: bool) -> Finding:
        who = named([row.rank]) if row.rank >= 0 else f"local rank {row.local_rank}"
        at = f" on {row.host}" if row.host and row.host != "localhost" else ""
        others = [other.rank for other in rows if other is not row and other.rank >= 0]
        after = f"; {named(others)} followed" if others else ""

        first = f"{capital(who)}{at} was the first to end"

        def found(id: str, *, evidence: Iterable[str] = (), **more: Any) -> Finding:
            return finding(id, ranks=[row.rank], hosts=[row.host], evidence=[_row(row), *evidence], first=first, after=after, **more)

        if row.code == -signal.SIGKILL:
            oom = [line.quoted for line, pid in self.oom if pid in (-1, row.pid)]
            why = "because memory ran out, according to the kernel" if oom else "usually by the kernel because memory ran out"
            certain = "certain" if oom else "likely"
            return found("rank-killed", evidence=oom[:2], confidence=certain, why=why, place=at.strip() or "on its host")
        if row.code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE):
            bus_error = "df -h /dev/shm  # a bus error usually means that /dev/shm is full" if row.code == -signal.SIGBUS else ""
            return found("rank-crashed", signal=signal.Signals(-row.code).name, bus_error=bus_error)
        own = raised is not None and not raised.echo
        if row.code == -signal.SIGABRT and not (own and not watchdog):  # after an exception gloo's threads abort the process as it ends
            why = "NCCL's watchdog ended it after a timeout" if watchdog else "a C++ exception or assertion, or NCCL's watchdog"
            evidence = [raised.said] if raised is not None else ()
            return found("rank-aborted", evidence=evidence, confidence="likely" if watchdog else "possible", why=why)
        if raised is not None and own:
            return _raised(raised, row, after, at)
        what = "its exception is not in these files."
        if raised is not None:
            what = f"its exception is a consequence of another fault: {raised.said[:120]}"
        return found("cause-unknown/exit", evidence=[raised.line.quoted] if raised is not None else (), code=row.code, what=what)

    def _kernel(self) -> Iterator[Finding]:
        if self.oom:
            killed = {pid for _, pid in self.oom if pid >= 0}
            ranks = [row.rank for row in self.failures if row.pid in killed and row.rank >= 0]
            evidence = [line.quoted for line, _ in self.oom[:SHOWN]]
            yield finding("host-out-of-memory", ranks=ranks, evidence=evidence, whose=f" ({named(ranks)})" if ranks else "")
        if self.cuda_oom:
            evidence = [line.quoted for line in self.cuda_oom[:SHOWN]]
            yield finding("gpu-out-of-memory/torch", ranks=[line.rank for line in self.cuda_oom], evidence=evidence)
        if self.xids:
            worst = [x for x in self.xids if x[1] not in _PROGRAM_XIDS] or self.xids
            kinds = sorted({(xid, bus) for _, xid, bus in worst})
            said = "; ".join(f"{xid} on {bus} ({XIDS.get(xid, 'see the list of Xids')})" for xid, bus in kinds[:4])
            confidence: Confidence = "possible" if worst[0][1] in _PROGRAM_XIDS else "certain"
            yield finding("gpu-xid", evidence=[line.quoted for line, _, _ in worst[:SHOWN]], confidence=confidence, kinds=said)


def _row(row: Failure) -> str:
    what = f"rank {row.rank} (local rank {row.local_rank})" if row.rank >= 0 else f"local rank {row.local_rank}"
    return f"{row.line.place}: {row.time + ' ' if row.time else ''}{what}, exit code {row.code}, pid {row.pid}" + (
        f": {row.traceback}" if row.traceback and "To enable" not in row.traceback else ""
    )


def _raised(raised: Raised, row: Failure | None, after: str = "", at: str = "") -> Finding:
    return finding(
        "rank-failed",
        ranks=[raised.rank],
        hosts=[row.host] if row is not None else [],
        evidence=[raised.line.quoted, *([_row(row)] if row is not None else [])],
        confidence="certain" if row is not None else "likely",
        site=f" at {raised.site}" if raised.site else "",
        at=at,
        said=raised.said,
        after=after,
    )
