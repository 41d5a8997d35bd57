"""The state that a child's phases share: its report and, once started, its process group."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

import torch
from torch.distributed import ProcessGroup

from numscope.doctor.child.report import Report
from numscope.doctor.child.rollcall import RollCall


class Failed(Exception):
    """A phase found that something does not work; the message says what."""


@dataclass(slots=True)
class Wire:
    """The process group of a backend, gloo or nccl, and the device on which it expects tensors."""

    backend: str
    group: ProcessGroup
    device: torch.device


@dataclass(slots=True)
class Desk:
    """A child's state."""

    report: Report
    rank: int
    import_s: float
    members: tuple[int, ...] = ()  # ranks of the process group, ascending; each one's rank in torch is its index
    wires: list[Wire] = field(default_factory=list)  # one per backend
    roll: RollCall | None = None
    limit_s: float = 0.0  # the phase's time limit in seconds
    _end: float = 0.0

    def begin(self, limit_s: float, end: float) -> None:
        """Starts a phase's clock."""
        self.limit_s, self._end = limit_s, end
        if self.roll is not None:
            self.roll.answer_s = self.answer_s

    @property
    def answer_s(self) -> float:
        """Seconds that a store may take for an immediate answer."""
        return max(0.5, 0.1 * self.limit_s)

    @property
    def left(self) -> float:
        """Seconds left of the phase's time."""
        return max(0.0, self._end - time.monotonic())

    def need_group(self) -> RollCall:
        """The roll call of the process group. Raises: Failed."""
        if self.roll is None or not self.wires:
            raise Failed(f"rank {self.rank} has no process group: its backend did not start")
        return self.roll


def sentence(error: BaseException) -> str:
    """The first line of an error, without its location in torch's sources and its general advice."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return re.sub(r"^\[[^\]]*\.(cc|cpp|h):\d+\]\s*", "", first).partition(". This is typically")[0][:300]


def text_of(error: BaseException) -> str:
    """The first lines of an error."""
    return "\n".join(str(error).splitlines()[:12]) or type(error).__name__
