"""The process that hosts the hub: hub, course and report together; and the verdict of a rank that has no hub."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numscope.doctor.budget import Deadline
from numscope.doctor.course import INTERNAL, Course
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.meeting import Meeting
from numscope.doctor.meet.places import Places
from numscope.doctor.records import Examined, Identity, Settings, Verdict
from numscope.doctor.redact import node_word, redacted
from numscope.records.files import write_atomically

INCOMPLETE = 5


@dataclass(frozen=True, slots=True)
class Output:
    """Where the report goes besides the terminal.

    Args:
        json: path of a file; "-" for standard output; "" for none.
        baseline: JSON values of an earlier report, to compare with.
    """

    json: str = ""
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """The file descriptor for the ranks' lines: standard output holds nothing but the JSON if that goes there."""
        return 2 if self.json == "-" else 1


class Host:
    """Hub and course, running.

    Raises: HubTaken.
    """

    def __init__(
        self, meeting: Meeting, settings: Settings, world_size: int, deadline: Deadline, output: Output, places: Places | None = None
    ) -> None:
        self._output = output
        self.hub = Hub(meeting, settings, world_size, places)
        self.course = Course(self.hub, settings, deadline, partial(judge, baseline=output.baseline), for_ranks)
        self.course.start()

    def report(self) -> int:
        """Prints the report; the exit code."""
        course = self.course
        if course.error is not None or course.verdict is None or course.examined is None:
            lines = (
                traceback.format_exception(course.error)
                if course.error is not None
                else ["numscope doctor: the examination did not end in time\n"]
            )
            write_lines("".join(lines).splitlines(), 2)
            return INTERNAL if course.error is not None else INCOMPLETE
        show(course.verdict, course.examined, self._output)
        return course.verdict.exit_code


def judge(examined: Examined, baseline: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on all observations."""
    from numscope.doctor.diagnose import diagnose  # here and below: only the hub's process and ranks without a hub pay for the import

    return diagnose(examined, baseline)


def show(verdict: Verdict, examined: Examined, output: Output) -> None:
    """Prints the table and the findings, and writes the JSON if asked for; JSON on standard output replaces the table."""
    from numscope.doctor import report

    if output.json:
        text = json.dumps(report.to_json(verdict, examined), indent=2) + "\n"
        if output.json == "-":
            write_lines(text.splitlines(), 1)
            return
        try:
            write_atomically(output.json, text)
        except OSError as error:  # the report is still worth printing
            write_lines([f"numscope doctor: --json: got {output.json!r}, expected a file that can be written: {error.strerror}."], 2)
    with contextlib.suppress(BrokenPipeError):
        report.print_verdict(verdict, examined, sys.stdout)
        sys.stdout.flush()


def alone(identity: Identity, settings: Settings, about_hub: Mapping[str, Any], results: tuple[Any, ...] = ()) -> tuple[Verdict, Examined]:
    """The verdict of a rank that has no hub.

    Args:
        about_hub: why, as in ``Examined.hub``.
    """
    examined = Examined(settings, identity.world_size, {}, results, (), {"here": identity.hostname, **about_hub})
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
    """Writes all lines at once, so that those of several processes do not mix. A closed pipe is ignored."""
    if not lines:
        return
    sys.stdout.flush()
    data = memoryview("".join(f"{line}\n" for line in lines).encode(errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
