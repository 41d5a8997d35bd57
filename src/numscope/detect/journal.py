"""A step's journal: what was seen, in order, with a ledger handle for each tensor; read into frames and sites."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from numscope.probe import walk
from numscope.probe.entry import Entry, Leaves
from numscope.records.finding import Frame, Line, Numbers
from numscope.records.site import Phase, Site
from numscope.summary.dispatch import describe
from numscope.summary.ledger import UNOBSERVED, Ledger

# One order over all scopes of the process: which of several models went bad first.
_clock = itertools.count()


class Event:
    """One module call, or one gradient, or one optimizer's step.

    ``items`` holds, for each leaf, its slot and what there is of it: ``(book, handle)``, or a note in words.
    """

    __slots__ = ("call", "entry", "items", "order", "phase")

    def __init__(self, entry: Entry, phase: Phase, call: int, items: list[tuple[str, Ledger | None, int | str]]) -> None:
        self.entry = entry
        self.phase = phase
        self.call = call
        self.items = items
        self.order = next(_clock)


_WeightRow = tuple[int, int, int, weakref.ref[Tensor]]  # handle, version, address, parameter


def _stamp(parameter: Tensor) -> tuple[int, int]:
    """Version and address, by which a parameter is told changed; (-1, 0) where it has none: functorch's wrappers, lazy parameters."""
    try:
        return parameter._version, parameter.data_ptr()
    except (RuntimeError, ValueError):
        return -1, 0


class Weights:
    """The rows of parameters: kept over steps, written again only when a parameter changed.

    A parameter is told changed by its version counter and address. ``recheck`` forgets both, for updates that move neither (``p.data``).
    """

    def __init__(self) -> None:
        self.ledger = Ledger(capacity=256)
        self.amax_before: dict[int, float] = {}  # by handle, once written: the largest magnitude before the optimizer's last step
        self._rows: dict[int, _WeightRow] = {}  # by id(parameter)
        self._gone: list[weakref.ref[Tensor]] = []  # of parameters that live no more, as functional_call's stand-ins
        self._free: list[int] = []  # their rows

    def observe(self, parameter: Tensor) -> int:
        version, address = _stamp(parameter)
        known = self._rows.get(id(parameter))
        if known is not None and known[1] == version >= 0 and known[2] == address and known[3]() is parameter:
            return known[0]
        if known is None or known[3]() is not parameter or known[0] == UNOBSERVED:
            handle = self._free.pop() if self._free else UNOBSERVED
            if handle == UNOBSERVED:
                handle = self.ledger.observe(parameter)
            elif not self.ledger.rewrite(handle, parameter):
                handle = self.ledger.observe(parameter)
            reference = weakref.ref(parameter, self._gone.append)
        else:
            handle, reference = known[0], known[3]
            self.amax_before[handle] = 0.0  # somebody has written it, and no optimizer
            if not self.ledger.rewrite(handle, parameter):
                handle = UNOBSERVED
        self._rows[id(parameter)] = (handle, version, address, reference)
        return handle

    def handle(self, parameter: Tensor) -> int:
        """The row of a parameter, ``UNOBSERVED`` if it has none."""
        return self._rows.get(id(parameter), (UNOBSERVED,))[0]

    def observe_many(self, parameters: Sequence[Tensor]) -> list[int]:
        """All of them again in one native call, as after an optimizer's step."""
        known = [p for p in parameters if (row := self._rows.get(id(p))) is not None and row[0] != UNOBSERVED and row[3]() is p]
        known_set = {id(p) for p in known}
        fresh = [p for p in parameters if id(p) not in known_set]
        if known:
            rows = [self._rows[id(p)][0] for p in known]
            self.amax_before.update(zip(rows, self.ledger.amax(rows), strict=True))
            self.ledger.rewrite_many(rows, known)
        handles = self.ledger.observe_many(fresh) if fresh else []
        for p, handle in (*((p, self._rows[id(p)][0]) for p in known), *zip(fresh, handles, strict=True)):
            row = self._rows.get(id(p))
            reference = row[3] if row is not None and row[3]() is p else weakref.ref(p, self._gone.append)
            self._rows[id(p)] = (handle, *_stamp(p), reference)
        return [self._rows[id(p)][0] for p in parameters]

    def recheck(self) -> None:
        """Read each parameter anew when it is next seen."""
        self._rows = {key: (handle, -1, 0, reference) for key, (handle, _, _, reference) in self._rows.items()}

    def forget_gone(self) -> None:
        """Empty the rows of parameters that live no more, for others to use; no event may name them any longer."""
        if self._gone:
            self._gone.clear()
            for key, (handle, _, _, reference) in list(self._rows.items()):
                if reference() is None:
                    del self._rows[key]
                    if handle != UNOBSERVED:
                        self.ledger.empty(handle)
                        self.amax_before.pop(handle, None)
                        self._free.append(handle)


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
        return bool(self.ledger.bad() or self.weights.ledger.bad())

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
