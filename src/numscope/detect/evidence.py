"""What is kept of the step at work, for the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from numscope.detect.journal import Journal
from numscope.distributed import agree
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import class_name
from numscope.replay.capture import BufferCopies, Call
from numscope.replay.loss import LossStretch

BadLeaf = tuple[int, str]  # index of event, slot


@dataclass(slots=True)
class Evidence:
    """All that is kept of the step at work, for the judge."""

    model: str
    names: Mapping[nn.Module, str]
    journal: Journal
    stretch: LossStretch
    buffers: BufferCopies
    frames: int
    rank: int
    calls: list[Call] = field(default_factory=list)
    step: int = 0

    @classmethod
    def of(cls, probe: ModuleProbe, frames: int, failed: Callable[[Exception], None]) -> Evidence:
        """Of the model that a probe is on; ``failed`` is told of errors of the tool's own."""
        journal = Journal()
        stretch = LossStretch(journal.ledger, failed)
        return cls(class_name(probe.root), probe.names, journal, stretch, BufferCopies(probe.names), frames, agree.rank())

    def forget(self) -> None:
        """The step is over."""
        self.journal.reset()
        self.stretch.reset()
        self.calls.clear()
