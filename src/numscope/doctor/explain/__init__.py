"""Explains NCCL's logs, flight-recorder dumps and torchrun's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numscope.doctor.explain.flight_recorder import Recorders
from numscope.doctor.explain.log_files import Dump, FileRead, LogReader
from numscope.doctor.explain.nccl_log import NcclLog
from numscope.doctor.explain.nccl_rules import explain_nccl
from numscope.doctor.explain.patterns import Messages
from numscope.doctor.explain.rendezvous import explain_rendezvous, hosts_sought
from numscope.doctor.explain.torchrun import Torchrun
from numscope.doctor.explain.tracebacks import Tracebacks
from numscope.doctor.explain.watchdog import Watchdog
from numscope.doctor.findings import CONSEQUENCES, gravity
from numscope.doctor.records import Finding
from numscope.doctor.redact import of_hosts


@dataclass(frozen=True, slots=True)
class Explanation:
    """The findings, causes first, and all files that were opened, with what was recognized in each."""

    findings: tuple[Finding, ...]
    files: tuple[FileRead, ...]

    @property
    def recognized(self) -> tuple[FileRead, ...]:
        return tuple(file for file in self.files if file.kinds)


def examine(paths: Sequence[Path], *, redact: bool = False) -> Explanation:
    """The findings, and the files that were read; with ``redact`` host names and addresses are numbered words.

    *Cost:* one pass over the text; 10 to 20 s per 100 MB of NCCL log, half a second per dump of 2,000 calls with 20 frames each.
    """
    reader = LogReader(paths)
    log, watchdog, tracebacks, messages, recorders = NcclLog(), Watchdog(), Tracebacks(), Messages(), Recorders()
    torchrun = Torchrun(messages)
    for record, content in reader:
        if isinstance(content, Dump):
            recorders.add(content)
            continue
        for line in content:
            if log.line(line):
                record.kinds.add("NCCL log")
                if "NCCL INFO" in line.text:
                    continue  # most lines of a log are these, and they are never torch's
            site = tracebacks.line(line)
            if watchdog.line(line, site):
                record.kinds.add("torch.distributed")
            if torchrun.line(line):
                record.kinds.add("torchrun")
            record.kinds |= messages.line(line, site)
        if not record.kinds and any(one.line.file == record.name for one in tracebacks.raised):
            record.kinds.add("traceback")

    hosts = log.hosts() | torchrun.hosts()
    ranks = log.ranks() | torchrun.ranks() | tracebacks.ranks
    found = [
        *explain_nccl(log),
        *watchdog.findings(ranks),
        *torchrun.findings(tracebacks, set(watchdog.timeouts)),
        *explain_rendezvous(messages, ended=torchrun.ended(), several_hosts=len(hosts) > 1),
        *recorders.findings(),
    ]
    findings, files = sorted(_joined(found), key=_order), list(reader.files)
    if redact:
        named = {host for one in findings for names in (one.hosts, *one.links) for host in names}
        redaction = of_hosts(hosts | hosts_sought(messages) | named)
        findings = [redaction.finding(one) for one in findings]
        files = [replace(file, name=redaction.text(file.name), problem=redaction.text(file.problem)) for file in files]
    return Explanation(tuple(findings), tuple(files))


def _joined(found: list[Finding]) -> list[Finding]:
    """Merges findings that two sources share; next to a cause, its consequences become notes."""
    merged: dict[tuple[str, tuple[int, ...]], Finding] = {}
    for one in found:
        key = (one.id, one.ranks)
        first = merged.get(key)
        if first is None:
            merged[key] = one
        else:  # the later source is more precise: dumps know the call site
            keep, other = (one, first) if gravity(one)[1] <= gravity(first)[1] else (first, one)
            merged[key] = replace(keep, evidence=tuple(dict.fromkeys((*keep.evidence, *other.evidence))))
    findings = list(merged.values())
    causes = [one for one in findings if one.severity == "fault" and one.id not in CONSEQUENCES]
    if not causes:
        others = any(one.id != "cause-unknown" and one.severity == "fault" for one in findings)
        return [one for one in findings if one.id != "cause-unknown" or not others]
    return [
        replace(one, severity="note") if one.id in CONSEQUENCES else one
        for one in findings
        if one.id not in ("cause-unknown", "collective-stuck")
    ]


def _order(one: Finding) -> tuple[int, bool, int]:
    severity, confidence = gravity(one)
    return severity, one.id in CONSEQUENCES, confidence
