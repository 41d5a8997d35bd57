"""Buffers, which are saved with a model: one that a call has made bad may show in no loss before the next evaluation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from numscope.detect.journal import Journal
from numscope.probe.entry import Entry
from numscope.probe.module import ModuleProbe
from numscope.records.finding import Numbers
from numscope.records.site import Phase
from numscope.replay.capture import SMALL_BUFFER_BYTES, BufferCopies, Call
from numscope.replay.stages import nonfinite

_GONE = (0, -1)


class Buffers:
    """Reads a model's floating-point buffers in one native call, into the rows of its weights.

    Read are those that are small, that calls have been seen to change, or whose version has moved, and of the other ones one a step in
    turn: a write to ``buffer.data`` moves no version.

    Args:
        probe: names the modules.
        journal: gets an event for each buffer that has gone bad, once.
        copies: of buffers as they were when calls began.

    Attributes:
        bad: names of those that have gone bad in the step at work.

    *Cost:* 0.3 µs a buffer, and one pass over what is read.
    """

    def __init__(self, probe: ModuleProbe, journal: Journal, copies: BufferCopies) -> None:
        self._probe, self._journal, self._copies = probe, journal, copies
        self.bad: set[str] = set()
        self._places: list[tuple[Entry, str, Mapping[str, Tensor | None], weakref.ref[nn.Module]]] = []
        self._num_modules = 0
        self._stamps: dict[int, tuple[int, int]] = {}  # by place: which tensor was read, its version
        self._next = 0  # place of the large buffer whose turn it is
        self._read: list[tuple[int, int]] = []  # places and handles since ``note``
        self._known: set[int] = set()  # places of those that were bad already
        self.see()
        journal.weights.ledger.read()
        self._known = {place for place, _ in self._take()}

    def find(self) -> None:
        """Look for new modules, and at new buffers of known ones."""
        self._num_modules = len(self._probe.names)
        self._places = [
            (self._probe.entries[m], slot, m._buffers, weakref.ref(m)) for m in self._probe.names for slot, _ in m._buffers.items()
        ]
        self._stamps.clear()

    def forget(self) -> None:
        """The model is gone."""
        self._places = []

    def see(self, *, thorough: bool = True) -> None:
        """Read buffers; ``thorough``: small ones too whose version has not moved."""
        if self._num_modules != len(self._probe.names):
            self.find()
        found: dict[int, Tensor] = {}
        turn = -1
        for place, (_, slot, buffers, known) in enumerate(self._places):
            tensor = buffers[slot] if slot in buffers else None
            if tensor is None or not tensor.is_floating_point() or is_lazy(tensor) or tensor.device.type == "meta":
                continue
            stamp = id(tensor), -1 if tensor.is_inference() else tensor._version
            if self._stamps.get(place, _GONE) != stamp:
                self._stamps[place] = stamp
                found[place] = tensor
            elif thorough and (tensor.numel() * tensor.element_size() <= SMALL_BUFFER_BYTES or (known, slot) in self._copies.changing):
                found[place] = tensor
            elif thorough and turn < 0 and place >= self._next:
                turn = place
                found[place] = tensor
        if thorough:
            self._next = turn + 1
        if found:
            self._read += zip(found, self._journal.weights.observe_many([*found.values()]), strict=True)

    def _take(self) -> list[tuple[int, int]]:
        """The bad ones of those that were read: places and handles."""
        read, self._read = self._read, []
        bad = set(self._journal.weights.ledger.bad()) if read else ()
        self._known -= {place for place, handle in read if handle not in bad}
        return [(place, handle) for place, handle in read if handle in bad]

    def note(self, calls: list[Call], is_fault: Callable[[str, Call | None, Numbers], bool]) -> None:
        """Add an event for each buffer that has gone bad; the rows have been read.

        Args:
            calls: of the step.
            is_fault: tells of a buffer, the call that may have written it, and its numbers whether anything is wrong with it.
        """
        ledger = self._journal.weights.ledger
        for place, handle in self._take() if self._read else ():
            if place in self._known:
                continue
            self._known.add(place)
            entry, slot, _, known = self._places[place]
            module = known()
            name, call = entry.parameter(slot), None if module is None else self._writer(calls, module, slot)
            if is_fault(name, call, ledger.numbers(handle)):
                self.bad.add(name)
                now = self._journal.call
                self._journal.call = now if call is None else call.index
                self._journal.add_handles(entry, Phase.FORWARD, ledger, [(slot, handle)])
                self._journal.call = now

    def _writer(self, calls: list[Call], module: nn.Module, slot: str) -> Call | None:
        """The call that made a buffer bad: the next one found it so."""
        with torch.no_grad():
            for call, following in pairwise(calls):
                copy = self._copies.copy_of(following.buffers, module, slot)
                if copy is not None and nonfinite(copy):
                    return call
        return calls[-1] if calls else None
