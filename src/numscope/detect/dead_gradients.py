"""Steps in which every gradient is zero. Not an error: a frozen or finished model looks the same."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Parameter

from numscope.detect.diagnosis import of_gradients
from numscope.detect.evidence import Evidence
from numscope.probe.optimizers import gradient_of
from numscope.records.finding import Finding, Kind
from numscope.summary.ledger import Ledger


class DeadGradients:
    """Counts them.

    Attributes:
        most: how many in a row are a finding; None: no number.

    *Cost:* a pass over the gradients after each backward, where no torch optimizer is and nothing was left of the last step's gradients.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.most: int | None = None
        self._num = 0  # in a row
        self._made = Ledger()  # of gradients as backward made them
        self._handles: list[int] = []  # of this step's
        self._may_be_cleared = True  # before it is known what is left of a step's

    def see(self, parameters: Sequence[Parameter]) -> None:
        """A backward has returned, and the script's own code will update the weights: it may clear gradients before the step's end."""
        if self._may_be_cleared and not any(getattr(p, "_post_accumulate_grad_hooks", None) for p in parameters):  # they clear them too
            self._handles += self._made.observe_many([g for p in parameters if (g := gradient_of(p)) is not None])

    def look(self, handles: Sequence[int], *, by_hand: bool = False) -> Finding | None:
        """Look at a step's gradients. Returns: the finding, once there are too many such steps.

        Args:
            handles: of the gradients that the optimizer gets, or that are left of the step.
            by_hand: the script's own code has updated the weights.
        """
        evidence, seen = self._evidence, [handle for handle in handles if handle >= 0]
        are_zero: bool | None = bool(seen) and evidence.journal.ledger.are_zero(seen)
        if by_hand:
            made, self._handles = [handle for handle in self._handles if handle >= 0], []
            self._may_be_cleared = bool(are_zero) or not seen
            if self._may_be_cleared:
                self._made.read()
                are_zero = self._made.are_zero(made) if made else None
            self._made.reset()
        if are_zero is None:
            return None
        self._num = self._num + 1 if are_zero else 0
        if self._num != self.most:
            return None
        note = f"every gradient was exactly zero in {self._num} steps in a row"
        gone = "not replayed: nothing is non-finite"
        return of_gradients(evidence, seen, gone, evidence.model, kind=Kind.DEAD_GRADIENTS, note=note)
