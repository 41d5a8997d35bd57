"""Compares what activation checkpointing computes again in backward with the forward's results."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import checkpoint

from numscope.alerts.checks.check import Check, Subject
from numscope.probe.entry import Entry, Leaves
from numscope.records.finding import Numbers
from numscope.records.site import Phase, tensor_of
from numscope.summary.ledger import UNOBSERVED


class Recomputation(Check):
    """Compares the numbers of what modules give as a checkpoint calls them in backward with those of their calls in the step's forward.

    *Cost:* at a thorough step a walk up the frames of each call that a checkpoint does again, and one pass over what it gives.
    """

    name = "recomputation differs"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._again: list[tuple[Entry, str, int, bool]] = []  # module, slot, handle, and whether it lies on the CPU

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        self.subject.probe.again = self._see

    def after_backward(self) -> None:
        self.subject.probe.again = None
        if self.subject.journal.ledger.on_host:  # its rows are forgotten as the next micro-batch begins
            self._compare()

    def _see(self, entry: Entry, leaves: Leaves) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_filename != checkpoint.__file__:  # else a solver's adjoint, or reversible layers: they have other inputs
            if frame.f_back is None:
                return
            frame = frame.f_back
        for slot, leaf in leaves:
            if slot.startswith("output") and isinstance(leaf, Tensor):
                handle = self.subject.journal.ledger.observe(leaf)
                self._again += [] if handle == UNOBSERVED else [(entry, slot, handle, leaf.is_cpu)]

    def after_step(self, optimizer: Optimizer) -> None:
        self._compare()

    def _compare(self) -> None:
        (again, self._again), ledger = (self._again, []), self.subject.journal.ledger
        if not again or max(handle for _, _, handle, _ in again) >= len(ledger):
            return
        given = defaultdict[tuple[Entry, str], list[Numbers]](list)
        for event in self.subject.journal.events:
            for slot, book, handle in event.items if event.phase is Phase.FORWARD else ():
                if book is ledger:
                    given[event.entry, slot].append(ledger.numbers(int(handle)))
        for entry, slot, handle, is_cpu in again:
            now, before = ledger.numbers(handle), given[entry, slot]
            if before and not any(now == one or (not is_cpu and _rounds_to(now, one)) for one in before):
                ranges = _range(now), _range(before[0])
                differ = "other elements, in the same range," if ranges[0] == ranges[1] else f"{ranges[0]}, and {ranges[1]}"
                text = f"Computed again in backward, by a checkpoint, it is not what the forward gave: {differ} "
                advice = "Look for random numbers (leave preserve_rng_state=True), a mode that has changed, an input written in place."
                tensor = tensor_of(Phase.FORWARD, slot)
                self.say(f"{text}before: gradients are those of other numbers.", advice, layer=entry.name, tensor=tensor)
                return

    def end(self, closing: bool) -> None:
        self._again.clear()
        self.close()

    def close(self) -> None:
        self.subject.probe.again = None


def _rounds_to(one: Numbers, other: Numbers) -> bool:
    """Whether the order of a device's sums, which may change from call to call, explains it."""
    pairs = [(one.min, other.min), (one.max, other.max)]
    near = torch.finfo(getattr(torch, one.dtype)).eps ** 0.5 if "float" in one.dtype else 0.0
    return one.dtype == other.dtype and all(a is not None and b is not None and math.isclose(a, b, rel_tol=near) for a, b in pairs)


def _range(numbers: Numbers) -> str:
    return f"{numbers.num_zero} zeros and elements to {numbers.abs_max:.6g}" if numbers.abs_max is not None else "no number"
