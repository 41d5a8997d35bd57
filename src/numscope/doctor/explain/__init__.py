"""``numscope doctor explain PATH…``: explains NCCL's logs, flight-recorder dumps and torchrun's output."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from numscope.doctor.explain.flight_recorder import Recorders
from numscope.doctor.explain.log_files import Dump, FileRead, read
from numscope.doctor.explain.nccl_log import NcclLog
from numscope.doctor.explain.nccl_rules import explain_nccl
from numscope.doctor.explain.patterns import Messages
from numscope.doctor.explain.rendezvous import explain_rendezvous, hosts_sought
from numscope.doctor.explain.torchrun import Torchrun
from numscope.doctor.explain.watchdog import explain_watchdog, ranks_timed_out
from numscope.doctor.findings import CONSEQUENCES, gravity
from numscope.doctor.output import write_json
from numscope.doctor.records import DoctorFinding, to_json
from numscope.doctor.redact import of_hosts
from numscope.records.words import count, few

FORMAT = 1
WRONG_USAGE = 2
SHOWN_FILES = 20
SHOWN_WHOM = 12

_STYLES = {"fault": "bold red", "degraded": "bold yellow", "note": "bold"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The findings, causes first, and all files that were opened, with what was recognized in each."""

    findings: tuple[DoctorFinding, ...]
    files: tuple[FileRead, ...]

    @property
    def recognized(self) -> tuple[FileRead, ...]:
        return tuple(file for file in self.files if file.kinds)


def examine(paths: Sequence[Path], *, redact: bool = False) -> Explanation:
    """The findings, and the files that were read; with ``redact`` host names and addresses are numbered words.

    *Cost:* one pass over the text; 10 to 20 s per 100 MB of NCCL log, half a second per dump of 2,000 calls with 20 frames each.
    """
    files: list[FileRead] = []
    log, messages, recorders = NcclLog(), Messages(), Recorders()
    torchrun = Torchrun(messages)
    for record, content in read(paths):
        files.append(record)
        if isinstance(content, Dump):
            recorders.add(content)
            continue
        for line in content:
            if log.line(line):
                record.kinds.add("NCCL log")
                if "NCCL INFO" in line.text:
                    continue  # most lines of a log are these, and they are never torch's
            site = torchrun.site(line)
            if torchrun.line(line):
                record.kinds.add("torchrun")
            record.kinds |= messages.line(line, site)
        if not record.kinds and any(one.line.file == record.name for one in torchrun.raised):
            record.kinds.add("traceback")

    hosts = log.hosts() | {failure.host for failure in torchrun.failures if failure.host}
    ranks = log.ranks() | {failure.rank for failure in torchrun.failures if failure.rank >= 0} | torchrun.ranks
    found = [
        *explain_nccl(log),
        *explain_watchdog(messages, ranks),
        *torchrun.findings(ranks_timed_out(messages)),
        *explain_rendezvous(messages, ended=torchrun.ended(), several_hosts=len(hosts) > 1),
        *recorders.findings(),
    ]
    findings = sorted(_joined(found), key=_order)
    if redact:
        named = {host for one in findings for names in (one.hosts, *one.links) for host in names}
        redaction = of_hosts(hosts | hosts_sought(messages) | named)
        findings = [redaction.finding(one) for one in findings]
        files = [replace(file, name=redaction.text(file.name), problem=redaction.text(file.problem)) for file in files]
    return Explanation(tuple(findings), tuple(files))


