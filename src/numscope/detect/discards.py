"""Bad values that reach no weight: GradScaler leaves the step out, or the script drops or cures the gradients."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from numscope.detect.evidence import BadLeaf, Evidence
from numscope.detect.journal import Journal
from numscope.detect.skips import Skips
from numscope.records.faults import suppress
from numscope.records.site import Phase
from numscope.replay.tape import UNOBSERVED

NOT_USED = "the script used no bad gradient"
GOES_ON = "all gradients are finite, so the step was made"
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


def why_no_alarm(evidence: Evidence, reached: Sequence[BadLeaf], gradients: Sequence[int], optimizer: Optimizer, skips: Skips) -> str:
    """Why what is bad is no alarm though an optimizer steps, for a note; "" if it is one.

    Args:
        skips: know whether steps are left out, so that a loss alone is no reason to stop, unless there are many in a row.
    """
    if not reached:
        return ""
    if gradients and _are_finite(evidence.journal, gradients) and _is_of_calls(evidence, reached) and skips.goes_on(evidence.step):
        return GOES_ON
    if _is_discarded(evidence, reached, gradients):
        return NOT_USED
    in_backward = all(evidence.journal.event(index).phase in (Phase.LOSS, Phase.BACKWARD) for index, _ in reached)
    return LEFT_TO_OPTIMIZER if in_backward and _looks_itself(optimizer) else ""


def _is_of_calls(evidence: Evidence, reached: Sequence[BadLeaf]) -> bool:
    """Whether all of it is what calls and losses have made: no weight, no buffer, no gradient."""
    events = [(evidence.journal.event(index), slot) for index, slot in reached]
    is_made = all(event.phase in (Phase.FORWARD, Phase.LOSS) and slot.startswith(("output", "input", "loss")) for event, slot in events)
    return is_made and not evidence.saved.bad


def _are_finite(journal: Journal, gradients: Sequence[int]) -> bool:
    return set(gradients).isdisjoint({UNOBSERVED, *journal.ledger.bad()})


def _looks_itself(optimizer: Optimizer) -> bool:
    """Whether an optimizer, or a hook before its step, seems to repair or refuse bad gradients: its source names a test of them."""
    own: list[Any] = [*type(optimizer).__mro__[:-1], *optimizer._optimizer_step_pre_hooks.values(), vars(optimizer).get("step")]
    for part in filter(None, own):
        # Not of what it wraps: a scheduler wraps torch's step.
        code: Any = part if isinstance(part, type) else getattr(part, "__code__", None)
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
