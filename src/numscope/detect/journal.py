"""A step's journal: what was seen, in order, with a ledger handle for each tensor; read into frames and sites."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from numscope.probe import walk
from numscope.probe.entry import Entry, Leaves
from numscope.records.finding import Frame, Line, Numbers
from numscope.records.site import Phase, Site
from numscope.summary import native
from numscope.summary.dispatch import describe
from numscope.summary.ledger import Ledger
from numscope.summary.weights import Weights

NOT_SEEN = "not seen"
# One order over all scopes of the process: which of several models went bad first.
_clock = itertools.count()


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


class _Reference:
    """What the native base does, where there is none.

    Args:
        ledger, weights_ledger: of activations and gradients, of weights.
        rows: of weights by id, with their state when they were read.
        observe_weight: reads a weight that is new or has changed.
        events: gets a tuple for each; ``clock`` gives their order.
        phase, forward: of gradients, of calls.
        describe: words for a tensor that can't be read; ``none`` and ``other`` for what is no tensor, ``not_seen`` for what has no handle.
    """

    def __init__(
        self,
        ledger: Ledger,
        weights_ledger: Ledger,
        rows: Mapping[int, Any],
        observe_weight: Callable[[Tensor], int],
        events: list[Any],
        clock: Iterator[int],
        phase: Phase,
        forward: Phase,
        describe: Callable[[Tensor], str],
        none: str,
        other: str,
        not_seen: str,
    ) -> None:
        self.call = 0
        self._given = ledger, weights_ledger, observe_weight, events, clock, phase
        self._words = describe, none, other

    def add(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> None:
        """A module's call, with its weights as they are and its leaves."""
        ledger, weights_ledger, observe_weight, *_ = self._given
        describe, none, other = self._words
        flat: list[Any] = []
        for slot, weight in weights.items():
            if weight is not None:
                handle = observe_weight(weight)
                flat += (slot, weights_ledger, handle) if handle >= 0 else (slot, None, describe(weight))
        for slot, leaf in leaves:
            if isinstance(leaf, Tensor):
                handle = ledger.observe(leaf)
                flat += (slot, ledger, handle) if handle >= 0 else (slot, None, describe(leaf))
            else:
                flat += (slot, None, none if leaf is None else other)
        self._append(entry, phase, flat)

    def add_gradient(self, entry: Entry, slot: str, gradient: Tensor, shape: torch.Size | None = None) -> None:
        """The gradient of a module's output; ``shape``: the output's, where the gradient has another one."""
        ledger, phase = self._given[0], self._given[5]
        handle = ledger.observe(gradient, shape)
        self._append(entry, phase, (slot, ledger, handle) if handle >= 0 else (slot, None, self._words[0](gradient)))

    def add_handle(self, entry: Entry, slot: str, handle: int) -> None:
        """The gradient of a parameter, which was observed already."""
        self._append(entry, self._given[5], (slot, self._given[0], handle) if handle >= 0 else (slot, None, NOT_SEEN))

    def tap(self, entry: Entry, leaves: Leaves) -> None:
        """``add`` of a forward call."""
        self.add(entry, Phase.FORWARD, entry.weights, leaves)

    def _append(self, entry: Entry, phase: Phase, flat: Iterable[Any]) -> None:
        self._given[3].append((entry, phase, self.call, tuple(flat), next(self._given[4])))


if TYPE_CHECKING or native.module is None:
    _Base = _Reference
else:
    _Base = native.module.Journal


class Journal(_Base):
    """Appends events; answers, after ``read``, which were bad and what the frames were."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.weights = Weights()
        self._events: list[Any] = []
        rows, observe = self.weights.rows, self.weights.observe
        super().__init__(
            *(self.ledger, self.weights.ledger, rows, observe, self._events, _clock, Phase.BACKWARD, Phase.FORWARD),
            *(describe, walk.NONE, walk.NOT_A_TENSOR, NOT_SEEN),
        )

    @property
    def events(self) -> list[Event]:
        """All of them. *Cost:* 0.3 µs each."""
        return [Event(*event) for event in self._events]

    def event(self, index: int) -> Event:
        return Event(*self._events[index])

    def __len__(self) -> int:
        return len(self._events)

    @property
    def num_tensors(self) -> int:
        return self.ledger.num_observed + self.weights.ledger.num_observed

    @property
    def nbytes(self) -> int:
        return self.ledger.nbytes + self.weights.ledger.nbytes

    def add_handles(self, entry: Entry, phase: Phase, ledger: Ledger, handles: Iterable[tuple[str, int]]) -> None:
        """An event whose tensors were observed already."""
        flat: list[Any] = []
        for slot, handle in handles:
            flat += (slot, ledger, handle) if handle >= 0 else (slot, None, NOT_SEEN)
        self._events.append((entry, phase, self.call, tuple(flat), next(_clock)))

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
        self._events.clear()
        self.ledger.reset()
        self.weights.forget_gone()


def frame(event: Event) -> Frame:
    lines = [
        Line(slot, None, str(handle)) if ledger is None else Line(slot, ledger.numbers(int(handle))) for slot, ledger, handle in event.items
    ]
    return Frame(event.entry.name, event.entry.cls, event.phase, tuple(lines))
