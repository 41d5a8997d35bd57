"""Records every operation of part of a step, with the numbers of its operands and the line that ran it."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.probe.calls import is_traced
from numscope.records.faults import had_no_room, ours
from numscope.records.finding import Culprit
from numscope.records.site import Phase
from numscope.replay import reach
from numscope.replay import stack as stacks
from numscope.replay.as_bare import call
from numscope.replay.glance import UNREAD, Glance, glances
from numscope.replay.tape import ACCUMULATE, UNOBSERVED, NumberStore, OperandRecord, OpRecord, OpTape, State, StorageRecord

UNINITIALIZED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"})
_OVERWRITES = frozenset(
    {"copy_", "_foreach_copy_", "fill_", "zero_", "_foreach_zero_", "set_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
    | {"log_normal_", "cauchy_", "geometric_", "rrelu_with_noise"}
)  # fmt: skip


COLLECTIVES = frozenset({"c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd"})  # namespaces of collective operators
_WAITS = frozenset({"wait_tensor", "_wrap_tensor_autograd"})  # the second half of a collective
# Arguments that c10d's operators only write, and those that they read and write; their schemas say neither.
_RECEIVED = frozenset({"output", "output_tensor", "output_tensors", "output_lists", "outputs", "out"})
_EXCHANGED = "tensors"
_JOINS = frozenset({"aten.cat", "aten.stack"})
_RUNNING = frozenset({"running_mean", "running_var"})


Stop = Callable[[FrameType | None, Any, tuple[Any, ...], Mapping[str, Any]], None]


class Communicates(BaseException):
    """A collective was about to run and no other rank would answer. Not an Exception, so that no model's ``except`` catches it."""


class _Op:
    """The fixed properties of an operator."""

    __slots__ = ("arguments", "collective", "corresponds", "elementwise_lists", "fresh", "name", "part", "uninitialized", "unread", "view",
                 "waits",
                 "written")  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = getattr(func, "_schema", None)
        name = getattr(func, "__name__", str(func)) if schema is None else schema.name.replace("::", ".")
        self.name: str = name if schema is not None else f"higher_order.{name}"
        arguments = [] if schema is None else schema.arguments
        self.arguments = tuple(a.name for a in arguments)
        self.written = frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
        if self.name.endswith("_batch_norm"):  # native_, cudnn_, miopen_: their schemas leave out what they write
            self.written |= _RUNNING.intersection(self.arguments)
        overwrites = self.name.rpartition(".")[2] in _OVERWRITES
        # written without being read, so the old content is not an input
        self.unread = frozenset(a.name for a in arguments if a.name in self.written and (a.kwarg_only or overwrites))
        namespace, _, plain = self.name.rpartition(".")
        self.waits = namespace in COLLECTIVES and plain in _WAITS
        self.collective = namespace in COLLECTIVES and not self.waits
        if self.collective:
            received = _RECEIVED | ({"tensor", _EXCHANGED} if "recv" in plain else set())
            self.unread = frozenset(received.intersection(self.arguments))
            self.written |= self.unread | ({_EXCHANGED} if namespace == "c10d" and plain != "send" else set())
        elif plain.startswith("new_") or plain.endswith("_like"):
            self.unread = frozenset(self.arguments[:1])  # of which they take no more than shape and dtype
        self.part = self.name == "fsdp.all_gather_copy_in"  # writes this rank's part of a buffer and returns the rest unwritten
        if self.part:
            self.unread = frozenset({"all_gather_output"})
        aliases = schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.fresh = self.name in ("aten.lift_fresh", "aten.lift")  # makes a tensor of Python numbers; no other operation writes it
        self.view = (aliases and not self.written and not self.fresh) or self.name.startswith("profiler.")  # around an optimizer's step
        self.elementwise_lists = self.name.startswith(("aten._foreach_", "aten._fused_"))  # result i depends only on operand i
        self.corresponds = reach.corresponds(func)
        self.uninitialized = self.name.rpartition(".")[2] in UNINITIALIZED


op_of = lru_cache(maxsize=4096)(_Op)


