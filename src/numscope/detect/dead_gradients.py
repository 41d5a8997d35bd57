"""Steps in which every gradient is zero. Not an error: a frozen or finished model looks the same."""

from __future__ import annotations

from collections.abc import Sequence

from numscope.detect.diagnosis import of_gradients
from numscope.detect.evidence import Evidence
from numscope.detect.made import Made
from numscope.records.finding import Finding, Kind


class DeadGradients:
    """Counts them.

    Args:
        evidence: the step at work.

    Attributes:
        most: how many in a row are a finding; None: no number.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.most: int | None = None
        self._num = 0  # in a row

    def look(self, handles: Sequence[int], made: Made | None) -> Finding | None:
        """Look at a step's gradients. Returns: the finding, once there are too many such steps.

        Args:
            handles: of the gradients that the optimizer gets, or that are left of the step.
            made: what they were, where the script may have cleared them since.
        """
        evidence, seen = self._evidence, [handle for handle in handles if handle >= 0]
        are_zero: bool | None = bool(seen) and evidence.journal.ledger.are_zero(seen)
        if made is not None and (are_zero or not seen):
            are_zero = made.were_zero()
        if are_zero is None:
            return None
        self._num = self._num + 1 if are_zero else 0
        if self._num != self.most:
            return None
        note = f"every gradient was exactly zero in {self._num} steps in a row"
        gone = "not replayed: nothing is non-finite"
        return of_gradients(evidence, seen, gone, evidence.model, kind=Kind.DEAD_GRADIENTS, note=note)
