"""What backward is called on: seen before it runs, charged to the models whose outputs its gradients reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from numscope.detect.evidence import Evidence
from numscope.probe.entry import Entry
from numscope.records.site import Phase
from numscope.replay.loss import Root

_ENTRY = Entry("", "")


@dataclass(slots=True)
class Loss:
    """The roots of one backward, as one model's step would have them.

    Args:
        handles: their rows in the model's journal.
        roots: their states on the tapes that saw them made, which may be another model's: only one watches at a time.
    """

    handles: list[tuple[str, int]]
    roots: list[Root]

    @classmethod
    def look_at(cls, roots: Sequence[Tensor], step: Evidence, others: Sequence[Evidence]) -> Loss:
        """Before backward runs, while the graph is whole. *Cost:* one pass over the roots, hooks on the loss's own nodes."""
        slots = [f"loss[{i}]" if len(roots) > 1 else "loss" for i in range(len(roots))]
        handles = list(zip(slots, map(step.journal.ledger.observe, roots), strict=True))
        outputs = [t for call in step.calls for _, ref in call.outputs if (t := ref()) is not None]
        step.stretch.see_backward(roots, outputs)
        return cls(handles, [found for one in (step, *others) for found in one.stretch.find(roots)])

    def charge(self, step: Evidence) -> None:
        """The backward at work is this step's."""
        for call in step.calls:
            call.had_backward = True
        step.journal.add_handles(_ENTRY, Phase.LOSS, step.journal.ledger, self.handles)
        step.stretch.roots += self.roots
