"""A step's journal: what was seen, in order, with a ledger handle for each tensor; read into frames and sites."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from operator import eq, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from numscope.probe import walk
from numscope.probe.entry import Entry, Leaves
from numscope.probe.optimizers import gradient_of
from numscope.records.finding import Frame, Line, Numbers
from numscope.records.site import Phase, Site
from numscope.summary import native
from numscope.summary.dispatch import DeviceBatch, describe
from numscope.summary.ledger import Ledger
from numscope.summary.parameter_rows import Weights

NUM_FRAMES = 21  # of a finding, if nobody asks for another number
NOT_SEEN = "not seen"
# One order over all scopes of the process: which of several models went bad first.
_clock = itertools.count()


# Of a step: its events, and its parameters' gradients by their places and handles.
Look = tuple[list[tuple[Any, ...]], list[tuple[list[tuple[Entry, str, Parameter]], list[int]]]]


class Event(NamedTuple):
    """One module call, or one gradient, or one optimizer's step.

    ``flat`` holds, for each leaf, its slot and what there is of it: the ledger and the handle there, or None and a note in words.
    """

    entry: Entry
    phase: Phase
    call: int
    flat: tuple[Any, ...]
    order: int

    @property
    def items(self) -> list[tuple[str, Ledger | None, int | str]]:
        """Slot, ledger, handle of each leaf."""
        return list(zip(*[iter(self.flat)] * 3, strict=True))


_LOOKS = tuple(map(itemgetter, map(Event._fields.index, ("entry", "phase", "flat"))))


@native.in_c
class Journal:
    """Appends events; answers, after ``read``, which were bad and what the frames were.

    Attributes:
        call: the number of the outermost call at work.
        before_gradient: is called before a gradient is added, until it is None again.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.weights = Weights()
        self.call = 0
        self.before_gradient: Callable[[], None] | None = None
        self._seen: list[tuple[Any, ...]] = []
        # of ``add_gradients``: places, handles, the call's number, order
        self._folded: list[tuple[list[tuple[Entry, str, Parameter]], list[int], int, int]] = []
        self._share(
            *(self.ledger, self.weights.ledger, self.weights, self._seen, _clock, self._folded, Phase.BACKWARD, Phase.FORWARD),
            *(describe, walk.NONE, walk.NOT_A_TENSOR, gradient_of),
        )

    def _share(self, *parts: object) -> None:
        """Tell C what it appends to, what it observes with, and its words."""

    def add(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> None:
        """A module's call, with its weights as they are and its leaves."""
        self.add_together(entry, phase, weights, leaves)

    def add_together(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> None:
        """``add``: what is on a device is read in one launch."""
        flat: list[Any] = []
        with DeviceBatch():
            for slot, weight in weights.items():
                if weight is not None:
                    flat += _item(slot, self.weights.ledger, self.weights.observe(weight), weight)
            for slot, leaf in leaves:
                if isinstance(leaf, Tensor):
                    flat += _item(slot, self.ledger, self.ledger.observe(leaf), leaf)
                else:
                    flat += (slot, None, walk.NONE if leaf is None else walk.NOT_A_TENSOR)
        self._append(entry, phase, flat)

    def tap(self, entry: Entry, leaves: Leaves) -> None:
        """``add`` of a forward call."""
        self.add(entry, Phase.FORWARD, entry.weights, leaves)

    def add_gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None = None) -> None:
        """The gradient of a module's output; ``shape``: the output's, where the gradient has another one."""
        if self.before_gradient is not None:
            self.before_gradient()
        self._append(entry, Phase.BACKWARD, _item(slot, self.ledger, self.ledger.observe(gradient, shape), gradient))

    def add_gradients(self, places: list[tuple[Entry, str, Parameter]]) -> list[int]:
        """The gradient of each parameter that has one, all read in one native call. Returns: their handles."""
        gradients = [gradient_of(p) for _, _, p in places]
        handles = self.ledger.observe_many([g for g in gradients if g is not None])
        found = [place for place, gradient in zip(places, gradients, strict=True) if gradient is not None]
        self._folded.append((found, handles, self.call, next(_clock)))
        return handles

    def unfold(self) -> None:
        """Make events of parameters' gradients. In a healthy step nobody asks for them."""
        while self._folded:
            places, handles, call, order = self._folded.pop(0)
            for (entry, slot, _), handle in zip(places, handles, strict=True):
                flat = _item(entry.gradient_slot(slot), self.ledger, handle)
                self._seen.append((entry, Phase.BACKWARD, call, flat, order))

    def add_handles(self, entry: Entry, phase: Phase, ledger: Ledger, handles: Iterable[tuple[str, int]]) -> None:
        """An event whose tensors were observed already."""
        self._append(entry, phase, itertools.chain.from_iterable(_item(slot, ledger, handle) for slot, handle in handles))

    def _append(self, entry: Entry, phase: Phase, flat: Iterable[Any]) -> None:
        self._events.append((entry, phase, self.call, tuple(flat), next(_clock)))

    @property
    def _events(self) -> list[tuple[Any, ...]]:
        self.unfold()
        return self._seen

    @property
    def events(self) -> list[Event]:
        """All of them. *Cost:* 0.3 µs each."""
        return [Event(*event) for event in self._events]

    def looks_like(self, other: Look) -> bool:
        """Whether the step has the events that ``look`` gave of another one. *Cost:* 0.1 µs an event, and nothing is made."""
        events, folded = other
        return (
            len(self._seen) == len(events)
            and all(all(map(eq, map(field, self._seen), map(field, events))) for field in _LOOKS)
            and [(places, handles) for places, handles, _, _ in self._folded] == folded
        )

    def look(self) -> Look:
        """The step as ``looks_like`` compares it."""
        return self._seen.copy(), [(places, handles) for places, handles, _, _ in self._folded]

    def copied(self) -> list[tuple[Any, ...]]:
        """The tuples that ``events`` is made of, for later."""
        return self._events.copy()

    def event(self, index: int) -> Event:
        """One of them, by its place in the step."""
        return Event(*self._events[index])

    def __len__(self) -> int:
        return len(self._events)

    @property
    def num_tensors(self) -> int:
        return self.ledger.num_observed + self.weights.ledger.num_observed

    @property
    def nbytes(self) -> int:
        return self.ledger.nbytes + self.weights.ledger.nbytes

    def read(self) -> None:
        self.ledger.read(self.weights.ledger)

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
        for name, ledger, handle in self.event(index).items:
            if name == slot and ledger is not None:
                return ledger.numbers(int(handle))
        return None

    def site(self, index: int, slot: str) -> Site:
        event = self.event(index)
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
        self._folded.clear()
        self._seen.clear()
        self.ledger.reset()
        self.weights.forget_gone()


def _item(slot: str, ledger: Ledger, handle: int, tensor: Tensor | None = None) -> tuple[str, Ledger | None, int | str]:
    """One leaf, as ``Event.flat`` holds it."""
    return (slot, ledger, handle) if handle >= 0 else (slot, None, NOT_SEEN if tensor is None else describe(tensor))


def frame(event: Event) -> Frame:
    lines = [
        Line(slot, None, str(handle)) if ledger is None else Line(slot, ledger.numbers(int(handle))) for slot, ledger, handle in event.items
    ]
    return Frame(event.entry.name, event.entry.cls, event.phase, tuple(lines))
