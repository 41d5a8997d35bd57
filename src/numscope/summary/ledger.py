"""Rows on the tensors' own devices, read by the host at the end of a step.

Observing writes into a row on the tensor's device without waiting. Only ``read`` makes the host wait: rows on the CPU are host memory
already; from another device each block is copied at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.finding import Numbers
from numscope.records.observation import FIELDS
from numscope.summary import dispatch, native
from numscope.summary.state import EMPTY_ROW, ROW_BYTES, ROW_WIDTH, Groups, Summary

UNOBSERVED = -1  # the handle of a tensor that can't be summarized


class _Block:
    """Rows of one device: a float64 tensor ``[capacity, ROW_WIDTH]`` that grows by doubling."""

    __slots__ = ("address", "capacity", "device", "handles", "host", "rows")

    def __init__(self, device: torch.device, capacity: int) -> None:
        self.device = device
        self.capacity = 0
        self.handles: list[int] = []  # row → handle
        self.rows: Tensor = torch.empty((0, ROW_WIDTH), dtype=torch.float64, device=device)
        self.host: Tensor = self.rows
        self.address = 0
        self.grow(capacity)

    def grow(self, capacity: int) -> None:
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            rows = torch.tensor(EMPTY_ROW, dtype=torch.float64, device="cpu").to(self.device, non_blocking=True).repeat(capacity, 1)
            rows[: self.capacity] = self.rows
        self.rows, self.capacity = rows, capacity
        self.address = rows.data_ptr()
        self.host = rows if self.device.type == "cpu" else torch.empty(0, dtype=torch.float64, device="cpu")

    def clear(self, first: int, count: int) -> None:
        """Make rows empty."""
        if native.module is not None and self.device.type == "cpu":
            native.module.reset(self.address + first * ROW_BYTES, count)
        else:
            with torch.no_grad():
                empty = torch.tensor(EMPTY_ROW, dtype=torch.float64, device="cpu")
                self.rows[first : first + count] = empty.to(self.device, non_blocking=True)

    def bad(self) -> list[int]:
        """Rows with a nan or an inf, as of the last read."""
        count = len(self.handles)
        if native.module is not None and count:
            found: list[int] = native.module.bad_rows(self.host.data_ptr(), count)
            return found
        with torch.no_grad():
            return (self.host[:count, 1:4] > 0).any(1).nonzero().flatten().tolist()


class Ledger:
    """A step's observations: ``observe`` returns a handle at once, ``numbers`` its numbers after ``read``.

    Args:
        groups: the fields of a summary to compute.
        capacity: initial number of rows per device.

    *Cost:* an observation on the CPU is one pass over the tensor and about 2 µs; a tensor seen again unchanged is not read again.
    """

    def __init__(self, groups: Groups = Groups.HEALTH, capacity: int = 512) -> None:
        self.groups = groups
        self._capacity = capacity
        self._blocks: dict[torch.device, _Block] = {}
        self._cpu: _Block | None = None
        self._seen: dict[int, tuple[weakref.ref[Tensor], int, int]] = {}
        self._meta: list[tuple[_Block, int, torch.dtype, tuple[int, ...]]] = []
        self._num_past = 0

    def __len__(self) -> int:
        return len(self._meta)

    @property
    def num_observed(self) -> int:
        """Observations since the ledger was created, including those of forgotten steps."""
        return self._num_past + len(self._meta)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on all devices."""
        return sum(b.capacity * ROW_BYTES for b in self._blocks.values())

    @property
    def on_host(self) -> bool:
        """Whether every row is in host memory, so that reading needs no sync."""
        return all(block.device.type == "cpu" for block in self._blocks.values())

    def observe(self, tensor: Tensor) -> int:
        """Summarize a tensor of any shape and dtype into a row on its device.

        Returns: a handle for ``numbers``; ``UNOBSERVED`` for a tensor without readable numbers (meta, fake, …).
        """
        key = id(tensor)
        try:
            version = tensor._version
        except RuntimeError:  # an inference tensor has no version counter and can change unnoticed, so it is read each time
            version = -1
        seen = self._seen.get(key)
        if seen is not None and seen[0]() is tensor and seen[1] == version >= 0:
            return seen[2]
        try:
            block = self._cpu if tensor.is_cpu else self._blocks.get(tensor.device)
            if block is None:
                block = self._block_of(tensor.device)
                if block is None:
                    return UNOBSERVED
            row = len(block.handles)
            if row >= block.capacity:
                block.grow(2 * block.capacity)
            if not dispatch.observe(tensor, block.rows, block.address, row, self.groups):
                return UNOBSERVED
            handle = len(self._meta)
            self._meta.append((block, row, tensor.dtype, tensor.shape))
        except (RuntimeError, NotImplementedError):  # functorch wrappers and others hide even their shape
            return UNOBSERVED
        block.handles.append(handle)
        self._seen[key] = (weakref.ref(tensor), version, handle)
        return handle

    def _block_of(self, device: torch.device, capacity: int = 0) -> _Block | None:
        """A device's block, created at first use; None for the meta device."""
        block = self._blocks.get(device)
        if block is None and device.type != "meta":
            block = self._blocks[device] = _Block(device, max(capacity, self._capacity))
            if device.type == "cpu":
                self._cpu = block
        return block

    def rewrite(self, handle: int, tensor: Tensor) -> bool:
        """Observe a tensor again into a handle's row, as for a weight after its update. False: it is on another device now."""
        block, row, _, _ = self._meta[handle]
        if block.device != tensor.device:
            return False
        block.clear(row, 1)
        self._num_past += 1
        self._meta[handle] = (block, row, tensor.dtype, tensor.shape)
        return dispatch.observe(tensor, block.rows, block.address, row, self.groups)

    def empty(self, handle: int) -> None:
        """Empty a handle's row, as if nothing had been seen."""
        block, row, _, _ = self._meta[handle]
        block.clear(row, 1)

    def observe_many(self, tensors: list[Tensor]) -> list[int]:
        """``observe`` for a list, without checking whether a tensor was seen before: one native call, with threads balanced over all."""
        handles: list[int] = []
        groups: dict[_Block, tuple[list[Tensor], list[int], list[int]]] = {}
        for position, tensor in enumerate(tensors):
            handles.append(UNOBSERVED)
            try:
                device, shape = tensor.device, tuple(tensor.shape)
            except RuntimeError:  # a lazy parameter that has not been created
                continue
            block = self._block_of(device, len(tensors))
            if block is None:
                continue
            row = len(block.handles)
            if row >= block.capacity:
                block.grow(2 * block.capacity)
            handle = len(self._meta)
            self._meta.append((block, row, tensor.dtype, shape))
            block.handles.append(handle)
            members = groups.setdefault(block, ([], [], []))
            members[0].append(tensor)
            members[1].append(row)
            members[2].append(position)
            handles[position] = handle
        for block, (members_t, rows, positions) in groups.items():
            done = dispatch.observe_many(members_t, block.rows, block.address, rows, self.groups)
            for position, ok in zip(positions, done, strict=True):
                if not ok:
                    handles[position] = UNOBSERVED
        return handles

    def rewrite_many(self, handles: list[int], tensors: list[Tensor]) -> None:
        """``rewrite`` for lists, with one native call per device."""
        groups: dict[_Block, tuple[list[Tensor], list[int]]] = {}
        self._num_past += len(handles)
        for handle, tensor in zip(handles, tensors, strict=True):
            block, row, _, _ = self._meta[handle]
            block.clear(row, 1)
            self._meta[handle] = (block, row, tensor.dtype, tensor.shape)
            members = groups.setdefault(block, ([], []))
            members[0].append(tensor)
            members[1].append(row)
        for block, (tensors_of, rows) in groups.items():
            dispatch.observe_many(tensors_of, block.rows, block.address, rows, self.groups)

    def read(self) -> None:
        """Bring the rows to the host. *Cost:* nothing on the CPU; else one copy and one sync per device."""
        for block in self._blocks.values():
            if block.device.type != "cpu":
                block.host = block.rows[: len(block.handles)].to("cpu")

    def bad(self) -> list[int]:
        """Handles of the rows with a nan or an inf, in the order of observation. Call ``read`` first."""
        found: list[int] = []
        for block in self._blocks.values():
            found += [block.handles[row] for row in block.bad()]
        return sorted(found)

    def row(self, handle: int) -> list[float]:
        """One row. Call ``read`` first."""
        block, row, _, _ = self._meta[handle]
        numbers: list[float] = block.host[row].tolist()
        return numbers

    def rows(self) -> list[list[float]]:
        """All rows by handle. Call ``read`` first. *Cost:* a microsecond per row, a third of reading them one by one."""
        found: list[list[float]] = [[]] * len(self._meta)
        for block in self._blocks.values():
            for handle, numbers in zip(block.handles, block.host[: len(block.handles)].tolist(), strict=True):
                found[handle] = numbers
        return found

    def amax(self, handles: Sequence[int]) -> list[float]:
        """Largest finite magnitudes as of the last read; 0 where nothing was read. *Cost:* some 20 ns a row."""
        columns = {
            block: block.host[:, FIELDS.index("abs_max")].tolist() if block.host.dim() > 1 else [] for block in self._blocks.values()
        }
        places = [(columns[block], row) for block, row, _, _ in map(self._meta.__getitem__, handles)]
        return [max(column[row], 0.0) if row < len(column) else 0.0 for column, row in places]

    def summary(self, handle: int) -> Summary:
        return Summary.from_row(self.row(handle))

    def numbers(self, handle: int) -> Numbers:
        """One row in plain numbers. Call ``read`` first."""
        _, _, dtype, shape = self._meta[handle]
        return numbers_of(self.summary(handle), dtype, shape)

    def absorb(self, row: list[float], dtype: torch.dtype, shape: tuple[int, ...]) -> int:
        """Add a finished row from elsewhere (a compiled graph) as an observation."""
        block = self._block_of(torch.device("cpu"))
        assert block is not None
        position = len(block.handles)
        if position >= block.capacity:
            block.grow(2 * block.capacity)
        block.rows[position] = torch.tensor(row, dtype=torch.float64, device="cpu")
        handle = len(self._meta)
        block.handles.append(handle)
        self._meta.append((block, position, dtype, shape))
        return handle

    def reset(self) -> None:
        """Forget the step: empty all rows and keep their memory."""
        for block in self._blocks.values():
            block.clear(0, len(block.handles))
            block.handles.clear()
        self._seen.clear()
        self._num_past += len(self._meta)
        self._meta.clear()


def numbers_of(summary: Summary, dtype: torch.dtype, shape: tuple[int, ...]) -> Numbers:
    """A summary as a record."""
    health: dict[str, Any] = {name: getattr(summary, name) for name in Numbers.__slots__ if name not in ("dtype", "shape")}
    return Numbers(dtype=str(dtype).removeprefix("torch."), shape=tuple(int(n) for n in shape), **health)
