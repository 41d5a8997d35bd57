"""The tape: which operations ran, and which of them wrote the bytes of a tensor.

Memory is tracked by storage and region, which distinguishes views, in-place writes and reads of other parts of the same storage. Nothing is
kept alive: storages are referenced weakly, and stacks are code objects.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from numscope.records.finding import Culprit, Numbers
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.glance import Glance, Region

UNOBSERVED = -1
MOST_KEPT = 64  # records
ACCUMULATE = "torch::autograd::AccumulateGrad"
COPY_SLICES = "CopySlices"
_SCALED = frozenset({"addmm", "baddbmm", "addbmm", "addmv", "addr", "sspaddmm", "_addmm_activation"})  # with beta = 0, self is not read


class NumberStore(Protocol):
    """A store of numbers: a ledger."""

    def observe(self, tensor: Tensor) -> int: ...
    def numbers(self, handle: int) -> Numbers: ...
    def is_bad(self, handle: int) -> bool | None: ...
    def bad(self) -> list[int]: ...


@dataclass(slots=True)
class State:
    """The content of one region of memory at one time, summarized once.

    Args:
        row: handle of the numbers; ``UNOBSERVED`` for integers and for tensors that can't be summarized.
        writers: records that wrote it, latest first; empty if it came from outside the tape.
        name: of the parameter, buffer or input that it is, if known.
        numbers: of a state that is kept longer than its row; ``row`` is then ``UNOBSERVED``.
    """

    row: int
    writers: tuple[int, ...] = ()
    name: str = ""
    numbers: Numbers | None = None


@dataclass(slots=True)
class OperandRecord:
    """One argument or result: a tensor's state, or a plain Python value."""

    name: str
    state: State | None
    value: Any = None
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    position: int = -1  # within a list of tensors; -1 outside
    parameter: bool = False
    ignored: bool = False  # what is bad in it is not what is bad in the result

    @property
    def producer(self) -> int | None:
        """Index of the record that last wrote it."""
        return self.state.writers[0] if self.state is not None and self.state.writers else None


@dataclass(slots=True)
class OpRecord:
    """One operation as it ran."""

    index: int
    op: str  # "aten.sqrt"
    phase: Phase
    module: str
    stack: stacks.Stack
    inputs: list[OperandRecord] = field(default_factory=list)
    outputs: list[OperandRecord] = field(default_factory=list)
    parts: list[OperandRecord] = field(default_factory=list)  # of the result, one for each tensor of a list that was put together
    differentiable: bool = False
    node: str = ""  # the autograd node at work, "SqrtBackward0"
    node_seq: int = -1
    forward: OpRecord | None = None  # of a backward op, the forward op whose gradient it computes
    accumulates: str = ""  # the tensor whose gradient is being accumulated, of AccumulateGrad
    frame: FrameType | None = None  # the user's innermost one, where frames are kept
    bears: bool = False  # something is bad in its result that is not bad in its operands, at the places that correspond
    told: Culprit | None = None  # of what was diagnosed before it came to the tape
    operation: object = None  # itself with what it was given, where that is kept, to be done alone; or a text that says why it can't be

    @property
    def name(self) -> str:
        """The operation without its namespace and in-place suffix: ``sqrt``."""
        return plain_name(self.op)


def plain_name(op: str) -> str:
    """``aten._foreach_sqrt_`` → ``sqrt``; ``aten._softmax`` → ``_softmax``."""
    name = op.rpartition(".")[2].rstrip("_")
    return name.removeprefix("_foreach_")


