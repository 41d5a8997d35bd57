"""One rank's process, from its identity to its exit code. The doctor's launcher starts it as ``python -m numscope.doctor.rank``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from numscope.doctor.agent import Agent, Outcome
from numscope.doctor.budget import Deadline
from numscope.doctor.course import Course
from numscope.doctor.meet.hub import HubTaken
from numscope.doctor.meet.identity import identify
from numscope.doctor.meet.meeting_point import MeetingPoint, meet
from numscope.doctor.meet.road import look
from numscope.doctor.output import INCOMPLETE, Output, alone, finding_lines, for_ranks, name_of, show, write_lines
from numscope.doctor.records import Identity, Settings, from_json
from numscope.records.errors import UsageError
from numscope.records.parent import die_with

SETTINGS = "NUMSCOPE_DOCTOR_SETTINGS"  # as JSON, for ranks that the doctor itself starts
_OVERTIME_S = 1.5  # after the deadline, before a process ends itself by force


def examine(identity: Identity, settings: Settings, environ: Mapping[str, str], output: Output) -> int:
    """Runs this rank's examination and prints this rank's lines; returns the exit code, which is the same on all ranks.

    Raises: UsageError if ranks can't know where to meet, or have no secret.
    """
    deadline = Deadline(settings.deadline_s)
    guard(deadline, name_of(identity, settings), output.lines)
    meeting = meet(identity, settings, environ)
    course: Course | None = None
    if meeting.hosted:
        try:
            course = Course(meeting, settings, identity.world_size, deadline, output)
        except HubTaken as taken:
            return show(*alone(identity, settings, taken_about(meeting, settings, taken, (identity.rank,))), output)
    way = meeting.at_home(course.hub.port) if course else meeting
    agent = Agent(identity, settings, way, deadline, elsewhere=identity.node != 0 and identity.launcher != "mpi")

    def interrupt(name: str) -> None:
        if course is not None:
            course.hub.hurry = name
        agent.interrupt(name)

    with on_signals(interrupt):
        outcome = agent.run()
    code = _report_outcome(agent.identity, settings, meeting, outcome, output)
    if outcome.verdict is None:
        agent.close()
        return code
    if course is None:
        agent.bye()
        return code
    agent.bye(wait=False)
    course.wait(3.0)
    code = course.report()
    course.hub.close()
    return code


def _report_outcome(identity: Identity, settings: Settings, meeting: MeetingPoint, outcome: Outcome, output: Output) -> int:
    """Prints this rank's lines; returns its exit code."""
    here = name_of(identity, settings)
    if outcome.verdict is not None:
        verdict = outcome.verdict
        lines = [f"{here} was not admitted: {outcome.refused}"] if outcome.refused else []
        if identity.rank in verdict.ok and not outcome.refused:
            lines.append(f"{here} is OK")
        if identity.launcher == "nnodes" and identity.node != 0 and identity.local_rank == 0:  # not the report's terminal
            lines += finding_lines(verdict, f"{here} ")
        write_lines(lines, output.lines)
        return verdict.exit_code
    if outcome.lost is None:
        write_lines([f"{here}: incomplete: ended by {outcome.interrupted} before there was a verdict"], output.lines)
        return INCOMPLETE
    verdict, examined = alone(identity, settings, {"endpoint": meeting.name, **outcome.lost}, outcome.results)
    write_lines(finding_lines(for_ranks(verdict, examined), f"{here} "), output.lines)
    return verdict.exit_code


def taken_about(meeting: MeetingPoint, settings: Settings, taken: HubTaken, ranks: tuple[int, ...]) -> dict[str, Any]:
    """Describes a port that the hub can't use, with what answers there."""
    found = look(meeting.at_home(meeting.ports[0]), settings, 1.0)
    met = "another doctor of this job already hosts a hub there" if found is None else str(found)
    sentence = f"{taken}{': ' if found is None else '; '}{met}"
    return {"reached": False, "kind": "taken", "sentence": sentence, "endpoint": meeting.name, "origin": meeting.origin, "ranks": ranks}


def guard(deadline: Deadline, who: str, descriptor: int) -> None:
    """Ends this process shortly after the deadline, whatever it hangs in."""

    def end() -> None:
        write_lines([f"{who}: incomplete: not done at the deadline of {deadline.seconds:.0f} s"], descriptor)
        os._exit(INCOMPLETE)

    timer = threading.Timer(deadline.seconds + _OVERTIME_S, end)
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def on_signals(handle: Callable[[str], object]) -> Iterator[None]:
    """Within the block, calls ``handle`` with the name of a terminating signal; afterwards such signals are ignored."""
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    for number in numbers:
        signal.signal(number, lambda got, _: handle(signal.Signals(got).name))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)


def main() -> NoReturn:
    """A rank that the doctor's launcher started, whose process id is the argument."""
    for launcher in sys.argv[1:]:
        die_with(int(launcher))
    settings = from_json(Settings, json.loads(os.environ[SETTINGS]))
    try:
        identity = identify(os.environ)
        assert identity is not None
        code = examine(identity, settings, os.environ, Output())
    except UsageError as error:
        write_lines([str(error)], 2)
        code = error.exit_status
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without waiting for threads that hang


if __name__ == "__main__":
    main()
