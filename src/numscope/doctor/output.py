"""Judges, prints and writes the outcome, with a hub or without one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.records import Examined, Identity, PhaseResult, Settings, Verdict
from numscope.doctor.redact import node_word, redacted
from numscope.records.files import write_where_asked
from numscope.records.words import escape

INCOMPLETE = 5


@dataclass(frozen=True, slots=True)
class Output:
    """The report's destinations besides the terminal."""

    json: str = ""  # path of a file; "-" for standard output; "" for none
    baseline: Mapping[str, Any] = field(default_factory=dict)  # JSON values of an earlier report, to compare with

    @property
    def lines(self) -> int:
        """The file descriptor for the ranks' lines: standard output holds nothing but the JSON if that goes there."""
        return 2 if self.json == "-" else 1


def judge(examined: Examined, baseline: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on all observations."""
    from numscope.doctor.diagnose import diagnose  # here and below: only the hub's process and ranks without a hub pay for the import

    return diagnose(examined, baseline)


def show(verdict: Verdict, examined: Examined, output: Output) -> int:
    """Prints the table and the findings, and writes the JSON if asked for; JSON on standard output replaces the table. The exit code."""
    from numscope.doctor import rendering

    if output.json:  # where it can't be written, the report is still worth printing
        write_json(rendering.to_json(verdict, examined), output.json)
    if output.json == "-":
        return verdict.exit_code
    with contextlib.suppress(BrokenPipeError):
        rendering.print_verdict(verdict, examined, sys.stdout)
        sys.stdout.flush()
    return verdict.exit_code


def write_json(values: Mapping[str, Any], path: str) -> bool:
    """Writes a report to a file, or to standard output for "-". Returns whether it could be written; prints why not."""
    text = json.dumps(values, indent=2) + "\n"
    if path == "-":
        write_lines(text.splitlines(), 1)
        return True
    try:
        write_where_asked(path, text.encode())
    except OSError as error:
        write_lines([f"numscope: --json: got {path!r}, expected a file that can be written: {error.strerror}."], 2)
        return False
    return True


def alone(
    identity: Identity, settings: Settings, hub: Mapping[str, Any], results: Sequence[PhaseResult] = (), refused: Sequence[Any] = ()
) -> tuple[Verdict, Examined]:
    """The verdict of a rank that has no hub; ``hub`` holds the reason, as in ``Examined.hub``."""
    examined = Examined(settings, identity.world_size, {}, results, refused, {"here": identity.hostname, **hub})
    return judge(examined), examined


def for_ranks(verdict: Verdict, examined: Examined) -> Verdict:
    """The verdict as ranks may print it: redacted if asked for."""
    return redacted(verdict, examined)[0] if examined.settings.redact else verdict


def finding_lines(verdict: Verdict, prefix: str = "") -> list[str]:
    """Findings as plain lines, where no table is printed."""
    lines = []
    for finding in verdict.findings:
        lines.append(f"{prefix}{finding.severity}: {finding.summary} ({finding.id}, {finding.confidence})")
        lines += [f"{prefix}  {line}" for line in finding.evidence]
        lines += [f"{prefix}  try: {line}" for line in finding.remedy]
    return lines


def name_of(identity: Identity, settings: Settings) -> str:
    """The prefix of a rank's lines: ``[host:rank]``, with the node's number instead of the host's name if redacted."""
    host = node_word(identity.node) if settings.redact else identity.hostname.encode("unicode_escape").decode()
    return f"[{host}:{identity.rank}]"


def write_lines(lines: list[str], descriptor: int) -> None:
    """Writes all lines at once, with control characters escaped, so that those of several processes do not mix. Ignores a closed pipe."""
    if not lines:
        return
    sys.stdout.flush()
    data = memoryview("".join(f"{escape(line)}\n" for line in lines).encode(errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
