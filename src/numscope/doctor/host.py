"""The process that hosts the hub: hub, course and report together; and the verdict that a rank comes to alone when there is no hub."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from numscope.doctor.attendance import attendance, conclude
from numscope.doctor.budget import Deadline
from numscope.doctor.course import INTERNAL, Course
from numscope.doctor.hub import Hub
from numscope.doctor.meeting import Meeting
from numscope.doctor.records import Examined, Identity, Settings, Verdict
from numscope.doctor.seating import Seating

INCOMPLETE = 5


@dataclass(frozen=True, slots=True)
class Output:
    """Where the report goes beside the terminal.

    Args:
        json: path of a file, "-" for standard output, "" for none.
        baseline: an earlier report's JSON values, to compare with.
    """

    json: str = ""
    baseline: Mapping[str, Any] = field(default_factory=dict)


class Host:
    """Hub and course, running.

    Raises: HubTaken.
    """

    def __init__(
        self, meeting: Meeting, settings: Settings, world_size: int, deadline: Deadline, output: Output, seating: Seating | None = None
    ) -> None:
        self._output = output
        self.hub = Hub(meeting, settings, world_size, seating)
        self.course = Course(self.hub, settings, deadline, partial(judge, baseline=output.baseline))
        self.course.start()

    def report(self) -> int:
        """Prints the report; the exit code."""
        course = self.course
        if course.error is not None or course.verdict is None or course.examined is None:
            lines = traceback.format_exception(course.error) if course.error is not None else ["the course did not end in time\n"]
            write_lines("".join(lines).splitlines(), 2)
            return INTERNAL if course.error is not None else INCOMPLETE
        show(course.verdict, course.examined, self._output)
        return course.verdict.exit_code


def judge(examined: Examined, baseline: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on all that was seen."""
    if importlib.util.find_spec("numscope.doctor.diagnose") is None:
        return conclude(examined, attendance(examined))
    diagnose = getattr(importlib.import_module("numscope.doctor.diagnose"), "diagnose", None)
    if diagnose is None:
        return conclude(examined, attendance(examined))
    verdict: Verdict = diagnose(examined, baseline) if baseline else diagnose(examined)
    return verdict


def show(verdict: Verdict, examined: Examined, output: Output) -> None:
    """Prints the table and the findings, and writes the JSON where it was asked for."""
    if importlib.util.find_spec("numscope.doctor.report") is None:
        write_lines(finding_lines(verdict), 1)
        return
    report = importlib.import_module("numscope.doctor.report")
    if output.json:
        text = json.dumps(report.to_json(verdict, examined), indent=2) + "\n"
        if output.json == "-":
            os.write(1, text.encode())
            return
        with open(output.json, "w", encoding="utf-8") as file:
            file.write(text)
    report.print_verdict(verdict, examined, sys.stdout)
    sys.stdout.flush()


def alone(identity: Identity, settings: Settings, about_hub: Mapping[str, Any], results: tuple[Any, ...] = ()) -> tuple[Verdict, Examined]:
    """The verdict of a rank that has no hub.

    Args:
        about_hub: what is known of why, see ``Examined.hub``.
    """
    examined = Examined(settings, identity.world_size, {}, results, (), {"here": identity.hostname, **about_hub})
    return judge(examined), examined


def finding_lines(verdict: Verdict, prefix: str = "") -> list[str]:
    """Findings in a few plain lines, for where no table is printed."""
    lines = []
    for finding in verdict.findings:
        lines.append(f"{prefix}{finding.severity}: {finding.summary} ({finding.id}, {finding.confidence})")
        lines += [f"{prefix}  {line}" for line in finding.evidence]
        lines += [f"{prefix}  try: {line}" for line in finding.remedy]
    return lines


def ok_line(identity: Identity) -> str:
    """What a healthy rank prints."""
    return f"[{identity.hostname}:{identity.rank}] is OK"


def write_lines(lines: list[str], descriptor: int) -> None:
    """All lines in one write, so that those of several processes do not mix; a closed pipe is nobody's fault."""
    if not lines:
        return
    sys.stdout.flush()
    data = memoryview("".join(f"{line}\n" for line in lines).encode(errors="replace"))
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return
