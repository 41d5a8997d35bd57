"""How long each phase may take, and how much of it is left."""

from __future__ import annotations

import time

from numscope.doctor.records import Settings

# Seconds of the default deadline of 180; a shorter deadline shortens all alike. Waiting for ranks that come late is part of the rendezvous.
SHARES_S = {0: 10.0, 1: 45.0, 2: 5.0, 3: 25.0, 4: 30.0, 5: 25.0, 6: 25.0, 7: 10.0}
DEFAULT_DEADLINE_S = 180.0
VERDICT_S = 5.0  # kept back, so that the verdict reaches everybody


class Deadline:
    """A point in time on this process's clock.

    Args:
        seconds: from now.
    """

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
        """An earlier deadline, or this one's end."""
        return Deadline(min(seconds, self.left))


def share(settings: Settings, phase: int) -> float:
    """Seconds that a phase may take."""
    return SHARES_S[phase] * min(1.0, (settings.deadline_s - VERDICT_S) / (DEFAULT_DEADLINE_S - VERDICT_S)) * settings.timeout_scale