class OpProbe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation that runs inside this mode on a tape.

    Args:
        tape: filled in order; a forward and its backward may share one tape, each with its own probe.
        rows: gets each tensor state once.
        phase: the phase of the recorded operations, except for those run by the autograd engine, which are always backward.
        module_name: returns the qualified name of the innermost module being called.
        names: slot names by the id of a tensor or the ``_cdata`` of its storage: ``wo.weight``, ``input[0]``, ``grad output[0]``.
        boundary: code of the function that drives a replay; frames outside it are not part of the step.
        lone: no other rank takes part, so the first collective raises Communicates instead of running.
        stop: called in front of the operation of this index on the tape, with the user's innermost frame, the operator and its arguments.
        keeps_frames: records keep that frame, and with it whatever its function holds.
        spared: gets memory that was there before and is written in place, with a copy of what it held, by the ``_cdata`` of its storage.

    *Cost:* one pass over each new tensor and about 30 µs per operation; no sync. An internal error disables the probe; training continues.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        tape: OpTape,
        rows: NumberStore,
        *,
        phase: Phase = Phase.FORWARD,
        module_name: Callable[[], str] = str,
        names: Mapping[int, str] | None = None,
        boundary: CodeType | None = None,
        lone: bool = False,
        spared: dict[int, tuple[UntypedStorage, UntypedStorage]] | None = None,
        stop: tuple[int, Stop] | None = None,
        keeps_frames: bool = False,
    ) -> None:
        # torch's part of a mode is made as it is entered by ``with``, which those that come by the hundred are not.
        self.tape, self.rows, self.phase = tape, rows, phase
        self.module_name, self.boundary, self.lone = module_name, boundary, lone
        self.names = {} if names is None else names
        self.spared = spared
        self.stop, self.keeps_frames = stop, keeps_frames
        self.error: Exception | None = None  # an internal error; once set, the probe only passes operations on
        self.is_on = True
        self.first_seq: int = torch._C._autograd._get_sequence_nr()  # earlier nodes belong to operations that were not recorded

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A compiled loss stays compiled and is not recorded; a replay turns on eager mode itself."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_traced():
            return func(*args, **kwargs)
        if not self.is_on:
            return call(func, args, kwargs)
        if self.lone and getattr(func, "namespace", "") in COLLECTIVES:
            raise Communicates(str(func))
        record: OpRecord | None = None
        op: _Op | None = None
        bad: reach.Bad = []
        if self.error is None:
            try:
                wrapped = _wrapper(types)
                if wrapped == _SHAPES_ONLY:
                    return call(func, args, kwargs)
                op = op_of(func)
                given = [(name, glances(value, self.names)) for name, value in named_arguments(op, args, kwargs)]
                with self.tape.lock:
                    record = self._begun(op, args, kwargs)
                    record = record if self._before(op, record, given, wrapped == _UNWRAPS) else None
                if record is not None and op.corresponds:
                    bad = reach.bad_elements(record, named_arguments(op, args, kwargs), self.rows, self.boundary is not None)
            except ours() as error:
                self.error = None if had_no_room(error) else error
            if record is None and self.error is None:
                return NotImplemented if wrapped == _UNWRAPS else call(func, args, kwargs)
        if self.stop is not None and record is not None and self.tape.num_records == self.stop[0]:
            self.stop[1](stacks.user_frame(sys._getframe(1)), func, args, kwargs)
        result = call(func, args, kwargs)
        if record is not None and op is not None and self.error is None:
            try:
                if bad:
                    reach.settle(func, record, named_arguments(op, args, kwargs), bad, result)
                written = [(name, glances(value, self.names)) for name, value in named_arguments(op, args, kwargs) if name in op.written]
                with self.tape.lock:
                    self._after(op, record, given, written, glances(result, self.names))
                self._count()
            except ours() as error:
                self.error = None if had_no_room(error) else error
        return result

    def _begun(self, op: _Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OpRecord:
        record = OpRecord(-1, op.name, self.phase, self.module_name(), stacks.capture(sys._getframe(2), self.boundary))
        if self.keeps_frames:
            record.frame = stacks.user_frame(sys._getframe(2))
        self._place(record, args, kwargs)
        return record

    def _count(self) -> None:
        """An operation is on the tape."""

    def use(self, tape: OpTape, rows: NumberStore) -> None:
        """Go on with another tape."""
        self.tape, self.rows = tape, rows

    def made(self, tensors: Sequence[Tensor], culprit: Culprit) -> None:
        """Record tensors that an operation made where no tape was."""
        record = OpRecord(-1, f"model.{culprit.op}", Phase.FORWARD, culprit.module, stacks.Stack(), told=culprit)
        with self.tape.lock:
            self.tape.add(record)
            self._results(record, "output", glances(list(tensors), self.names), set(), False)

    def follow(self, tensors: Sequence[Tensor], writers: Sequence[OpRecord]) -> None:
        """Tell that one of these records, or several, wrote tensors. The tensors are read by what uses them."""
        self._follow(glances(list(tensors), self.names), writers)

    def _follow(self, tensors: Sequence[Glance], writers: Sequence[OpRecord]) -> None:
        indices = tuple(record.index for record in reversed(writers) if record.index >= 0)
        for tensor in tensors if indices else ():
            self._write(tensor, indices, UNOBSERVED, True)

    def _before(self, op: _Op, record: OpRecord, given: Sequence[tuple[str, Any]], unwraps: bool) -> bool:
        """Put into a record what is known before the operation runs. False if that only makes a view or waits, or if a wrapper's operations
        do the work: then there is none."""
        for tensor in flat([value for _, value in given]):
            self._identify(tensor)
        if unwraps or op.view or op.waits or (op.name == "aten.copy_" and self._ends_collective(*(value for _, value in given[:2]))):
            return False
        for name, value in given:
            if name not in op.unread:
                self._operands(record.inputs, name, value)
            if name in op.written and self.spared is not None:
                for tensor in flat([value]):
                    self._spare(tensor, self.spared)
        return True

    def _spare(self, tensor: Glance, spared: dict[int, tuple[UntypedStorage, UntypedStorage]]) -> None:
        known = self._storage(tensor)
        if known is not None and not known.writes and tensor.tensor is not None:  # nothing on the tape has written it
            storage = tensor.tensor.untyped_storage()
            spared.setdefault(storage._cdata, (storage, storage.clone()))  # type: ignore[no-untyped-call]

    def _ends_collective(self, target: Any, source: Any) -> bool:
        """Whether a copy completes a collective: gloo fills some results from its own memory when they are waited for."""
        if not (isinstance(target, Glance) and isinstance(source, Glance)):
            return False
        state = self.tape.state_at(target)
        writer = state.writers[0] if state is not None and state.writers else None
        if writer is None or writer not in self.tape or self.tape[writer].op.partition(".")[0] not in COLLECTIVES:
            return False
        return self.tape.state_at(source) is None

    def _place(self, record: OpRecord, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        node: Any = torch._C._current_autograd_node()
        seq = torch._C._autograd._get_sequence_nr() - 1
        if torch.is_grad_enabled():
            record.differentiable = any(t.requires_grad for t in tensors_in((*args, *kwargs.values())))
        if node is None:
            if seq >= self.first_seq:
                self.tape.add_node(seq, record)
            return
        record.node, record.node_seq = node.name(), node._sequence_nr()
        if record.differentiable or record.stack.recompute:
            self.tape.add_node(seq, record)  # recomputed by checkpointing, or part of a graph of gradients
        if record.stack.recompute:
            record.phase = Phase.FORWARD
            return
        record.phase = Phase.OPTIMIZER if self.phase == Phase.OPTIMIZER else Phase.BACKWARD
        if record.node == ACCUMULATE:
            variable = getattr(node, "variable", None)
            record.accumulates = self._name(Glance.at(variable, self.names)) or "a leaf" if variable is not None else "a leaf"
            return
        record.forward = self.tape.forward_of(record.node, record.node_seq)
        if record.forward is not None:
            record.module = record.forward.module

    def _after(self, op: _Op, record: OpRecord, given: Sequence[tuple[str, Any]], written: Sequence[tuple[str, Any]], result: Any) -> None:
        """Add the record, with its results. A collective's come later, and only the script waits for them: the first operation that reads
        them has them read.

        Args:
            written: those arguments that the operation wrote, as they are now.
        """
        self.tape.add(record)
        seen: set[int] = set()
        for name, value in written:
            self._results(record, name, value, seen, op.collective)
        self._results(record, "output", result[:1] if op.part else result, seen, op.uninitialized or op.collective)
        if not op.elementwise_lists:
            for out in record.outputs:
                out.position = -1
        if op.name in _JOINS and isinstance(result, Glance):
            self._join(record, given, result)

    def _join(self, record: OpRecord, given: Sequence[tuple[str, Any]], result: Glance) -> None:
        """Note the parts of a result that were separate tensors: whoever reads one of them reads nothing of the others."""
        storage = self._storage(result)
        if storage is None or not result.dtype.is_floating_point:
            return
        dim, begin = next((value for name, value in given if name == "dim"), 0), 0
        for operand in [o for o in record.inputs if o.state is not None]:
            if operand.shape == (0,) and len(result.shape) != 1:
                continue  # torch leaves it out
            length = operand.shape[dim] if record.op == "aten.cat" else 1
            region, low, high, _ = result.part(dim % len(result.shape), begin, length).region()
            state = State(operand.state.row, (record.index,)) if operand.state is not None else State(UNOBSERVED)
            storage.states[region] = (state, low, high)
            record.parts.append(replace(operand, name="output", state=state))
            begin += length

    def _results(self, record: OpRecord, name: str, value: Any, seen: set[int], blank: bool) -> None:
        if isinstance(value, Glance):
            if value.key not in seen:
                seen.add(value.key)
                state = self._write(value, (record.index,), UNOBSERVED if blank else self._observe(value), blank)
                record.outputs.append(OperandRecord(name, state, None, value.dtype, value.shape))
        elif isinstance(value, list):
            for position, item in enumerate(value):
                self._results(record, f"{name}[{position}]", item, seen, blank)
                if record.outputs and isinstance(item, Glance):
                    record.outputs[-1].position = position
        elif isinstance(value, dict):
            for key, item in value.items():
                self._results(record, f"{name}[{key}]", item, seen, blank)

    def _operands(self, into: list[OperandRecord], name: str, value: Any, position: int = -1) -> None:
        if isinstance(value, Glance):
            storage = self._storage(value)
            is_parameter = storage.parameter if storage is not None else value.is_parameter
            into.append(OperandRecord(name, self._read(value, storage), None, value.dtype, value.shape, position, is_parameter))
        elif isinstance(value, list) and any(isinstance(v, Glance) for v in value):
            for at, item in enumerate(value):
                if item is not None:
                    self._operands(into, f"{name}[{at}]", item, at)
        elif value is not None and not callable(value):
            into.append(OperandRecord(name, None, value))

    def _observe(self, glance: Glance) -> int:
        if not (glance.dtype.is_floating_point or glance.dtype.is_complex):
            return UNOBSERVED
        if glance.row != UNREAD:
            return glance.row
        tensor = glance.tensor
        if tensor is None:
            return UNOBSERVED
        try:
            alias = tensor.detach() if type(tensor) in (Tensor, torch.nn.Parameter) else tensor
        except ours(RuntimeError):  # vmap's older wrappers can't be detached
            return UNOBSERVED
        # An alias, because an in-place operation increments the version only after we return, so the tensor itself still looks unchanged.
        return self.rows.observe(alias)

    def _identify(self, glance: Glance) -> None:
        """Store a tensor's name with its storage, because its views are different objects."""
        if glance.name or glance.is_parameter:
            storage = self._storage(glance)
            if storage is not None:
                storage.name = storage.name or glance.name
                storage.parameter = storage.parameter or glance.is_parameter

    def _name(self, glance: Glance) -> str:
        if glance.name or glance.storage is None:
            return glance.name
        known = self.tape.storage_of(glance)
        return self.names.get(glance.address, "") or (known.name if known is not None else "")

    def _storage(self, glance: Glance) -> StorageRecord | None:
        return self.tape.storage_of(glance) or self.tape.add_storage(glance)

    def _read(self, glance: Glance, storage: StorageRecord | None) -> State:
        """The state of an operand; summarized now if this region has not been observed since it was last written."""
        if storage is None:
            known = self.tape.state_at(glance)
            return self._write(glance, (), self._observe(glance), False) if known is None else known
        region, low, high, _ = glance.region()
        found = storage.states.get(region)
        if found is not None:
            return found[0]
        state = State(self._observe(glance), self.tape.overlapping(storage, low, high), self._name(glance))
        storage.states[region] = (state, low, high)
        return state

    def _write(self, glance: Glance, writers: tuple[int, ...], row: int, blank: bool) -> State:
        state = State(row, writers, self._name(glance))
        storage = self._storage(glance)
        if storage is not None:
            region, low, high, dense = glance.region()
            storage.write(region, state, low, high, dense, blank)
        elif glance.tensor is not None:
            self.tape.odd[glance.key] = (weakref.ref(glance.tensor), state)
        return state


def named_arguments(op: _Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    named = [(op.arguments[i] if i < len(op.arguments) else f"arg{i}", value) for i, value in enumerate(args)]
    return named + list(kwargs.items())


def tensors_in(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [v for v in value if isinstance(v, Tensor)]
    return found


def flat(values: Sequence[Any]) -> list[Glance]:
    """``_tensors`` of what stands in their places."""
    lists = (value if isinstance(value, list) else (value,) for value in values)
    return [one for several in lists for one in several if isinstance(one, Glance)]


def nonfinite_number(value: Any) -> bool:
    """Whether a plain argument is or contains a nan or an inf."""
    if isinstance(value, list | tuple):
        return any(nonfinite_number(v) for v in value)
    if isinstance(value, complex):
        return not (math.isfinite(value.real) and math.isfinite(value.imag))
    return isinstance(value, float) and not math.isfinite(value)


_PLAIN, _UNWRAPS, _SHAPES_ONLY = range(3)


def _wrapper(types: Sequence[type]) -> int:
    """How to treat an operation on tensor subclasses.

    A wrapper of plain tensors (DTensor) runs operations on those, which are dispatched here again. Fake tensors have no numbers.
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