def _key(name: str) -> str:
    """The common part of a node's and its operation's names: ``SqrtBackward0`` and ``aten.sqrt_`` both give ``sqrt``."""
    return name.partition("Backward")[0].replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Memory written between operations and their replay: what depends on it is not what they saw.

    Args:
        names: of the tensors.
        said: a sentence that says so.
    """

    names: frozenset[str]
    said: str


class StorageRecord:
    """The writes to one storage that are still visible, and the states read from it."""

    __slots__ = ("name", "parameter", "reference", "states", "writes")

    def __init__(self, reference: weakref.ref[torch.UntypedStorage]) -> None:
        self.reference = reference
        self.states: dict[Region, tuple[State, int, int]] = {}
        self.writes: list[tuple[tuple[int, ...], int, int]] = []  # records, first byte, last byte + 1
        self.name = ""  # of the parameter, buffer or input stored here, for its views
        self.parameter = False

    def write(self, region: Region, state: State, low: int, high: int, dense: bool, blank: bool) -> None:
        self.states = {k: v for k, v in self.states.items() if v[2] <= low or v[1] >= high}
        if not blank:  # the content of uninitialized memory is observed only when an operation reads it
            self.states[region] = (state, low, high)
        if dense and self.writes:
            self.writes = [w for w in self.writes if w[1] < low or w[2] > high]
        self.writes.append((state.writers, low, high))


class OpTape:
    """The operations that an op probe saw, in order.

    Args:
        limit: keep about this many of the latest records; None keeps all.
        uncalled: names of modules that only hold others, as ``nn.ModuleList`` does.
        rewritten: of operations that are done again.
    """

    def __init__(self, limit: int | None = None, uncalled: Collection[str] = (), rewritten: Rewritten | None = None) -> None:
        self.records: list[OpRecord] = []
        self.rewritten = rewritten
        self.uncalled = uncalled
        self.limit = limit
        self.first = 0  # index of records[0]
        self.kept: dict[int, OpRecord] = {}  # by index: earlier ones, which have made what is bad in memory that is still there
        self.storages: dict[int, StorageRecord] = {}
        self.odd: dict[int, tuple[weakref.ref[Tensor], State]] = {}  # tensors without a storage, by id
        self._nodes: dict[int, list[OpRecord]] = {}  # by autograd sequence number
        self._order: list[int] = []
        # On CUDA, the engine runs backward in its own thread. A collection may come at any line, and what it ends may read the tape.
        self.lock = threading.RLock()

    def __getitem__(self, index: int) -> OpRecord:
        return self.records[index - self.first] if index >= self.first else self.kept[index]

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and (0 <= index - self.first < len(self.records) or index in self.kept)

    @property
    def num_records(self) -> int:
        """Of all that were ever on it."""
        return self.first + len(self.records)

    def storage_of(self, glance: Glance) -> StorageRecord | None:
        """The knowledge of a tensor's memory."""
        known = self.storages.get(glance.address) if glance.storage is not None else None
        return known if known is not None and known.reference is glance.storage else None  # an address is used again

    def add_storage(self, glance: Glance) -> StorageRecord | None:
        """Of memory that is new to the tape; in the order in which it came. None: the tensor has none of its own."""
        if glance.storage is None:
            return None
        self.storages.pop(glance.address, None)
        known = self.storages[glance.address] = StorageRecord(glance.storage)
        return known

    def state_of(self, tensor: Tensor) -> State | None:
        """The last known state of a tensor's memory, without reading the memory; None if the tape does not know it."""
        return self.state_at(Glance.at(_local(tensor)))

    def state_at(self, glance: Glance) -> State | None:
        storage = self.storage_of(glance)
        if storage is not None:
            region, low, high, _ = glance.region()
            known = storage.states.get(region)
            return known[0] if known is not None else State(UNOBSERVED, self.overlapping(storage, low, high))
        odd = self.odd.get(glance.key)
        return odd[1] if odd is not None and odd[0]() is glance.tensor is not None else None

    def read_state_of(self, tensor: Tensor, rows: NumberStore) -> State | None:
        """``state_of``, and its numbers where nothing has read it since it was written. The script uses it: its communication is over."""
        state = self.state_of(tensor)
        if state is not None and state.row == UNOBSERVED and state.writers:
            state = State(rows.observe(tensor), state.writers, state.name)
        return state

    @staticmethod
    def overlapping(storage: StorageRecord, low: int, high: int) -> tuple[int, ...]:
        return tuple(index for writers, a, b in reversed(storage.writes) if a < high and b > low for index in writers)

    def forward_of(self, node: str, seq: int) -> OpRecord | None:
        """The forward operation that made an autograd node.

        A node takes its sequence number just before its operation runs, so it belongs to the first record made with the next number. A view
        written in place gets its node (CopySlices) afterwards, which belongs to the last differentiable operation before it.
        """
        if node == ACCUMULATE or seq < 0 or not self._order:
            return None
        own = [r for r in self._nodes.get(seq, ()) if node != COPY_SLICES or r.differentiable]
        if own:
            return next((r for r in own if _key(r.name) == _key(node)), own[0])
        at = bisect_right(self._order, seq)
        for earlier in reversed(self._order[:at][-8:]):
            for record in self._nodes[earlier]:
                if record.differentiable:
                    return record
        return None

    def has_node(self, node: str, seq: int) -> bool:
        """Whether one of the operations that may have made the autograd node with this number has its name."""
        return any(_key(record.name) == _key(node) for record in self._nodes.get(seq, ()))

    def add_node(self, seq: int, record: OpRecord) -> None:
        known = self._nodes.get(seq)
        if known is None:
            self._nodes[seq] = [record]
            if not self._order or seq > self._order[-1]:
                self._order.append(seq)
            else:  # another thread's counter
                self._order.insert(bisect_right(self._order, seq), seq)
        elif len(known) < 8:
            known.append(record)

    def add(self, record: OpRecord) -> None:
        record.index = self.num_records
        if record.name in _SCALED and any(o.name == "beta" and o.value == 0 for o in record.inputs):
            for operand in record.inputs:
                operand.ignored = operand.ignored or operand.name in ("self", "input")
        self.records.append(record)
        if self.limit is not None and len(self.records) > self.limit + self.limit // 4:
            self.drop(len(self.records) - self.limit)

    def forget_states(self) -> None:
        """Forget what tensors hold, but not who wrote them last on this tape."""
        for storage in self.storages.values():
            storage.states.clear()
        for key, (tensor, state) in self.odd.items():
            if state.row != UNOBSERVED:
                self.odd[key] = tensor, State(UNOBSERVED, state.writers, state.name)

    def drop(self, count: int) -> None:
        del self.records[:count]
        self.first += count
        self.storages = {k: s for k, s in self.storages.items() if s.reference() is not None}
        self.odd = {k: v for k, v in self.odd.items() if v[0]() is not None}
        excess = len(self._order) - 2 * (self.limit or 0)
        if excess > 0:
            for seq in self._order[:excess]:
                del self._nodes[seq]
            del self._order[:excess]

    def keep(self, past: int, rows: NumberStore) -> None:
        """Of the records before index ``past`` keep those that have made what is bad in memory that is still there: data and buffers may be
        used many steps later.

        *Cost:* where no row is bad, nothing; else a walk over these records and what was written.
        """
        bad = set(rows.bad())
        if not bad and not self.kept:
            return
        todo = [i for s in self.storages.values() if s.reference() is not None for writers, _, _ in s.writes for i in writers]
        kept: dict[int, OpRecord] = {}
        while todo and len(kept) < MOST_KEPT:
            index = todo.pop()
            if index in kept or index not in self or index >= past:
                continue
            record = self[index]
            if index not in self.kept:
                made = [o.state for o in (*record.outputs, *record.parts) if o.state is not None]
                if not any(state.row in bad or state.numbers is not None for state in made):
                    continue
                for state in (*made, *(o.state for o in record.inputs if o.state is not None)):
                    if state.row != UNOBSERVED:
                        state.numbers, state.row = rows.numbers(state.row), UNOBSERVED
            kept[index] = record
            todo += [i for o in record.inputs if o.state is not None for i in o.state.writers]
        self.kept = dict(sorted(kept.items()))

    def successor(self, rows: NumberStore | None) -> OpTape:
        """An empty tape that goes on with this one's numbers; with ``rows`` it has what this one is to keep."""
        tape = OpTape(self.limit, self.uncalled, self.rewritten)
        tape.first = self.num_records
        if rows is not None:
            self.keep(tape.first, rows)
            tape.kept = self.kept
            for key, storage in self.storages.items() if tape.kept else ():
                if any(index in tape.kept for writers, _, _ in storage.writes for index in writers):
                    storage.states.clear()
                    tape.storages[key] = storage
        return tape

    def begin_step(self, past: int) -> None:
        """Forget the records before index ``past``, and the autograd nodes of those that were forgotten before: a graph may reach from one
        step into the next."""
        first = self.first
        self.drop(past - first)
        self._nodes = {
            seq: records for seq, records in self._nodes.items() if max(r.index for r in records) >= first
        }  # views have no index
        self._order = [seq for seq in self._order if seq in self._nodes]


def _local(tensor: Tensor) -> Tensor:
    """The plain tensor inside a wrapper such as DTensor."""
    for _ in range(4):
        inner = getattr(tensor, "_local_tensor", None) if type(tensor) is not Tensor else None
        if inner is None and type(tensor) is not Tensor:
            inner = getattr(tensor, "elem", None)
        if not isinstance(inner, Tensor):
            break
        tensor = inner
    return tensor
