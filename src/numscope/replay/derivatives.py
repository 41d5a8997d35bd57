"""Watches the backward of nodes that were made outside the models' calls, at any order of derivative.

A graph is gone once backward has run, so it can't be replayed. Instead, hooks on its nodes note what came in and what went out. Where a
backward makes a graph itself (``create_graph``), the nodes that appear while a hooked node runs are its derivative: they are hooked
in the next backward, and lead back to that node's operation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _push_mode

from numscope.probe.hook import hook_node
from numscope.probe.nodes import graph, suspects
from numscope.probe.optimizer import guarded
from numscope.records.site import Phase
from numscope.replay import stack as stacks
from numscope.replay.glance import shape_of
from numscope.replay.log import Note
from numscope.replay.modes import DISPATCH_MODES, taken_off
from numscope.replay.op import OpProbe
from numscope.replay.operation import KeepingProbe, of_node
from numscope.replay.tape import UNOBSERVED, NumberStore, OperandRecord, OpRecord, State

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
_NOWHERE = stacks.Stack()


# Its slot; the handle of its numbers, or itself where a look at it would be a launch on a device; its version.
_Gradient = tuple[str, int | Tensor, int, torch.dtype, tuple[int, ...]]
_SMALL = 1 << 12  # elements of such a one


class _Spans:
    """Ranges of autograd's sequence numbers, ascending, with what each stands for."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.records: list[OpRecord | None] = []
        self._past = 0

    def add(self, start: int, stop: int, record: OpRecord | None = None) -> None:
        if start < stop:
            self.records.append(record)
            self._stops.append(stop)
            self._starts.append(start)  # last: an exception of the script's may strike in between, and a range has all three

    def at(self, number: int) -> int:
        """The place of the range that holds a number; -1 for none."""
        place = bisect_right(self._starts, number) - 1
        return place if place >= 0 and number < self._stops[place] else -1

    def step_ends(self) -> None:
        self._past = len(self._starts)

    def forget_past(self) -> None:
        for each in (self._starts, self._stops, self.records):
            del each[: self._past]
        self._past = 0


