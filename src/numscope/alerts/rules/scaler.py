"""Scale falls: GradScaler leaves out steps again and again, and lowers its scale each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from numscope.records.alert import Alert

NAME = "scale falls"
WINDOW = 100  # steps
INITIAL = 2.0**16  # torch's first scale: above it, a scale that falls has only grown too far
FALLEN = 8  # times below its highest value: a scale that grows every few steps is skipped back as often


class Scales:
    """The steps that a GradScaler left out. Until its first step it searches for its scale, which is no news down to a scale of 1."""

    def __init__(self) -> None:
        self._left_out: deque[int] = deque(maxlen=WINDOW)  # all steps that were
        self._skipped: deque[int] = deque(maxlen=64)  # those that no search for the first scale explains
        self._highest = 0.0
        self._has_stepped = False

    def stepped(self) -> None:
        """A step was not left out."""
        self._has_stepped = True

    def skipped(self, step: int, scale: float | None, settings: dict[str, Any]) -> Iterator[Alert]:
        """A step was left out.

        Args:
            scale: by which the loss was multiplied in it; None: unknown.
        """
        if scale is not None and self._has_stepped:
            self._highest = max(self._highest, scale)
        self._left_out.append(step)
        if not self._has_stepped and (scale is None or scale >= 1):
            return
        self._skipped.append(step)
        recent = sum(one > step - WINDOW for one in self._skipped)
        is_low = scale is not None and scale < 1
        has_fallen = scale is None or (scale * FALLEN <= self._highest and scale < INITIAL)
        if not is_low and (recent < settings["skips"] or not has_fallen):
            return
        left_out = sum(one > step - WINDOW for one in self._left_out)
        now = "" if scale is None else f", and its scale is {scale:g}" + (f", from {self._highest:g}" if self._highest > scale else "")
        yield Alert(
            step,
            NAME,
            "",
            "",
            scale if is_low else float(recent),
            1.0 if is_low else float(settings["skips"]),
            f"GradScaler left out {left_out} of the last {min(WINDOW, step + 1)} steps{now}: gradients overflow though it falls.",
            'Lower the learning rate, or train in bfloat16. The operation that overflows: watch(alerts={"scale falls": {"finding": 2}}).',
            {"skipped": recent, "scale": scale, "highest_scale": self._highest},
        )
