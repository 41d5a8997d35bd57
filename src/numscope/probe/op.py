"""Every operation of a stretch of a step, with its operands' numbers and the line that made it run.

The tape answers one question: which records wrote the bytes of this tensor? Memory is followed by storage and region, so views, in-place writes and
reads of another part of the same storage are told apart. Nothing is kept alive: storages are held weakly, stacks as code objects.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.probe import stack as stacks
from numscope.record import Numbers
from numscope.site import Phase

UNOBSERVED = -1
ACCUMULATE = "torch::autograd::AccumulateGrad"
COPY_SLICES = "CopySlices"


class Rows(Protocol):
    """Where numbers go: a ledger."""

    def observe(self, tensor: Tensor) -> int: ...
    def numbers(self, handle: int) -> Numbers: ...


@dataclass(slots=True)
class State:
    """What one region of memory held at one time, summarized once.

    Args:
        row: handle of the numbers; ``UNOBSERVED`` for integers and what can't be summarized.
        writers: records that wrote it, the latest first; empty when it came from outside the tape.
        name: the parameter, buffer or input that it is, where one is known.
    """

    row: int
    writers: tuple[int, ...] = ()
    name: str = ""


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

    @property
    def producer(self) -> int | None:
        """Index of the record that last wrote it."""
        return self.state.writers[0] if self.state is not None and self.state.writers else None


@dataclass(slots=True)
class OpRecord:
    """One operation as it ran."""

    index: int
    op: str  # "aten.sqrt"
    overload: str
    phase: Phase
    module: str
    stack: stacks.Stack
    inputs: list[OperandRecord] = field(default_factory=list)
    outputs: list[OperandRecord] = field(default_factory=list)
    mutates: bool = False
    differentiable: bool = False
    node: str = ""  # the autograd node at work, "SqrtBackward0"
    node_seq: int = -1
    forward: OpRecord | None = None  # of a backward op, the forward op whose gradient it computes
    accumulates: str = ""  # the tensor whose gradient is being accumulated, of AccumulateGrad

    @property
    def name(self) -> str:
        """The operation without namespace and marks of being in place: ``sqrt``."""
        return plain_name(self.op)


def plain_name(op: str) -> str:
    """``aten._foreach_sqrt_`` → ``sqrt``; ``aten._softmax`` → ``_softmax``."""
    name = op.rpartition(".")[2].rstrip("_")
    return name.removeprefix("_foreach_")


def _key(name: str) -> str:
    """What a node's name and its op's name have in common: ``SqrtBackward0`` and ``aten.sqrt_`` are both ``sqrt``."""
    return name.partition("Backward")[0].replace("_", "").lower()


UNINITIALIZED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
_OVERWRITES = frozenset(
    {"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "set_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
    | {"log_normal_", "cauchy_", "geometric_"}
)  # fmt: skip


class _Op:
    """What never changes about an operator."""

    __slots__ = ("arguments", "elementwise_lists", "fresh", "name", "overload", "uninitialized", "unread", "view", "written")

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        name = getattr(func, "__name__", str(func)) if schema is None else schema.name.replace("::", ".")
        self.name: str = name if schema is not None else f"higher_order.{name}"
        self.overload: str = getattr(func, "_overloadname", "")
        arguments = [] if schema is None else schema.arguments
        self.arguments = tuple(a.name for a in arguments)
        self.written = frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
        overwrites = self.name.rpartition(".")[2] in _OVERWRITES
        # what is written without being read: its old content is no input
        self.unread = frozenset(a.name for a in arguments if a.name in self.written and (a.kwarg_only or overwrites))
        aliases = schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.fresh = self.name in ("aten.lift_fresh", "aten.lift")  # a tensor made of Python numbers: written here, by nobody seen
        self.view = aliases and not self.written and not self.fresh
        self.elementwise_lists = self.name.startswith(("aten._foreach_", "aten._fused_"))  # result i depends on operand i alone
        self.uninitialized = self.name.rpartition(".")[2] in UNINITIALIZED


_Region = tuple[int, torch.dtype, tuple[tuple[int, int], ...]]


class _Storage:
    """The writes that still show in one storage, and the states read from it."""

    __slots__ = ("reference", "states", "writes")

    def __init__(self, storage: Any) -> None:
        self.reference = StorageWeakRef(storage)  # while it lives, no other storage gets this address
        self.states: dict[_Region, tuple[State, int, int]] = {}
        self.writes: list[tuple[int, State, int, int]] = []  # record, state, first byte, last byte + 1

    def write(self, index: int, region: _Region, state: State, low: int, high: int, dense: bool) -> None:
        self.states = {k: v for k, v in self.states.items() if v[2] <= low or v[1] >= high}
        self.states[region] = (state, low, high)
        if dense and self.writes:
            self.writes = [w for w in self.writes if w[2] < low or w[3] > high]
        self.writes.append((index, state, low, high))


def _region(tensor: Tensor) -> tuple[_Region, int, int, bool]:
    """A canonical region of a storage: the same for ``x``, ``x.t()`` and ``x.reshape(-1)``."""
    offset, size = tensor.storage_offset(), tensor.element_size()
    dims: list[tuple[int, int]] = []
    last = 0
    for stride, length in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n != 1 and s != 0):
        last += (length - 1) * stride
        if dims and dims[-1][0] * dims[-1][1] == stride:
            dims[-1] = (dims[-1][0], dims[-1][1] * length)
        else:
            dims.append((stride, length))
    low, high = offset * size, (offset + last + 1) * size
    return (offset, tensor.dtype, tuple(dims)), low, high, not dims or (len(dims) == 1 and dims[0][0] == 1)


class OpTape:
    """What an op probe saw, in order.

    Args:
        limit: keep about this many records, the last ones; None keeps all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.records: list[OpRecord] = []
        self.limit = limit
        self.first = 0  # index of records[0]
        self._storages: dict[int, _Storage] = {}
        self._odd: dict[int, tuple[weakref.ref[Tensor], State]] = {}  # tensors without a storage, by id
        self._nodes: dict[int, list[OpRecord]] = {}  # by autograd sequence number
        self._order: list[int] = []
        self._lock = threading.Lock()  # on CUDA the engine runs backward in a thread of its own

    def __getitem__(self, index: int) -> OpRecord:
        return self.records[index - self.first]

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index - self.first < len(self.records)

    def producer(self, tensor: Tensor) -> int | None:
        """Index of the record that last wrote this tensor's memory; None when no record did."""
        state = self.state_of(tensor)
        return state.writers[0] if state is not None and state.writers else None

    def state_of(self, tensor: Tensor) -> State | None:
        """The last known state of a tensor's memory, without looking at the memory; None when the tape never saw it."""
        tensor = _local(tensor)
        try:
            storage = self._storages.get(tensor.untyped_storage()._cdata)
            if storage is not None:
                region, low, high, _ = _region(tensor)
                known = storage.states.get(region)
                return known[0] if known is not None else State(UNOBSERVED, self._overlapping(storage, low, high))
        except (RuntimeError, NotImplementedError):
            pass
        odd = self._odd.get(id(tensor))
        return odd[1] if odd is not None and odd[0]() is tensor else None

    @staticmethod
    def _overlapping(storage: _Storage, low: int, high: int) -> tuple[int, ...]:
        return tuple(index for index, _, a, b in reversed(storage.writes) if a < high and b > low)

    def forward_of(self, node: str, seq: int) -> OpRecord | None:
        """The forward operation that made an autograd node.

        A node takes its sequence number right before its operation runs, so the first record that sees the counter one further is its own. A view
        written in place gets its node (CopySlices) afterwards: it belongs to the last differentiable operation before.
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

    def _add_node(self, seq: int, record: OpRecord) -> None:
        known = self._nodes.get(seq)
        if known is None:
            self._nodes[seq] = [record]
            if not self._order or seq > self._order[-1]:
                self._order.append(seq)
            else:  # another thread's counter
                self._order.insert(bisect_right(self._order, seq), seq)
        elif len(known) < 8:
            known.append(record)

    def _add(self, record: OpRecord) -> None:
        record.index = self.first + len(self.records)
        self.records.append(record)
        if self.limit is not None and len(self.records) > self.limit + self.limit // 4:
            self._drop(len(self.records) - self.limit)

    def _drop(self, count: int) -> None:
        del self.records[:count]
        self.first += count
        self._storages = {k: s for k, s in self._storages.items() if not s.reference.expired()}
        self._odd = {k: v for k, v in self._odd.items() if v[0]() is not None}
        excess = len(self._order) - 2 * (self.limit or 0)
        if excess > 0:
            for seq in self._order[:excess]:
                del self._nodes[seq]
            del self._order[:excess]


def _local(tensor: Tensor) -> Tensor:
    """The plain tensor within a wrapper such as DTensor."""
    for _ in range(4):
        inner = getattr(tensor, "_local_tensor", None) if type(tensor) is not Tensor else None
        if inner is None and type(tensor) is not Tensor:
            inner = getattr(tensor, "elem", None)
        if not isinstance(inner, Tensor):
            break
        tensor = inner
    return tensor


class OpProbe(TorchDispatchMode):
    """Puts every operation that runs within it on a tape.

    Args:
        tape: filled in order; one tape may serve a forward and then its backward, with a probe each.
        rows: gets each tensor state once.
        phase: of the stretch. Operations that the autograd engine runs are backward's whatever it says.
        module_name: the qualified name of the innermost module at work.
        names: slot names by the tensor's id or by its storage's ``_cdata``: ``wo.weight``, ``input[0]``, ``grad output[0]``.
        boundary: code of the function that drives a replay; frames outward of it belong to no line of the step.

    *Cost:* one pass over each new tensor and some 30 µs an operation; no sync. An error of its own disables it and training goes on.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        tape: OpTape,
        rows: Rows,
        *,
        phase: Phase = Phase.FORWARD,
        module_name: Callable[[], str] = str,
        names: Mapping[int, str] | None = None,
        boundary: CodeType | None = None,
    ) -> None:
        super().__init__()
        self.tape, self.rows, self.phase = tape, rows, phase
        self.module_name, self.boundary = module_name, boundary
        self.names = {} if names is None else names
        self.error: Exception | None = None  # of our own; set, the probe only passes operations on
        self._ops: dict[Any, _Op] = {}
        self._last_seq = -1
        self._pending: OpRecord | None = None

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        record: OpRecord | None = None
        if self.error is None:
            try:
                wrapped = _wrapper(types)
                if wrapped == _SHAPES_ONLY:
                    return func(*args, **kwargs)
                with self.tape._lock:
                    op = self._ops.get(func)
                    if op is None:
                        op = self._ops[func] = _Op(func)
                    record = self._before(op, args, kwargs, wrapped == _UNWRAPS)
            except Exception as error:
                self.error = error
            if record is None and self.error is None:
                return NotImplemented if wrapped == _UNWRAPS else func(*args, **kwargs)
        result = func(*args, **kwargs)
        if record is not None and self.error is None:
            try:
                with self.tape._lock:
                    self._after(op, record, args, kwargs, result)
            except Exception as error:
                self.error = error
        return result

    def _before(self, op: _Op, args: Sequence[Any], kwargs: Mapping[str, Any], unwraps: bool) -> OpRecord | None:
        """Everything known before the operation runs; None when it only makes a view, or leaves the work to a wrapper's own operations."""
        record = OpRecord(
            -1, op.name, op.overload, self.phase, self.module_name(), stacks.capture(sys._getframe(2), self.boundary), mutates=bool(op.written)
        )
        self._place(record, args, kwargs)
        if unwraps or op.view:
            return None
        for name, value in _named(op, args, kwargs):
            if name not in op.unread:
                self._operands(record.inputs, name, value)
        return record

    def _place(self, record: OpRecord, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        node = torch._C._current_autograd_node()
        seq = torch.autograd._get_sequence_nr() - 1
        if torch.is_grad_enabled():
            record.differentiable = any(t.requires_grad for t in _tensors((*args, *kwargs.values())))
        if node is None:
            self.tape._add_node(seq, record)
            return
        record.node, record.node_seq = node.name(), node._sequence_nr()
        if record.differentiable or record.stack.recompute:
            self.tape._add_node(seq, record)  # recomputed by checkpointing, or a graph of gradients
        if record.stack.recompute:
            record.phase = Phase.FORWARD
            return
        record.phase = Phase.OPTIMIZER if self.phase == Phase.OPTIMIZER else Phase.BACKWARD
        if record.node == ACCUMULATE:
            variable = getattr(node, "variable", None)
            record.accumulates = self._name(variable) or "a leaf" if variable is not None else "a leaf"
            return
        record.forward = self.tape.forward_of(record.node, record.node_seq)
        if record.forward is not None:
            record.module = record.forward.module

    def _after(self, op: _Op, record: OpRecord, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        self.tape._add(record)
        seen: set[int] = set()
        for name, value in _named(op, args, kwargs):
            if name in op.written:
                self._results(record, name, value, seen, False)
        self._results(record, "output", result, seen, op.uninitialized)
        if not op.elementwise_lists:
            for out in record.outputs:
                out.position = -1

    def _results(self, record: OpRecord, name: str, value: Any, seen: set[int], uninitialized: bool) -> None:
        if isinstance(value, Tensor):
            if id(value) not in seen:
                seen.add(id(value))
                row = UNOBSERVED if uninitialized else self._observe(value)
                record.outputs.append(OperandRecord(name, self._write(value, record.index, row), None, value.dtype, tuple(value.shape)))
        elif isinstance(value, list | tuple):
            for position, item in enumerate(value):
                self._results(record, f"{name}[{position}]", item, seen, uninitialized)
                if record.outputs and isinstance(item, Tensor):
                    record.outputs[-1].position = position
        elif isinstance(value, dict):
            for key, item in value.items():
                self._results(record, f"{name}[{key}]", item, seen, uninitialized)

    def _operands(self, into: list[OperandRecord], name: str, value: Any, position: int = -1) -> None:
        if isinstance(value, Tensor):
            parameter = isinstance(value, torch.nn.Parameter)
            into.append(OperandRecord(name, self._read(value), None, value.dtype, tuple(value.shape), position, parameter))
        elif isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
            for at, item in enumerate(value):
                if item is not None:
                    self._operands(into, f"{name}[{at}]", item, at)
        elif value is not None and not callable(value):
            into.append(OperandRecord(name, None, value))

    def _observe(self, tensor: Tensor) -> int:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            return UNOBSERVED
        # An alias, because an in-place operation counts up the version only after we return: by its id and version the tensor still looks unchanged.
        return self.rows.observe(tensor.detach() if type(tensor) in (Tensor, torch.nn.Parameter) else tensor)

    def _name(self, tensor: Tensor) -> str:
        name = self.names.get(id(tensor), "")
        if not name:
            with contextlib.suppress(RuntimeError, NotImplementedError):
                name = self.names.get(tensor.untyped_storage()._cdata, "")
        return name

    def _storage(self, tensor: Tensor) -> _Storage | None:
        try:
            storage = tensor.untyped_storage()
            key = storage._cdata
        except (RuntimeError, NotImplementedError):  # sparse and the like
            return None
        known = self.tape._storages.get(key)
        if known is None:
            known = self.tape._storages[key] = _Storage(storage)
        return known

    def _read(self, tensor: Tensor) -> State:
        """The state of an operand; summarized now when nobody has seen this region in this condition yet."""
        storage = self._storage(tensor)
        if storage is None:
            odd = self.tape._odd.get(id(tensor))
            if odd is not None and odd[0]() is tensor:
                return odd[1]
            state = State(self._observe(tensor), (), self._name(tensor))
            self.tape._odd[id(tensor)] = (weakref.ref(tensor), state)
            return state
        region, low, high, _ = _region(tensor)
        known = storage.states.get(region)
        if known is not None:
            return known[0]
        state = State(self._observe(tensor), self.tape._overlapping(storage, low, high), self._name(tensor))
        storage.states[region] = (state, low, high)
        return state

    def _write(self, tensor: Tensor, index: int, row: int) -> State:
        state = State(row, (index,), self._name(tensor) if self.names else "")
        storage = self._storage(tensor)
        if storage is None:
            self.tape._odd[id(tensor)] = (weakref.ref(tensor), state)
        else:
            region, low, high, dense = _region(tensor)
            storage.write(index, region, state, low, high, dense)
        return state


def _named(op: _Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    named = [(op.arguments[i] if i < len(op.arguments) else f"arg{i}", value) for i, value in enumerate(args)]
    return named + list(kwargs.items())


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [v for v in value if isinstance(v, Tensor)]
    return found


def nonfinite_number(value: Any) -> bool:
    """Whether a plain argument is, or holds, a nan or an inf."""
    if isinstance(value, list | tuple):
        return any(nonfinite_number(v) for v in value)
    if isinstance(value, complex):
        return not (math.isfinite(value.real) and math.isfinite(value.imag))
    return isinstance(value, float) and not math.isfinite(value)


_PLAIN, _UNWRAPS, _SHAPES_ONLY = range(3)


def _wrapper(types: Sequence[type]) -> int:
    """How to treat an operation on tensor subclasses.

    One that wraps plain tensors (DTensor) does the work itself by operations on those, which come back here. Fake tensors have no numbers at all.
    """
    how = _PLAIN
    for t in types:
        if t is Tensor:
            continue
        if t.__name__ in ("FakeTensor", "FunctionalTensor"):
            return _SHAPES_ONLY
        if hasattr(t, "__tensor_flatten__"):
            how = _UNWRAPS
    return how
