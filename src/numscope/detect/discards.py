"""Bad values that reach no weight: GradScaler leaves the step out, or the script drops or cures the gradients."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from numscope.detect.diagnosis import diagnose
from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.journal import Journal
from numscope.probe import optimizer as optimizer_probe
from numscope.records.faults import suppress
from numscope.records.finding import Reason
from numscope.records.site import Phase
from numscope.replay.tape import UNOBSERVED

NOT_USED = "the script used no bad gradient"
TRAINS_NOTHING = "what the model made is finite, and all gradients of this loss are zero"
LEFT_TO_OPTIMIZER = "the optimizer looks for bad gradients itself: whether it uses them is seen after its step"
_LOOKS = re.compile(r"isfinite|isnan|isinf|nan_to_num|found_inf|class \w*Skip")


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


def why_no_alarm(
    evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], gradients: Sequence[int], optimizer: Optimizer | None
) -> str:
    """Why what is bad is no alarm though an optimizer steps (None: by a GradScaler), for a note; "" if it is one."""
    if not reached:
        return ""
    if optimizer is not None and _is_discarded(evidence, reached, gradients):
        return NOT_USED
    if _trains_nothing(evidence, bad, reached, gradients):
        return TRAINS_NOTHING
    if optimizer is None:
        return ""
    in_backward = all(evidence.journal.event(index).phase in (Phase.LOSS, Phase.BACKWARD) for index, _ in reached)
    return LEFT_TO_OPTIMIZER if in_backward and _looks_itself(optimizer) else ""


def _trains_nothing(evidence: Evidence, bad: Sequence[BadLeaf], reached: Sequence[BadLeaf], gradients: Sequence[int]) -> bool:
    """Whether the loss alone is bad, and its gradients are all exactly zero, as of a batch in which no label counts.

    Where the model makes the loss, it has to be such a batch.
    """
    journal = evidence.journal
    if not gradients or not _are_finite(journal, gradients):
        return False
    events = [(event := journal.event(index), event.entry.is_root and _is_number(journal, index, slot)) for index, slot in bad]
    if not all(event.phase is Phase.LOSS or (event.phase is Phase.FORWARD and returns_it) for event, returns_it in events):
        return False
    calls = {event.call for event, _ in events}
    of_outputs = [
        int(handle)
        for index, event in enumerate(journal.events)
        if event.phase is Phase.BACKWARD and event.call in calls
        for slot, book, handle in event.items
        if book is journal.ledger and slot.startswith("grad output") and not (event.entry.is_root and _is_number(journal, index, slot))
    ]
    if not journal.ledger.are_zero(of_outputs or gradients):
        return False
    if not any(returns_it for _, returns_it in events):
        return True
    with optimizer_probe.paused():
        culprit = diagnose(evidence, bad, reached).culprit
    return culprit is not None and culprit.reason is Reason.DIVISION_BY_ZERO


def _are_finite(journal: Journal, gradients: Sequence[int]) -> bool:
    return set(gradients).isdisjoint({UNOBSERVED, *journal.ledger.bad()})


def _is_number(journal: Journal, index: int, slot: str) -> bool:
    numbers = journal.numbers(index, slot)
    return numbers is not None and numbers.numel == 1


def _looks_itself(optimizer: Optimizer) -> bool:
    """Whether an optimizer, or a hook before its step, seems to repair or refuse bad gradients: its source names a test of them."""
    own: list[Any] = [*type(optimizer).__mro__[:-1], *optimizer._optimizer_step_pre_hooks.values(), vars(optimizer).get("step")]
    for part in filter(None, own):
        code = part if isinstance(part, type) else getattr(part, "__code__", None)  # not of what it wraps: a scheduler wraps torch's step
        module = sys.modules.get(part.__module__) if isinstance(part, type) else inspect.getmodule(code)
        with suppress(OSError, TypeError):  # no source
            if not getattr(module, "__name__", "").startswith("torch.") and _LOOKS.search(inspect.getsource(code)):
                return True
    return False


def _is_discarded(evidence: Evidence, reached: Sequence[BadLeaf], gradients: Sequence[int]) -> bool:
    """Whether the script has dropped or cured what backward made: the gradients that the optimizer gets are finite.

    It may be an earlier batch's, after which the script called ``zero_grad`` in place of a step. A bad last loss is a finding.
    """
    journal = evidence.journal
    if not gradients:
        return none_is_used(evidence, reached, gradients)
    if not _are_finite(journal, gradients):
        return False
    last_loss = max((i for i, event in enumerate(journal.events) if event.phase is Phase.LOSS), default=-1)
    phases = {index: journal.event(index).phase for index, _ in reached}
    last_dropped = last_loss if Phase.BACKWARD in phases.values() else evidence.num_dropped
    return all(phase is Phase.BACKWARD or (phase is Phase.LOSS and index < last_dropped) for index, phase in phases.items())


def none_is_used(evidence: Evidence, reached: Sequence[BadLeaf], gradients: Sequence[int]) -> bool:
    """Whether the script has dropped all bad gradients, where the optimizer asks for them, or where none asks any more."""
    journal = evidence.journal
    if not reached or not _are_finite(journal, gradients):
        return False
    return all(journal.event(index).phase is Phase.BACKWARD for index, _ in reached)
