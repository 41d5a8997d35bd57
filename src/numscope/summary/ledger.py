"""Rows on the tensors' devices, which the host reads at the end of a step.

Observing writes into a row on the tensor's device without a sync. Only ``read`` waits for the device and copies each block at once. Rows on
the CPU are already in host memory.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _disable_current_modes

from numscope.records.faults import ours
from numscope.records.finding import Numbers
from numscope.records.observation import FIELDS
from numscope.summary import dispatch, native
from numscope.summary.block import Block, untransformed
from numscope.summary.state import ROW_BYTES, ROW_WIDTH, Groups, Summary

KEPT_BYTES = 350  # of Python's objects for a row that is kept, with its part of the journal's event
_ROW = struct.Struct(f"{ROW_WIDTH}d")
_NUMEL, _NUM_ZERO, _ABS_MAX = (FIELDS.index(name) for name in ("numel", "num_zero", "abs_max"))
UNOBSERVED = -1  # the handle of a tensor that can't be summarized


@dataclass(frozen=True, slots=True)
class Kept:
    """A ledger's rows at one moment."""

    _meta: list[tuple[Block, int, torch.dtype, tuple[int, ...]]]
    _rows: dict[Block, bytes]

    @property
    def nbytes(self) -> int:
        return len(self._meta) * KEPT_BYTES + sum(map(len, self._rows.values()))

    def row(self, handle: int) -> tuple[str, list[float]]:
        """A handle's dtype and row."""
        block, row, dtype, _ = self._meta[handle]
        return str(dtype).removeprefix("torch."), list(_ROW.unpack_from(self._rows[block], row * ROW_BYTES))


_CPU = torch.device("cpu")


