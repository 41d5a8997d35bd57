"""The part of a module's hook that is in C: for most calls, a listener and a reader get what they want without a Python frame each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor

from numscope.probe import hook, optimizer, walk
from numscope.probe.entry import Entry, Leaves, ShownSites
from numscope.summary import native
from numscope.summary.ledger import Ledger

LEAVES, SITES = 1, 2  # what ``saw`` leaves to its caller
ReaderRows = tuple[Ledger | None, list[int], bytes, Callable[[int, Tensor, torch.Size | None], None] | None, Callable[[], None] | None]
NO_ROWS: ReaderRows = (None, [], b"", None, None)


@native.in_c
class Witness:
    """Sees modules' calls for a listener, which gets their leaves, and a reader, whose sites get tensors; both get gradients later.

    Args:
        caught: get what the listener, and what the reader raised; they raise again what is meant for the script.
    """

    def __init__(self, caught: Callable[[Exception], None], caught_by_reader: Callable[[Exception], None]) -> None:
        self._share(caught, caught_by_reader, walk.leaves, optimizer, hook.ids, OrderedDict)

    def _share(self, *parts: object) -> None:
        """Give C what it calls."""

    def listen(
        self,
        tap: Callable[[Entry, Leaves], None] | None,
        gradient: Callable[[Entry, str, Tensor, torch.Size | None], None] | None,
    ) -> None:
        """The listener from now on; hooks on gradients that were made for another one do nothing.

        Args:
            tap: gets a call's entry and leaves; None: there is no listener.
            gradient: gets a gradient's entry and slot, itself, and the output's shape where it has another one; None: they are not wanted.
        """

    def read(
        self,
        ledger: Ledger | None,
        parts: list[int],
        plain: bytes,
        observe: Callable[[int, Tensor, torch.Size | None], None] | None,
        begins: Callable[[], None] | None,
    ) -> None:
        """The reader from now on; hooks that were made for another list of parts do nothing.

        Args:
            ledger: observes tensors; None: there is no reader.
            parts: gets the site and the handle of each.
            plain: for each site, whether that is all it wants.
            observe: takes tensors of the other sites, and those that the ledger leaves to Python.
            begins: is called when a module has run forward.
        """

    def saw(
        self,
        entry: Entry | None,
        sites: ShownSites | None,
        hears: bool,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> int:
        """A module has returned.

        Args:
            entry: for the listener; None: it is not to get this call.
            sites: for the reader, likewise.
            hears: whether the listener is to get the outputs' gradients.

        Returns: what is left to the caller, ``LEAVES`` and ``SITES`` or'ed.
        """
        return (0 if entry is None else LEAVES) | (0 if sites is None else SITES)


class Ears:
    """Who a witness tells, and shows; for a while it may be another listener."""

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._told: tuple[Callable[..., None] | None, Callable[..., None] | None] = (None, None)
        self._shown = NO_ROWS

    def listen(self, tap: Callable[..., None] | None, gradient: Callable[..., None] | None) -> None:
        """``Witness.listen``."""
        self._told = tap, gradient
        self.witness.listen(tap, gradient)

    def read(self, shown: ReaderRows) -> None:
        """``Witness.read``."""
        self._shown = shown
        self.witness.read(*shown)

    @contextmanager
    def lent(self, tap: Callable[..., None] | None, gradient: Callable[..., None] | None) -> Iterator[None]:
        """Meanwhile a replay in this thread tells this listener, and no other, and shows nobody anything."""
        self.witness.listen(tap, gradient)
        self.witness.read(*NO_ROWS)
        optimizer.retold.add(get_ident())
        try:
            yield
        finally:
            optimizer.retold.discard(get_ident())
            self.witness.listen(*self._told)
            self.witness.read(*self._shown)