class Derivatives:
    """The backwards of one thread, as far as they run through nodes made outside the models' calls.

    Args:
        note: gets a function and its arguments, which put a record on the tape once that is asked for.
        flush: calls what was noted.
        failed: is called with an internal error of the tool; it must not raise.

    Attributes:
        gradients: came out of these nodes, in order.

    *Cost:* about 1 µs for each node in reach and 5 for each that is hooked; 3 more where the backward makes a graph.
    """

    closed = False

    def __init__(self, note: Callable[[Note], None], flush: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._note, self._flush, self.failed = note, flush, failed
        self._probe: OpProbe | None = None  # of the backward at work
        self._hooks: list[Callable[[], None]] = []  # of the backward at work, each a function that removes it
        self._custom: list[OpProbe] = []  # pushed around a custom function's backward
        self._began = 0  # the sequence number at which the backward began
        self._starts: dict[int, int] = {}  # by thread, the same of the node at work
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.gradients: list[State] = []
        self._run: list[OpRecord] = []  # of the last backward
        self._made = _Spans()  # nodes of operations outside
        self._near = _Spans()  # these, and nodes that backwards made
        # Devices have threads of their own, and each thread counts by itself.
        self._reached: dict[int, tuple[int, int]] = {}  # in the backward at work, by thread
        self._far: defaultdict[int, _Spans] = defaultdict(_Spans)  # nodes that backwards made in other threads
        self._derived: defaultdict[int, _Spans] = defaultdict(_Spans)  # with the record of the node that was at work

    def made(self, start: int, stop: int) -> None:
        """Operations outside the models have made the nodes with these sequence numbers."""
        self._made.add(start, stop)
        self._near.add(start, stop)

    @property
    def _spans(self) -> list[_Spans]:
        return [self._made, self._near, *self._far.values(), *self._derived.values()]

    def step_ends(self) -> None:
        """The nodes so far belong to a step that is over. A graph may reach from one step into the next."""
        for spans in self._spans:
            spans.step_ends()

    def begin_step(self) -> None:
        """Forget the nodes of steps that are over."""
        self.gradients = []
        for spans in self._spans:
            spans.forget_past()

    @property
    def last(self) -> list[OpRecord]:
        """Records of the last backward, once the log is written."""
        return self._run

    # ---- a backward

    @guarded()
    def begin(
        self,
        roots: Sequence[Tensor],
        outputs: Collection[Any],
        probe: OpProbe,
        creates_graph: bool,
        seeds: Sequence[OpRecord],
        is_behind: bool,
    ) -> None:
        """Hook what a backward from ``roots`` runs through.

        Args:
            outputs: nodes of what models returned: what lies behind them is left to a replay.
            probe: of the tape, pushed around custom functions' backwards.
            creates_graph: this backward can be differentiated.
            seeds: what made bad gradients that it begins with.
            is_behind: records of some operations are still to be created.
        """
        self._unhook()
        self._probe, self._run, self._began = probe, [*seeds], _sequence_number()
        found: dict[Any, OpRecord | None] = {}  # and the operation whose derivative each node is part of
        near, far = self._near.at, [*self._far.values()]

        def enters(node: Any) -> bool:
            number = node._sequence_nr()
            return node not in outputs and (near(number) >= 0 or any(spans.at(number) >= 0 for spans in far))

        for node in graph(roots, enters):
            number = node._sequence_nr()
            of = next(((spans, place) for spans in self._derived.values() if (place := spans.at(number)) >= 0), None)
            is_made = self._made.at(number) >= 0
            if of is not None and not (is_made and probe.tape.has_node(node.name(), number)):
                found[node] = of[0].records[of[1]]
            elif is_made:
                found[node] = None
        for node in suspects([*found]):
            name, number, source = node.name(), node._sequence_nr(), found[node]
            if creates_graph:
                self._hook(node.register_prehook, self._node_begins)
            if hasattr(node, "_forward_cls"):  # a custom function's backward is Python code with lines of its own
                self._hook(node.register_prehook, self._custom_begins)
                self._hook(node.register_hook, self._custom_ran)
            elif source is not None or is_behind or probe.tape.forward_of(name, number) is not None:
                kept = node if isinstance(probe, KeepingProbe) else None
                self._hook(node.register_hook, partial(self._node_ran, name, number, source, kept))

    def _hook(self, register: Callable[[Any], Any], hook: Callable[..., Any]) -> None:
        self._hooks.append(hook_node(register, hook))

    def _unhook(self) -> None:
        """Remove what the last backward has left; one that raised does not end."""
        while self._hooks:
            self._hooks.pop()()
        self.take_off()

    def take_off(self) -> None:
        """Remove the op probe of a custom function whose backward raised."""
        while self._custom:
            taken_off(self._custom[-1], *DISPATCH_MODES)
            self._custom.pop()

    @guarded()
    def end(self) -> None:
        self._unhook()
        self._reached.pop(get_ident(), None)
        self._near.add(self._began, _sequence_number())
        for thread, span in self._reached.items():
            self._far[thread].add(*span)
        self._reached.clear()

    @guarded()
    def _node_begins(self, coming: Sequence[Tensor | None]) -> None:
        self._starts[get_ident()] = _sequence_number()

    def _node_ends(self, record: OpRecord | None) -> None:
        thread, stop = get_ident(), _sequence_number()
        start = self._starts.pop(thread, None)
        if start is not None:
            self._derived[thread].add(start, stop, record)
            self._reached[thread] = self._reached.get(thread, (start, stop))[0], stop

    @guarded()
    def _custom_begins(self, coming: Sequence[Tensor | None]) -> None:
        if (probe := self._probe) is not None:
            self._flush()
            probe.follow([g for g in coming if g is not None], self._run)
            self._custom.append(probe)
            _push_mode(probe)

    @guarded()
    def _custom_ran(self, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]) -> None:
        if self._custom:
            taken_off(self._custom.pop(), *DISPATCH_MODES)
        self._node_ends(None)
        if (probe := self._probe) is not None:
            states = [s for g in going if isinstance(g, Tensor) and (s := probe.tape.state_of(g)) is not None]
            self.gradients += states
            self._run += [probe.tape[s.writers[0]] for s in states if s.writers and s.writers[0] in probe.tape]

    @guarded()
    def _node_ran(
        self, name: str, number: int, source: OpRecord | None, node: Any, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]
    ) -> None:
        """A backward operation: incoming gradients, what was saved, results. Of one whose results are finite nothing is noted, unless they
        can be differentiated. ``node`` is itself, where what fails in it is kept."""
        probe = self._probe
        went = [] if probe is None else _noted(probe.rows, "grad_input", going)
        is_finite = probe is not None and all(_is_finite(probe.rows, seen) for _, seen, _, _, _ in went)
        if not self._starts and is_finite:
            return
        record = OpRecord(-1, "", Phase.BACKWARD, "", _NOWHERE, node=name)
        self._node_ends(record)
        if node is not None and not is_finite:
            record.operation = of_node(node, coming)
        if probe is not None:
            came = _noted(probe.rows, "grad_output" if source is None else "grad_grad_input", coming)
            self._note((self._put, probe, self._run, record, number, source, came, went))

    def _put(
        self,
        probe: OpProbe,
        run: list[OpRecord],
        record: OpRecord,
        number: int,
        source: OpRecord | None,
        came: list[_Gradient],
        went: list[_Gradient],
    ) -> None:
        """Put a record of it on the tape, as the op probe would have made it."""
        forward = probe.tape.forward_of(record.node, number) if source is None else source
        if forward is None or not forward.op:  # it is not known which operation this is the derivative of
            return
        record.op, record.module, record.stack = f"{forward.op.rstrip('_')}_backward", forward.module, forward.stack
        record.forward = forward
        record.inputs += [_operand(probe.rows, *one, run) for one in came]
        record.inputs += [o for o in (*forward.inputs, *forward.outputs) if o.state is not None]
        probe.tape.add(record)
        run.append(record)
        for one in went:
            record.outputs.append(_operand(probe.rows, *one, [record]))
            self.gradients += [state for state in [record.outputs[-1].state] if state is not None]


def _noted(rows: NumberStore, slot: str, tensors: Sequence[Tensor | None]) -> list[_Gradient]:
    """Gradients of a graph are kept without it, and without what it saves."""
    found = [(f"{slot}[{i}]", g) for i, g in enumerate(tensors) if isinstance(g, Tensor)]
    return [
        (name, rows.observe(g) if g.is_cpu or g.numel() > _SMALL else g.detach(), g._version, g.dtype, shape_of(g)) for name, g in found
    ]


def _is_finite(rows: NumberStore, seen: int | Tensor) -> bool:
    return isinstance(seen, int) and (seen == UNOBSERVED or rows.is_bad(seen) is False)


def _operand(
    rows: NumberStore, name: str, seen: int | Tensor, version: int, dtype: torch.dtype, shape: tuple[int, ...], writers: Sequence[OpRecord]
) -> OperandRecord:
    """A gradient that came of one of ``writers``, if it is bad. Autograd adds gradients up by itself, in memory that no operation wrote."""
    row = seen if isinstance(seen, int) else rows.observe(seen) if seen._version == version else UNOBSERVED
    known = () if row == UNOBSERVED or rows.is_bad(row) is False else tuple(record.index for record in reversed(writers))
    return OperandRecord(name, State(row, known), None, dtype, shape)
