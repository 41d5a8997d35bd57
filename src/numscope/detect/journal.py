"""A step's journal: what was seen, in order, with a ledger handle for each tensor; read into frames and sites."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from numscope.probe import walk
from numscope.probe.entry import Entry, Leaves
from numscope.records.finding import Frame, Line, Numbers
from numscope.records.site import Phase, Site
from numscope.summary.dispatch import describe
from numscope.summary.ledger import Ledger
from numscope.summary.weights import Weights

# One order over all scopes of the process: which of several models went bad first.
_clock = itertools.count()


@dataclass(slots=True, eq=False)
class Event:
    """One module call, or one gradient, or one optimizer's step.

    ``items`` holds, for each leaf, its slot and what there is of it: ``(book, handle)``, or a note in words.
    """

    entry: Entry
    phase: Phase
    call: int
    items: list[tuple[str, Ledger | None, int | str]]
    order: int = field(default_factory=_clock.__next__)


class Journal:
    """Appends events; answers, after ``read``, which were bad and what the frames were."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.weights = Weights()
        self.events: list[Event] = []
        self.call = 0

    @property
    def num_tensors(self) -> int:
        return self.ledger.num_observed + self.weights.ledger.num_observed

    @property
    def nbytes(self) -> int:
        return self.ledger.nbytes + self.weights.ledger.nbytes

    def add(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> Event:
        items: list[tuple[str, Ledger | None, int | str]] = []
        for slot, weight in weights.items():
            if weight is not None:
                handle = self.weights.observe(weight)
                items.append((slot, self.weights.ledger, handle) if handle >= 0 else (slot, None, describe(weight)))
        ledger = self.ledger
        for slot, leaf in leaves:
            if isinstance(leaf, Tensor):
                handle = ledger.observe(leaf)
                items.append((slot, ledger, handle) if handle >= 0 else (slot, None, describe(leaf)))
            else:
                items.append((slot, None, walk.NONE if leaf is None else walk.NOT_A_TENSOR))
        event = Event(entry, phase, self.call, items)
        self.events.append(event)
        return event

    def add_gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None = None) -> None:
        """The gradient of a module's output; ``shape``: the output's, where the gradient has another one."""
        handle = self.ledger.observe(gradient, shape)
        item = (slot, self.ledger, handle) if handle >= 0 else (slot, None, describe(gradient))
        self.events.append(Event(entry, Phase.BACKWARD, self.call, [item]))

    def add_handles(self, entry: Entry, phase: Phase, ledger: Ledger, handles: Iterable[tuple[str, int]]) -> Event:
        """An event whose tensors were observed already."""
        event = Event(entry, phase, self.call, [(slot, ledger, h) if h >= 0 else (slot, None, "not seen") for slot, h in handles])
        self.events.append(event)
        return event

    def read(self) -> None:
        self.ledger.read()
        self.weights.ledger.read()

    def bad(self) -> list[tuple[int, str]]:
        """(index of event, slot) of each non-finite leaf, in order."""
        books = {id(self.ledger): set(self.ledger.bad()), id(self.weights.ledger): set(self.weights.ledger.bad())}
        if not any(books.values()):
            return []
        return [
            (index, slot)
            for index, event in enumerate(self.events)
            for slot, ledger, handle in event.items
            if ledger is not None and handle in books[id(ledger)]
        ]

    def any_bad(self) -> bool:
        return bool(self.bad())

    def numbers(self, index: int, slot: str) -> Numbers | None:
        for name, ledger, handle in self.events[index].items:
            if name == slot and ledger is not None:
                return ledger.numbers(int(handle))
        return None

    def site(self, index: int, slot: str) -> Site:
        event = self.events[index]
        return Site(event.entry.name, event.entry.cls, event.phase, slot)

    def frames(self, last: int, count: int) -> tuple[Frame, ...]:
        """The ``count`` frames that end with event ``last``. Gradients of one module that came together share a frame."""
        return tuple(frame(event) for event in self.events[max(0, last + 1 - count) : last + 1])

    @property
    def on_host(self) -> bool:
        """Whether reading costs no sync."""
        return self.ledger.on_host and self.weights.ledger.on_host

    def take_frames(self) -> list[Frame]:
        """All that was seen, as frames, and begin anew. *Cost:* a sync where the rows lie on a device."""
        self.read()
        frames = [frame(event) for event in self.events]
        self.reset()
        return frames

    def reset(self) -> None:
        """Forget the step; weights' rows stay."""
        self.events.clear()
        self.ledger.reset()
        self.weights.forget_gone()


def frame(event: Event) -> Frame:
    lines = [
        Line(slot, None, str(handle)) if ledger is None else Line(slot, ledger.numbers(int(handle))) for slot, ledger, handle in event.items
    ]
    return Frame(event.entry.name, event.entry.cls, event.phase, tuple(lines))
