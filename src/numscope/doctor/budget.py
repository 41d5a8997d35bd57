"""Time limits: which phases run, how long each may take, and how much of that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from numscope.doctor.records import ExamPhase, Settings

# Seconds at the default deadline of 180 s; a shorter deadline shortens all of them. The rendezvous includes waiting for late ranks.
_BUDGETS_S = {
    ExamPhase.FACTS: 10.0,
    ExamPhase.RENDEZVOUS: 45.0,
    ExamPhase.COMPARE: 5.0,
    ExamPhase.LINKS: 25.0,
    ExamPhase.BACKEND: 30.0,
    ExamPhase.PAIRS: 25.0,
    ExamPhase.COLLECTIVES: 25.0,
    ExamPhase.COMPUTE: 10.0,
}
_DEFAULT_DEADLINE_S = 180.0
VERDICT_S = 5.0  # reserved for delivering the verdict
_BEAT_S, _SILENT_S = 1.0, 5.0
_BEATS_PER_S = 4000  # that a hub answers with less than half of its time


_T = TypeVar("_T")


class Overdue(Exception):
    """A call did not end within its time limit; its thread is abandoned."""

    def __init__(self, seconds: float, thread: threading.Thread) -> None:
        super().__init__(f"not done within {seconds:.1f} s")
        self.thread = thread


def limited(seconds: float, function: Callable[[], _T]) -> _T:
    """The function's result, from a separate thread, since no timeout can interrupt what hangs in C.

    Raises: Overdue; whatever the function raises.
    """
    result: list[_T] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            result.append(function())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if raised:
        raise raised[0]
    if result:
        return result[0]
    raise Overdue(max(0.0, seconds), thread)


class Deadline:
    """A point in time on this process's clock, some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return self.left == 0.0

    def within(self, seconds: float) -> Deadline:
        """A deadline after ``seconds``, but not later than this one."""
        return Deadline(min(seconds, self.left))


def beat_s(world_size: int) -> float:
    """Seconds between a rank's heartbeats."""
    return max(_BEAT_S, world_size / _BEATS_PER_S)


def silent_s(world_size: int) -> float:
    """Seconds without a heartbeat after which a rank counts as silent; times the timeout scale."""
    return max(_SILENT_S, 3 * beat_s(world_size))


def share(settings: Settings, phase: ExamPhase) -> float:
    """Seconds that a phase may take."""
    return _BUDGETS_S[phase] * min(1.0, (settings.deadline_s - VERDICT_S) / (_DEFAULT_DEADLINE_S - VERDICT_S)) * settings.timeout_scale


def chosen(settings: Settings) -> tuple[ExamPhase, ...]:
    """The phases to run: those asked for, and those they need."""
    wanted = {ExamPhase.FACTS, ExamPhase.RENDEZVOUS, *settings.phases} - ({ExamPhase.COMPUTE} if settings.quick else set())
    return tuple(sorted(wanted.union(*(phase.needs for phase in wanted))))
