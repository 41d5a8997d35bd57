"""A step's rows at fixed sites: one a site, merged over calls and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.summary.dispatch import describe, observe_extras
from numscope.summary.ledger import UNOBSERVED, Ledger
from numscope.summary.parameter_rows import Weights
from numscope.summary.state import EMPTY_ROW, Groups, merge_rows

if TYPE_CHECKING:
    from numscope.summary.extras import Layout

COMPACT = 65536  # observations after which they are merged in between, where that costs no sync: 8 MiB of rows


@dataclass(slots=True)
class Seen:
    """One site's step so far, on the host.

    Args:
        calls: how many tensors.
        order: when it was first seen, among the step's observations.
        dtype: of the tensor seen last.
        ranks: how many ranks' parts the numbers hold.
        mine: whether this rank writes them; it is the lowest of those ranks.
    """

    row: list[float]
    cells: list[float]
    calls: int = 0
    order: int = -1
    dtype: str = ""
    ranks: int = 1
    mine: bool = True


def casting(kinds: Sequence[str]) -> Callable[[int, Tensor, Tensor, Layout], object]:
    """The ``further`` of a tally that no model stands behind: casts on paper, of sites with these kinds of tensor."""

    def further(site: int, tensor: Tensor, cells: Tensor, layout: Layout) -> None:
        from numscope.precision.gemm.counting import cast_on_paper

        cast_on_paper(tensor, kinds[site], cells, layout)

    return further


class Tally:
    """Observes tensors of any device into sites, gives each site's merged row after ``read``.

    Args:
        layouts: of each site's extra cells.
        further: merges into a site's cells what is computed of its tensor elsewhere: casts on paper, for example.
        ledger: gets the rows. Where somebody else resets it, ``merge`` is its ``before_reset``. None: one of its own.

    Attributes:
        parts: the site and the handle of each tensor, one behind the other; ``probe/witness.py`` adds to it too.

    *Cost:* as ``Ledger``; each site with extras takes its own passes for them. No sync before ``read``.
    """

    def __init__(
        self,
        layouts: Sequence[Layout],
        further: Callable[[int, Tensor, Tensor, Layout], object] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._layouts = tuple(layouts)
        self._further = further
        self.ledger = Ledger(Groups.ALL) if ledger is None else ledger
        self.parts: list[int] = []
        self._lock = self.ledger.lock  # threads may share a model
        self._cells: dict[tuple[int, torch.device], Tensor] = {}  # kept from step to step
        self._used: dict[tuple[int, torch.device], Tensor] = {}  # of them, those that are not all zero
        self._merged: dict[int, Seen] = {}
        self.unreadable: dict[int, str] = {}  # site → what stood there instead of a tensor with elements

    def want(self, groups: Groups) -> None:
        """Compute these fields from now on."""
        self.ledger.want(groups)

    @property
    def anything(self) -> bool:
        """Whether the step showed anything yet."""
        return bool(self.parts or self._merged)

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        """Merge a tensor of any shape into a site; ``shape``: in which it is meant, where it has another one."""
        with self._lock:
            self._add(site, tensor, self.ledger.observe(tensor), shape)
            if len(self.parts) >= 2 * COMPACT and self.ledger.on_host:
                self.merge()

    def observe_many(self, sites: Sequence[int], tensors: Sequence[Tensor]) -> None:
        """``observe`` for lists, in one native call."""
        with self._lock:
            for site, tensor, handle in zip(sites, tensors, self.ledger.observe_many(tensors), strict=True):
                self._add(site, tensor, handle)

    def take(self, sites: Sequence[int], tensors: Sequence[Tensor], rows: Weights, parameters: Sequence[Tensor]) -> None:
        """``observe_many`` of parameters whose rows are kept; ``tensors``: this rank's parts of them."""
        with self._lock:
            handles = self.ledger.take(rows.ledger, rows.current(parameters, self.ledger.groups))
            for site, tensor, handle in zip(sites, tensors, handles, strict=True):
                self._add(site, tensor, handle)

    def _add(self, site: int, tensor: Tensor, handle: int, shape: torch.Size | None = None) -> None:
        if handle == UNOBSERVED:
            self.unreadable[site] = describe(tensor)
            return
        self.parts += (site, handle)
        if self._layouts[site].extras:
            self._observe_extras(site, tensor if shape is None else tensor.reshape(shape))

    def merge_cells(self, site: int, first: int, cells: Tensor) -> None:
        """Merge float64[n], on any device, that was computed elsewhere, into a site's cells from cell ``first`` on."""
        layout = self._layouts[site]
        with self.ledger, torch._C.DisableTorchFunction(), torch.no_grad():
            into = self._cells_on(site, cells.device)[first : first + cells.numel()]
            is_max = torch.tensor(layout.is_max[first : first + cells.numel()], device="cpu").to(cells.device, non_blocking=True)
            into.copy_(torch.where(is_max, torch.maximum(into, cells), into + cells))

    def merge_counted(self, site: int, first: int, cells: Sequence[float]) -> None:
        """``merge_cells`` of what is on the host already; the site counts as seen."""
        layout = self._layouts[site]
        with self.ledger:
            seen = self._seen(site)
            seen.calls = seen.calls or 1
            for cell, number in enumerate(cells, first):
                old = seen.cells[cell]
                seen.cells[cell] = max(old, number) if layout.is_max[cell] else old + number

    def read(self) -> dict[int, Seen]:
        """Each site that was seen. *Cost:* nothing on CPU; elsewhere one copy and one sync a device."""
        with self.ledger:
            self.merge()
            for (site, _), cells in self._used.items():
                seen = self._merged.get(site)
                if seen is not None:
                    found = cells.tolist()
                    seen.cells = self._layouts[site].merge(seen.cells, found) if any(seen.cells) else found
            self._clear_cells()
            return self._merged

    def _seen(self, site: int) -> Seen:
        """A site's numbers so far; it counts as seen from now on."""
        seen = self._merged.get(site)
        if seen is None:
            seen = self._merged[site] = self.empty(site)
            seen.order = len(self._merged) - 1
        return seen

    def empty(self, site: int) -> Seen:
        """The numbers of a site that was not seen."""
        return Seen(list(EMPTY_ROW), self._layouts[site].empty())

    def reset(self) -> None:
        """Forget the step."""
        with self.ledger:
            self._forget_parts()
            self._clear_cells()
            self._merged = {}
            self.unreadable.clear()

    def merge(self) -> None:
        """Merge what was seen so far; its rows may go then."""
        with self.ledger:  # and C adds nothing
            self._merge()

    def _merge(self) -> None:
        if not self.parts:
            return
        self.ledger.read()
        handles = self.parts[1::2]
        rows, dtypes = self.ledger.rows(handles), self.ledger.dtypes(handles)
        for site, row, dtype in zip(self.parts[::2], rows, dtypes, strict=True):
            seen = self._merged.get(site)
            if seen is None:
                self._merged[site] = Seen(row, self._layouts[site].empty(), 1, len(self._merged), dtype)
                continue
            seen.row = merge_rows(seen.row, row) if seen.calls else row
            seen.calls += 1
            seen.dtype = dtype
        self._forget_parts()

    def _forget_parts(self) -> None:
        self.parts.clear()
        if self.ledger.before_reset is None:  # nobody else needs them
            self.ledger.reset()

    def _observe_extras(self, site: int, tensor: Tensor) -> None:
        layout = self._layouts[site]
        cells = self._cells_on(site, tensor.device)
        observe_extras(tensor, cells, layout)
        if self._further is not None and layout.has_further:
            self._further(site, tensor, cells, layout)

    def _cells_on(self, site: int, device: torch.device) -> Tensor:
        cells = self._cells.get((site, device))
        if cells is None:
            layout = self._layouts[site]
            # out of the modes that the caller is in: a default device, inference mode, fake tensors
            with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False):
                cells = self._cells[site, device] = torch.tensor(layout.empty(), dtype=torch.float64, device=device)
        self._used[site, device] = cells
        return cells

    def _clear_cells(self) -> None:
        if self._used:
            with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
                torch._foreach_zero_(list(self._used.values()))
            for site, device in self._used:
                if any(self._layouts[site].empty()):  # of a plug-in: its empty cells are not all zeros
                    del self._cells[site, device]
            self._used.clear()