def _joined(found: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Merges findings that two sources share; next to a cause, its consequences become notes."""
    merged: dict[tuple[str, tuple[int, ...]], DoctorFinding] = {}
    for one in found:
        other = merged.get((one.id, one.ranks), one)
        keep, second = sorted((one, other), key=lambda each: gravity(each)[1])  # the later source is more precise: dumps know the call site
        merged[one.id, one.ranks] = replace(keep, evidence=tuple(dict.fromkeys((*keep.evidence, *second.evidence))))
    findings = list(merged.values())
    named_faults = {one.id for one in findings if one.severity == "fault"} - {"cause-unknown"}
    if not named_faults - CONSEQUENCES:
        return [one for one in findings if one.id != "cause-unknown" or not named_faults]
    kept = (one for one in findings if one.id not in ("cause-unknown", "collective-stuck"))
    return [replace(one, severity="note") if one.id in CONSEQUENCES else one for one in kept]


def _order(one: DoctorFinding) -> tuple[int, bool, int]:
    severity, confidence = gravity(one)
    return severity, one.id in CONSEQUENCES, confidence


def run(paths: Sequence[str], json_path: str = "", *, redact: bool = False) -> int:
    """Explains the files and folders, prints the findings, writes them to ``json_path`` ("-": instead); returns the exit code."""
    missing = [path for path in paths if not Path(path).exists()]
    if not paths or len(missing) == len(paths):
        got = ", ".join(missing) or "nothing"
        print(f"numscope: PATH: got {got!r}, expected files or folders that exist.", file=sys.stderr)
        return WRONG_USAGE
    explanation = examine([Path(path) for path in paths], redact=redact)
    if json_path != "-":
        print_explanation(explanation, sys.stdout)
    if json_path and not write_json(to_json_values(explanation), json_path):
        return WRONG_USAGE
    return exit_code(explanation)


def exit_code(explanation: Explanation) -> int:
    """0 nothing wrong, 1 a fault was found, 3 a fault with unknown cause, 5 nothing was recognized."""
    faults = [one for one in explanation.findings if one.severity == "fault"]
    if faults:
        return 3 if all(one.id in CONSEQUENCES for one in faults) else 1
    return 0 if explanation.recognized else 5


def headline(explanation: Explanation) -> str:
    """The most important sentence."""
    files, findings, known = count(len(explanation.files), "file"), explanation.findings, explanation.recognized
    if faults := sum(one.severity == "fault" for one in findings):
        return f"{count(faults, 'fault')} in {files}. First: {findings[0].summary}"
    if findings:
        return f"No fault in {files}; {count(len(findings), 'other finding')}."
    if not known:
        return (
            f"Nothing was recognized in {files}: no NCCL log, no flight-recorder dump, no output of torchrun. Give what the job printed "
            "(torchrun --redirects 3 --log-dir logs keeps it), with NCCL_DEBUG=INFO, or the dumps that ranks leave with "
            "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1."
        )
    return f"Nothing wrong found in {count(len(known), 'file')}: {_kinds(explanation)}."


def to_json_values(explanation: Explanation) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "exit_code": exit_code(explanation),
        "headline": headline(explanation),
        "findings": [to_json(one) for one in explanation.findings],
        "files": [{**to_json(file), "kinds": sorted(file.kinds)} for file in explanation.files],
    }


def print_explanation(explanation: Explanation, file: IO[str] | None = None) -> None:
    """Prints it, with colors if the file is a terminal."""
    from rich.console import Console
    from rich.text import Text

    lines = []
    for one in explanation.findings:
        whom = few([*(f"rank {rank}" for rank in one.ranks), *one.hosts], SHOWN_WHOM)
        about = ", ".join(filter(None, (one.confidence, whom)))
        lines.append(Text.assemble((f"{one.severity} ", _STYLES[one.severity]), (one.id, "bold"), f" ({about})\n  {one.summary}"))
        lines += [Text(f"    {line}", "dim") for line in one.evidence]
        lines += [*(Text(f"  > {line}", "green") for line in one.remedy), Text()]
    nothing = "" if explanation.findings or explanation.recognized else "numscope: "
    lines.append(Text(f"{nothing}{headline(explanation)}", "bold" if not explanation.findings else ""))
    if explanation.findings and explanation.recognized:
        lines.append(Text(f"Read: {_kinds(explanation)}.", "dim"))
    strange = [one for one in explanation.files if one.problem or not one.kinds]
    lines += [Text(f"  {one.name}: {one.problem or 'nothing was recognized in it'}", "dim") for one in strange[:SHOWN_FILES]]
    if len(strange) > SHOWN_FILES:
        lines.append(Text(f"  and {len(strange) - SHOWN_FILES} more files without findings", "dim"))
    Console(file=file, highlight=False, soft_wrap=True).print(*lines, sep="\n")


def _kinds(explanation: Explanation) -> str:
    kinds = Counter(kind for file in explanation.recognized for kind in file.kinds)
    return ", ".join(f"{kind} ({number})" for kind, number in sorted(kinds.items()))
