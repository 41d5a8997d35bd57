"""Steps that are left out because a gradient is not finite (``on_nonfinite="skip"``): no weight, buffer or optimizer's state moves."""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from numscope.config.options import WatchOptions
from numscope.detect import evaluations
from numscope.detect.evidence import Evidence
from numscope.detect.healing import Healing
from numscope.detect.skips import MOST_IN_A_ROW, Skips
from numscope.distributed.agree import Ranks
from numscope.records.faults import ours
from numscope.records.finding import Finding
from numscope.report.delivery import Delivery

log = logging.getLogger("numscope")

_LOOKS = re.compile(r"grad\w* is (?:not )?None")
WHY = "a gradient was not finite"


def _takes_none(optimizer: Optimizer) -> bool:
    """Whether an optimizer leaves parameters alone that have no gradient: torch's do, and those whose step looks for that."""
    step = type(optimizer).step
    if step.__module__.startswith("torch."):
        return True
    try:
        return bool(_LOOKS.search(inspect.getsource(inspect.unwrap(step))))
    except ours(OSError, TypeError):  # no source
        return True


@torch.no_grad()
def _as_it_is(optimizer: Optimizer) -> Callable[[], None]:
    """A function that puts weights and states back as they are now. *Cost:* a copy of them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    weights = [p.clone() for p in parameters]
    states = copy.deepcopy([dict(optimizer.state[p]) if p in optimizer.state else None for p in parameters])

    @torch.no_grad()
    def put_back() -> None:
        for p, weight, state in zip(parameters, weights, states, strict=True):
            p.copy_(weight)
            optimizer.state.pop(p, None)
            if state is not None:
                optimizer.state[p] = state

    return put_back


def _counters(optimizer: Optimizer) -> Callable[[], None]:
    """A function that puts back plain numbers of an optimizer and its groups, such as how often it has stepped."""
    places: list[dict[str, Any]] = [vars(optimizer), *optimizer.param_groups]
    numbers = [{k: v for k, v in place.items() if isinstance(v, int | float) and not k.startswith("_")} for place in places]

    def put_back() -> None:
        for place, known in zip(places, numbers, strict=True):
            place.update(known)

    return put_back


class LeftOutSteps:
    """Decides which steps are left out, and takes the gradients away from an optimizer meanwhile.

    Args:
        skips: counts each optimizer's.
        ranks: of sharded weights, which have to decide together. Those that average their gradients have the same ones.

    Attributes:
        asked: for by the options.
        events: step and text of those that were left out, a scaler's too, and of remedies that stay on.
        healing: what keeps them on.

    *Cost:* none unless asked for; then one reduction of a number a step where weights are sharded over ranks.
    """

    def __init__(self, evidence: Evidence, options: WatchOptions, skips: Skips, ranks: Ranks, delivery: Delivery) -> None:
        self.asked, self.healing = options.leaves_out, Healing(evidence, options, ranks)
        self._evidence, self._skips, self._ranks = evidence, skips, ranks
        self._delivery = delivery
        self._is_out = False  # the step at work
        self._withheld: list[tuple[Tensor, Tensor]] = []
        self._moved: list[Callable[[], None]] = []  # what puts back what the step moves all the same
        self.events: list[tuple[int, str]] = []

    def decide(self, optimizer: Optimizer, gradients: Sequence[int], *, goes_on: bool) -> bool:
        """Whether an optimizer's step is left out; on all ranks, or on none.

        Args:
            gradients: handles of the model's; of a further optimizer in the same step, which ``goes_on``, of its own.
        """
        self._is_out = self.asked and (self._is_bad(gradients) or (goes_on and self._is_out))
        if not self._is_out:
            self.stepped(optimizer)
            return False
        left_out = self._skips.left_out(optimizer) <= (self._skips.most or MOST_IN_A_ROW)
        if left_out:
            self.happened("numscope")
        return left_out

    def _is_bad(self, gradients: Sequence[int]) -> bool:
        journal = self._evidence.journal
        journal.read()
        bad = not set(gradients).isdisjoint(journal.ledger.bad())
        if self._ranks.have_to_be_asked:
            return self._ranks.any("a step to be left out", bad)[0]
        if bad and self._ranks.together and self._ranks.stage is not None:
            log.warning("numscope: no step is left out: a pipeline's stages don't know of each other's gradients")
            return False
        return bad

    def stepped(self, optimizer: Optimizer) -> None:
        evaluations.stepped()
        self._skips.stepped(optimizer)

    def happened(self, who: str) -> None:
        """A step is left out: an event, once however many optimizers."""
        if self._skips.steps[-1:] != [self._evidence.step]:
            self._skips.steps.append(self._evidence.step)
            self.events.append((self._evidence.step, f"{who} left the step out: {WHY}"))
            self._delivery.event(*self.events[-1])

    def withhold(self, optimizer: Optimizer, finding: Finding | None) -> None:
        """Take an optimizer's gradients away until ``give_back``; buffers are as before the step at once.

        Args:
            finding: what is known of a step that is left out, and may be healed.
        """
        held = [(p, p.grad) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        needs = not _takes_none(optimizer)
        self._moved.append(_counters(optimizer))
        if needs:
            self._moved.append(_as_it_is(optimizer))
        for p, gradient in held:
            p.grad = torch.zeros_like(gradient) if needs else None
        self._withheld += held
        if self.asked:
            self.is_left_out(finding)

    def give_back(self) -> None:
        """The optimizer has had its step."""
        for p, gradient in self._withheld:
            p.grad = gradient
        for put_back in self._moved:
            put_back()
        self._withheld, self._moved = [], []

    def is_left_out(self, finding: Finding | None) -> None:
        """Where it is asked for: buffers are as when the step's first call began; what has been tried with success stays on."""
        if self.asked and self._evidence.calls:
            self._evidence.buffers.put_back(self._evidence.calls[0].buffers)
        text = self.healing.heal(finding)
        if text:
            self._skips.forget()
            self.events.append((self._evidence.step, f"{text} stays on from now on"))
            self._delivery.event(*self.events[-1])
