"""What backward is called on: seen before it runs, charged to the models whose outputs its gradients reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from numscope.detect.evidence import Evidence
from numscope.probe.entry import Entry
from numscope.records.site import Phase
from numscope.replay.tape import UNOBSERVED, State

_ENTRY = Entry("", "")


@dataclass(slots=True)
class Loss:
    """The roots of one backward, as one model's step would have them.

    Args:
        handles: their rows in the model's journal.
        roots: their states on the tape that saw them made.
    """

    handles: list[tuple[str, int]]
    roots: list[State]

    @classmethod
    def look_at(cls, roots: Sequence[Tensor], evidence: Evidence) -> Loss:
        """Before backward runs. *Cost:* one pass over the roots."""
        slots = [f"loss[{i}]" if len(roots) > 1 else "loss" for i in range(len(roots))]
        ledger = evidence.journal.ledger
        handles = [ledger.observe(root) for root in roots]
        is_finite = evidence.outside.is_behind and ledger.on_host and not set(handles) & {UNOBSERVED, *ledger.bad()}
        return cls(list(zip(slots, handles, strict=True)), [] if is_finite else evidence.outside.states(roots))

    def charge(self, evidence: Evidence) -> None:
        """The backward at work is this model's."""
        evidence.steps.had_backward = True
        for call in evidence.calls:
            call.had_backward = True
        evidence.journal.add_handles(_ENTRY, Phase.LOSS, evidence.journal.ledger, self.handles)
        evidence.roots += self.roots