@native.in_c
class Ledger:
    """A step's observations: ``observe`` returns a handle at once; after ``read``, ``numbers`` returns its numbers.

    Args:
        groups: the fields of a summary to compute.
        capacity: initial number of rows per device.

    Attributes:
        lock: held, by ``with ledger``, while rows are added or moved, since threads may share a model; meanwhile C leaves all to Python.
        before_reset: called before the rows are discarded, if another component holds their handles.
        num_reread: how often a tensor was read into a row that it had already.

    *Cost:* an observation on the CPU is one pass over the tensor and about 2 µs; a tensor seen again unchanged is not read again.
    """

    def __init__(self, groups: Groups = Groups.HEALTH, capacity: int = 512) -> None:
        self._seen: dict[int, tuple[weakref.ref[Tensor], int, int]] = {}
        self._meta: list[tuple[Block, int, torch.dtype, tuple[int, ...]]] = []
        self.groups = groups
        self.lock = RLock()
        self._share(self._seen, self._meta, self.lock)
        self.before_reset: Callable[[], None] | None = None
        self._capacity = capacity
        self._blocks: dict[torch.device, Block] = {}
        self._cpu: Block | None = None
        self._num_past = 0
        self.num_reread = 0

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def __len__(self) -> int:
        return len(self._meta)

    @property
    def num_observed(self) -> int:
        """Number of observations since the ledger was created, including earlier steps."""
        return self._num_past + len(self._meta) + self.num_reread

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on all devices."""
        return sum(b.capacity * ROW_BYTES for b in self._blocks.values())

    @property
    def on_host(self) -> bool:
        """Whether every row is in host memory, so that reading needs no sync."""
        return len(self._blocks) == (self._cpu is not None)

    def observe(self, tensor: Tensor, shape: torch.Size | None = None) -> int:
        """Summarize a tensor of any shape and dtype into a row on its device; ``shape`` replaces the tensor's shape in its numbers.

        Returns: a handle for ``numbers``; ``UNOBSERVED`` for a tensor without readable numbers (meta, fake, …).
        """
        return self._observe_any(tensor, shape)

    def _observe_any(self, tensor: Tensor, shape: torch.Size | None) -> int:
        """``observe`` of what C leaves to Python."""
        kind = type(tensor)
        if kind is not Tensor and kind is not Parameter:
            tensor, shape = _own_part(tensor, shape)
        key, version = id(tensor), version_of(tensor)
        seen = self._seen.get(key)
        if seen is not None and seen[0]() is tensor and seen[1] == version >= 0:
            return seen[2]
        with self:
            handle = self._observe(tensor, shape)
        if handle != UNOBSERVED:
            self._seen[key] = (weakref.ref(tensor), version, handle)
        return handle

    def _observe(self, tensor: Tensor, shape: torch.Size | None) -> int:
        try:
            block = self._cpu if tensor.is_cpu else self._blocks.get(tensor.device)
            if block is None:
                block = self._block_of(tensor.device)
                if block is None:
                    return UNOBSERVED
            handle = self._add(block, tensor.dtype, tensor.shape if shape is None else shape)
            done = dispatch.observe(tensor, block.rows, block.address, self._meta[handle][1], self.groups)
            if done:
                return handle
            self._num_past -= 1  # its row stays empty
            return UNOBSERVED
        except ours(RuntimeError, NotImplementedError):  # functorch wrappers, for example, hide even their shape
            return UNOBSERVED

    def want(self, groups: Groups) -> None:
        """Compute these fields from now on; a tensor that was observed with other fields is read again."""
        if groups != self.groups:
            self.groups = groups
            self.look_again()

    def look_again(self) -> None:
        """Read each tensor again at its next observation: some writes do not change the version, such as GradScaler's to gradients."""
        self._seen.clear()

    def _block_of(self, device: torch.device, capacity: int = 0) -> Block | None:
        """A device's block, created at first use; None for the meta device."""
        block = self._blocks.get(device)
        if block is None and device.type != "meta":
            block = self._blocks[device] = Block(device, max(capacity, self._capacity))
            if device.type == "cpu":
                self._cpu = block
                self._point(block, block.handles, block.address, block.capacity)
        return block

    def empty(self, handle: int) -> None:
        """Empty a handle's row, as if nothing had been seen."""
        block, row, _, _ = self._meta[handle]
        block.clear(row, 1)

    def observe_many(self, tensors: Sequence[Tensor]) -> list[int]:
        """``observe`` for a list: one native call, threads balanced over all of them, and one launch per device."""
        with self:
            if self._cpu is not None:
                self._make_room(self._cpu, len(tensors))
            handles = self._observe_batch([*tensors], torch.get_num_threads())
            with dispatch.DeviceBatch():
                return [self._observe_any(t, None) if handle is None else handle for t, handle in zip(tensors, handles, strict=True)]

    def _observe_batch(self, tensors: list[Tensor], num_threads: int) -> list[int | None]:
        """The handles of those that C reads; None for the others."""
        return [None] * len(tensors)

    def _share(self, seen: object, meta: object, lock: object) -> None:
        """Tell C what is known of tensors and of handles, and its lock."""

    def _point(self, block: object, handles: object, address: int, capacity: int) -> None:
        """Tell C where the rows in CPU memory are."""

    def _make_room(self, block: Block, count: int = 1) -> None:
        needed = len(block.handles) + count
        if needed > block.capacity:
            block.grow(max(needed, 2 * block.capacity))
            if block is self._cpu:
                self._point(block, block.handles, block.address, block.capacity)

    def _add(self, block: Block, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
        """A new row at a block's end; its handle."""
        while True:
            self._make_room(block)
            handle, row = len(self._meta), len(block.handles)
            item = block, row, dtype, shape
            if len(self._meta) == handle and len(block.handles) == row:  # else a finalizer has observed something just now
                self._meta.append(item)
                block.handles.append(handle)
                return handle

    def take(self, other: Ledger, handles: Sequence[int]) -> list[int]:
        """Copies rows of another ledger as observations of this one. *Cost:* one copy per device, no sync."""
        taken: list[int] = []
        sources: dict[Block, tuple[Block, list[int]]] = {}
        dispatch.launch_waiting()
        with self:
            for handle in handles:
                if handle == UNOBSERVED:
                    taken.append(UNOBSERVED)
                    continue
                source, row, dtype, shape = other._meta[handle]
                block = self._block_of(source.device, len(handles))
                assert block is not None
                taken.append(self._add(block, dtype, shape))
                sources.setdefault(source, (block, []))[1].append(row)
            with untransformed(), torch._C.DisableTorchFunction(), _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
                for source, (block, rows) in sources.items():
                    index = torch.tensor(rows, device="cpu").to(source.device, non_blocking=True)  # a list as an index would wait
                    end = len(block.handles)
                    torch.index_select(source.rows, 0, index, out=block.rows[end - len(rows) : end])
            self._num_past -= len(taken)
        return taken

    def adopt(self, row: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> int:
        """A row of a tensor in CPU memory that was read elsewhere, as an observation of this one."""
        with self:
            block = self._block_of(_CPU)
            assert block is not None
            handle = self._add(block, dtype, shape)
            ctypes.memmove(block.address + self._meta[handle][1] * ROW_BYTES, row, ROW_BYTES)
        return handle

    def rewrite_many(self, handles: Sequence[int], tensors: Sequence[Tensor]) -> list[bool]:
        """Observe tensors again into handles' rows, as for weights after their update, with one native call per device.

        Returns: for each whether it was read; not one that is on another device than its row.
        """
        done: set[int] = set()
        with self:
            stale: dict[Block, dict[int, Tensor]] = {}
            for handle, tensor in zip(handles, tensors, strict=True):
                block, row, _, _ = self._meta[handle]
                try:
                    device, shape = tensor.device, tensor.shape
                except ours(RuntimeError):  # a nested tensor has no shape
                    continue
                if block.device == device:
                    self._meta[handle] = (block, row, tensor.dtype, shape)
                    stale.setdefault(block, {})[handle] = tensor
            for block, found in stale.items():
                rows = [self._meta[handle][1] for handle in found]
                for _, run in itertools.groupby(enumerate(sorted(rows)), lambda item: item[1] - item[0]):  # rows that follow each other
                    first, *others = (row for _, row in run)
                    block.clear(first, 1 + len(others))
                could = dispatch.observe_many([*found.values()], block.rows, block.address, rows, self.groups)
                done.update(handle for handle, ok in zip(found, could, strict=True) if ok)
        read = [handle in done for handle in handles]
        self.num_reread += sum(read)
        return read

    def read(self, *others: Ledger) -> None:
        """Copy new rows to the host, those of other ledgers too. *Cost:* nothing on the CPU; for any other device with new rows one copy
        a ledger and one sync.
        """
        if self.on_host and all(other.on_host for other in others):
            return
        for device in {device for ledger in (self, *others) for device in ledger.fetch()}:
            torch.accelerator.current_stream(device).synchronize()

    def fetch(self) -> set[torch.device]:
        """Begin to copy new rows to the host. Returns: the devices that somebody must wait for. *Cost:* no sync."""
        dispatch.launch_waiting()
        return {block.device for block in self._blocks.values() if block.fetch()}

    def bad(self) -> list[int]:
        """Handles of rows with a nan or an inf, in the order of observation. Call ``read`` first."""
        found: list[int] = []
        for block in self._blocks.values():
            if bad := block.bad_rows():
                found += [block.handles[row] for row in bad]
        return sorted(found)

    def has_bad(self, begin: int = 0) -> bool:
        """Whether a row in host memory, from handle ``begin`` on, has a nan or an inf. It never waits."""
        return self._cpu is not None and any(self._cpu.handles[row] >= begin for row in self._cpu.bad_rows())

    def is_bad(self, handle: int) -> bool | None:
        """Whether a row on the host has a nan or an inf; None for a row elsewhere. It never waits. *Cost:* 1 µs."""
        block, row, _, _ = self._meta[handle]
        if block.device.type != "cpu":
            return None
        return any(struct.unpack("3d", ctypes.string_at(block.address + row * ROW_BYTES + 8, 24)))

    def row(self, handle: int) -> list[float]:
        """One row. Call ``read`` first."""
        return self.rows([handle])[0]

    def place(self, handle: int) -> tuple[Block, int, torch.dtype, tuple[int, ...]]:
        """Where a handle's row is among those of its device, and what was read into it: dtype and shape."""
        return self._meta[handle]

    def rows(self, handles: Sequence[int]) -> list[list[float]]:
        """``row`` for a list. *Cost:* a microsecond per row."""
        places = [self._meta[handle][:2] for handle in handles]
        host = {block: block.view() for block in {block for block, _ in places}}
        return [host[block][row * ROW_WIDTH : (row + 1) * ROW_WIDTH] for block, row in places]

    def dtypes(self, handles: Sequence[int]) -> list[str]:
        """The names of what was read into rows, such as ``float32``."""
        names = {dtype: str(dtype).removeprefix("torch.") for dtype in {self._meta[handle][2] for handle in handles}}
        return [names[self._meta[handle][2]] for handle in handles]

    def keep(self) -> Kept:
        """A copy of all rows as of the last read, to be looked at when the ledger has gone on. *Cost:* 128 bytes a row."""
        held = {block: ctypes.string_at(block.host.data_ptr(), len(block.handles) * ROW_BYTES) for block in self._blocks.values()}
        return Kept(self._meta.copy(), held)

    def amax(self, handles: Sequence[int]) -> list[float]:
        """Largest finite magnitudes as of the last read; 0 where there are none. *Cost:* about 20 ns per row."""
        return [max(amax, 0.0) for amax in self._column("abs_max", handles)]

    def most(self) -> float:
        """The largest finite magnitude of all rows, as of the last read; 0 where there are none. *Cost:* about 20 ns per row."""
        columns = [block.view()[_ABS_MAX::ROW_WIDTH][: len(block.handles)] for block in self._blocks.values() if block.handles]
        return max(0.0, *map(max, columns)) if columns else 0.0

    def are_zero(self, handles: Sequence[int]) -> bool:
        """Whether all elements were zero, as of the last read. *Cost:* a microsecond if the first has others, else about 40 ns per row."""
        if not handles:
            return True
        first = self.row(handles[0])
        if first[_NUM_ZERO] != first[_NUMEL]:
            return False
        return self._column("num_zero", handles) == self._column("numel", handles)

    def _column(self, field: str, handles: Sequence[int]) -> list[float]:
        """One field of rows, as of the last read."""
        columns = {block: block.view()[FIELDS.index(field) :: ROW_WIDTH] for block in self._blocks.values()}
        return [columns[block][row] for block, row, _, _ in map(self._meta.__getitem__, handles)]

    def summary(self, handle: int) -> Summary:
        return Summary.from_row(self.row(handle))

    def numbers(self, handle: int) -> Numbers:
        """One row as a record. Call ``read`` first."""
        _, _, dtype, shape = self._meta[handle]
        return numbers_of(self.summary(handle), dtype, shape)

    def reset(self) -> None:
        """Discard the step's observations; the memory is kept."""
        with self:
            if self.before_reset is not None:
                self.before_reset()
            for block in self._blocks.values():
                block.clear(0, len(block.handles))
                block.handles.clear()
            self._seen.clear()
            self._num_past += len(self._meta)
            self._meta.clear()


def _own_part(tensor: Any, shape: torch.Size | None) -> tuple[Tensor, torch.Size | None]:
    """A distributed tensor's local part, which may also be observed by itself, and the shape of the whole."""
    part = getattr(tensor, "_local_tensor", None)
    if part is None:
        return tensor, shape
    return part, tensor.shape if shape is None else shape


def version_of(tensor: Tensor) -> int:
    """The tensor's version; -1 for an inference tensor, which has none and is therefore read each time."""
    try:
        return tensor._version
    except ours(RuntimeError):
        return -1


def numbers_of(summary: Summary, dtype: torch.dtype, shape: tuple[int, ...]) -> Numbers:
    """A summary as a record."""
    health: dict[str, Any] = {name: getattr(summary, name) for name in Numbers.__slots__ if name not in ("dtype", "shape")}
    return Numbers(dtype=str(dtype).removeprefix("torch."), shape=tuple(map(_size, shape)), **health)


def _size(size: Any) -> int:
    """-1 for that of a jagged tensor's ragged dimension, which has no number."""
    try:
        return int(size)
    except AttributeError:
        return -1
