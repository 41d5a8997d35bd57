"""The question of an experiment, and its answer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from numscope.records.alert import Alert
from numscope.records.places import place
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.function_gradients import Application


@dataclass(frozen=True, slots=True)
class AskedCalls:
    """Some calls of a step, whose backward has run.

    Args:
        names: the model's modules.
        process: the run's.
        functions: what Functions were applied to outside the calls.
    """

    step: int
    calls: Sequence[Call]
    names: Mapping[nn.Module, str]
    buffers: BufferCopies
    process: int
    functions: Sequence[Application] = ()

    @property
    def is_apart(self) -> bool:
        """Whether this process may end for it."""
        return os.getpid() != self.process


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an experiment.

    Args:
        undone: why something was not asked, each a sentence's part.
        numbers: what was measured, a sentence's part.
    """

    alerts: Sequence[Alert] = ()
    undone: Sequence[str] = ()
    numbers: str = ""


def at(line: tuple[str, int, str]) -> str:
    """`` at FILE:LINE``, of file, line and code; nothing where it is not known."""
    return f" at {place(*line[:2])}" if line[0] else ""


def facts(op: str, line: tuple[str, int, str], **more: Any) -> dict[str, Any]:
    """The evidence of an alert about an operation."""
    return {"op": op, "line": f"{line[0]}:{line[1]}" if line[0] else "", "code": line[2], **more}


def share(error: float, of: str = "its size") -> str:
    """A relative error: ``3.2e-08 of its size``, ``0.45% of its size``, ``154% of its size``, ``38.5 times its size``."""
    if error >= 10:
        return f"{error:.3g} times {of}"
    if error < 1e-3:
        return f"{error:.1e} of {of}" if error else "0"
    return f"{error:{'.2%' if error < 0.1 else '.0%'}} of {of}"
