"""Bad values that reach no weight: GradScaler leaves the step out, or the script drops or cures the gradients."""

from __future__ import annotations

from collections.abc import Sequence

from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.journal import Journal
from numscope.records.site import Phase
from numscope.replay.tape import UNOBSERVED


def beyond_scale(journal: Journal, reached: Sequence[BadLeaf], own: set[int], others: set[int]) -> list[BadLeaf]:
    """Bad tensors although GradScaler found this optimizer's gradients finite, unless another optimizer's gradients explain them."""
    events = [journal.event(index) for index, _ in reached]
    handles = {handle for event in events for _, book, handle in event.items if book is journal.ledger and event.phase is Phase.BACKWARD}
    if not own.isdisjoint(handles):
        return list(reached)  # made bad since
    if not others.isdisjoint(handles):
        return []
    kept: list[BadLeaf] = []
    for (index, slot), event in zip(reached, events, strict=True):
        numbers = journal.numbers(index, slot)
        if event.phase is Phase.FORWARD or (event.phase is Phase.LOSS and numbers is not None and numbers.num_nan):
            kept.append((index, slot))
    return kept


def is_discarded(evidence: Evidence, reached: Sequence[BadLeaf], gradients: Sequence[int]) -> bool:
    """Whether the script has dropped or cured what backward made: the gradients that the optimizer gets are finite.

    It may be an earlier batch's, after which the script called ``zero_grad`` in place of a step. A bad last loss is a finding.
    """
    journal = evidence.journal
    if not gradients:
        return none_is_used(evidence, reached, gradients)
    if not set(gradients).isdisjoint({UNOBSERVED, *journal.ledger.bad()}):
        return False
    last_loss = max((i for i, event in enumerate(journal.events) if event.phase is Phase.LOSS), default=-1)
    phases = {index: journal.event(index).phase for index, _ in reached}
    last_dropped = last_loss if Phase.BACKWARD in phases.values() else evidence.num_dropped
    return all(phase is Phase.BACKWARD or (phase is Phase.LOSS and index < last_dropped) for index, phase in phases.items())


def none_is_used(evidence: Evidence, reached: Sequence[BadLeaf], gradients: Sequence[int]) -> bool:
    """Whether the script has dropped all bad gradients, where the optimizer asks for them, or where none asks any more."""
    journal = evidence.journal
    if not reached or not set(gradients).isdisjoint({UNOBSERVED, *journal.ledger.bad()}):
        return False
    return all(journal.event(index).phase is Phase.BACKWARD for index, _ in reached)
