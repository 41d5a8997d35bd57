"""What runs outside the watched models' calls: the loss, what joins several models or parts of one, an agent's actions.

It is a few operations that no module hook sees, and its graph is gone once backward has run, so it is watched op by op as it happens, on
one tape a thread for all models: what one model's output becomes before it enters the next is on it too. Its backward is watched by hooks
on its few autograd nodes, which go with the graph.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack
from torch.overrides import _pop_mode as pop_function_mode
from torch.overrides import _push_mode as push_function_mode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.records.site import Phase
from numscope.replay.function_probe import FunctionProbe
from numscope.replay.op import OpProbe
from numscope.replay.tape import ACCUMULATE, OperandRecord, OpRecord, OpTape, State
from numscope.summary.ledger import Ledger

log = logging.getLogger("numscope")

MODEL_OUTPUT = "input from the model:"  # how the tape's operands are called that a model made
MAX_NODES = 512  # of a loss's graph; one longer than that has a model in it
_LIMIT = 4096  # records on the tape; the oldest go
_FEW_TIMES = 16  # that a step's stretches are watched operation by operation; an agent acts more often, and then function by function
_CAPACITY = 4096  # rows: 512 KiB a thread
_MAX_ROWS = 1 << 16
_MANY_ROWS = 3500  # where no step's end begins the tape anew: evaluation; models whose steps overlap for ever


class Outside:
    """The tape of one thread.

    It is kept as long as some step may ask about it: until a call begins when each user's step has ended, or all are released.

    *Cost:* about 50 µs an operation, plus one pass over each operand not seen before; from a step's 17th stretch on 6 µs a function.
    """

    def __init__(self) -> None:
        self.ledger = Ledger(capacity=_CAPACITY)
        self.tape = OpTape(limit=_LIMIT)
        self.backward: list[State] = []  # gradients that came out of the tape's nodes, in order
        self._users: dict[Hashable, weakref.WeakMethod[Callable[[Exception], None]]] = {}
        self._done: set[Hashable] = set()  # users whose step has ended
        self._passed: set[Hashable] = set()  # users of which a step has ended since the tape began
        self._inside: set[Hashable] = set()  # users whose outermost call is at work: one watched model may call another
        self._names: dict[int, str] = {}  # by id, of what the models made
        self._outputs: dict[int, weakref.ref[Tensor]] = {}
        self._custom: list[OpProbe] = []  # pushed around a custom function's backward
        self._mode: OpProbe | FunctionProbe | None = None
        self._leftover: list[FunctionProbe] = []  # still on torch's stack
        self._num_times = 0  # that it began to watch
        self._began = 0  # autograd's sequence number
        self._nodes: list[range] = []  # sequence numbers of the nodes that were made outside, ascending
        self._resumes = False  # it was watching when the outermost call at work began
        self._was_watching = False  # when the last backward began

    @property
    def watching(self) -> bool:
        return self._mode is not None

    def call_begins(self, user: Hashable, failed: Callable[[Exception], None]) -> None:
        """An outermost call begins; what it does is a replay's to watch.

        Args:
            user: whose step may ask about the tape until ``release``.
            failed: told of an error of the tool's own; it must not raise.
        """
        self._pop_leftover()
        if not self._inside:
            self._resumes = self.watching
        self.pause()
        begins = user in self._done or user not in self._users
        ended = bool(self._done) and self._done.issuperset(self._users)
        if ended or (begins and self._passed.issuperset(self._users) and len(self.ledger) > _MANY_ROWS):
            self._users = {other: told for other, told in self._users.items() if other not in self._done}
            self._done.clear()
            self.reset()
        self._done.discard(user)
        self._inside.add(user)
        self._users[user] = weakref.WeakMethod(failed)

    def call_ends(self, user: Hashable, named: Iterable[tuple[str, Tensor]], watch: bool) -> None:
        """An outermost call has returned these tensors, or failed; ``watch`` where a loss may follow."""
        self._inside.discard(user)
        for slot, tensor in named:
            self._name(tensor, f"{MODEL_OUTPUT} {slot}")
        if watch or self._resumes:
            self.begin()

    def begin(self) -> None:
        """Watch from here on. Not where a dispatch mode of somebody else's is at work: ours must not outlive it in the wrong order."""
        if self._mode is None and not self._inside and not optimizer_probe.is_paused() and not _get_current_dispatch_mode_stack():
            if len(self.ledger) > _MAX_ROWS:
                self.reset()
            self._pop_leftover()
            self._num_times += 1
            if self._num_times <= _FEW_TIMES:
                self._mode = OpProbe(self.tape, self.ledger, phase=Phase.LOSS, names=self._names)
                _push_mode(self._mode)
            else:
                self._mode = FunctionProbe(self.tape, self.ledger, self._names)
                push_function_mode(self._mode)  # type: ignore[no-untyped-call]
            self._began = torch._C._autograd._get_sequence_nr()

    def pause(self) -> None:
        """Stop watching, until ``begin``."""
        mode = self.take_off()
        if mode is not None:
            self._nodes.append(range(self._began, torch._C._autograd._get_sequence_nr()))
            if mode.error is not None:
                self._fail(mode.error)

    def take_off(self) -> OpProbe | FunctionProbe | None:
        """Take what watches off torch's stacks of modes. Returns: the mode that was on."""
        while self._custom:  # the function's backward raised
            self._pop(self._custom.pop())
        mode, self._mode = self._mode, None
        if isinstance(mode, OpProbe):
            self._pop(mode)
        elif mode is not None:
            mode.is_on = False
            self._leftover.append(mode)
        self._pop_leftover()
        return mode

    @contextlib.contextmanager
    def asleep(self) -> Iterator[None]:
        """What the tool itself does meanwhile is not on the tape."""
        mode = self._mode
        try:
            if mode is not None:
                mode.is_on = False
            yield
        finally:
            if mode is not None and self._mode is mode:
                mode.is_on = True

    def step_ends(self, user: Hashable) -> None:
        """A user's step is over: it asks again only about a further backward, before the next call begins."""
        if user in self._users:
            self._done.add(user)
            self._passed.add(user)

    def release(self, user: Hashable) -> None:
        """A user asks no more. What is on the tape stays for others, until steps end or it has grown."""
        self._inside.discard(user)
        self._done.discard(user)
        self._users.pop(user, None)

    def reset(self) -> None:
        """Forget what was seen."""
        self.tape = OpTape(limit=_LIMIT)
        if len(self.ledger) > _CAPACITY:
            self.ledger = Ledger(capacity=_CAPACITY)  # one long step must not cost memory for ever
        self.ledger.reset()
        self.backward = []
        self._passed.clear()
        self._num_times = 0
        self._nodes.clear()
        self._names.clear()
        self._outputs.clear()
        if self._mode is not None:
            self._mode.tape, self._mode.rows = self.tape, self.ledger

    def _name(self, tensor: Tensor, name: str) -> None:
        key = id(tensor)

        def forget(_: object, names: dict[int, str] = self._names, outputs: dict[int, weakref.ref[Tensor]] = self._outputs) -> None:
            names.pop(key, None)
            outputs.pop(key, None)

        self._names[key] = name
        self._outputs[key] = weakref.ref(tensor, forget)

    def _fail(self, error: Exception) -> None:
        for method in tuple(self._users.values()):
            if (failed := method()) is not None:
                failed(error)

    @staticmethod
    def _pop(mode: OpProbe) -> None:
        above: list[Any] = []
        stack = _get_current_dispatch_mode_stack()
        if mode not in stack:  # somebody unwound the stack
            return
        while (top := _pop_mode()) is not mode:
            above.append(top)
        for other in reversed(above):
            _push_mode(other)

    def _pop_leftover(self) -> None:
        """Take function modes off torch's stack. Within ``Tensor.backward``, itself such a function, ours is off it for the time."""
        stack: Any = _get_current_function_mode_stack() if self._leftover else ()  # type: ignore[no-untyped-call]
        for mode in [mode for mode in self._leftover if mode in stack]:
            self._leftover.remove(mode)
            above: list[Any] = []
            while (top := pop_function_mode()) is not mode:  # type: ignore[no-untyped-call]
                above.append(top)
            for other in reversed(above):
                push_function_mode(other)  # type: ignore[no-untyped-call]

    # ---- backward

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """``backward`` is about to run from these tensors."""
        self._was_watching = self.watching
        self.pause()
        if not in_backward():
            self._see_backward(roots)

    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        """``autograd.grad`` gave differentiable gradients, as for a penalty: the loss goes on."""
        if self._was_watching and not in_backward():
            for i, gradient in enumerate(gradients):
                self._name(gradient, f"gradient[{i}]")
            self.begin()

    def states(self, tensors: Sequence[Tensor]) -> list[State]:
        """Of those of some tensors that were made outside."""
        return [state for t in tensors if (state := self.tape.state_of(t)) is not None]

    def _see_backward(self, roots: Sequence[Tensor]) -> None:
        """Watch the backward of the nodes made outside, from what backward is called on down to the models' outputs."""
        outputs = [t for ref in self._outputs.values() if (t := ref()) is not None]
        stop = {t.grad_fn for t in outputs if t.grad_fn is not None}
        todo = [t.grad_fn for t in roots if t.grad_fn is not None and self._made(t.grad_fn) and t.grad_fn not in stop]
        seen: set[Any] = set(todo)
        nodes: list[Any] = []
        while todo:
            node = todo.pop()
            nodes.append(node)
            if len(nodes) > MAX_NODES:
                return
            for following, _ in node.next_functions:
                if following is not None and following not in seen and following not in stop and self._made(following):
                    seen.add(following)
                    todo.append(following)
        for node in nodes:
            forward = self.tape.forward_of(node.name(), node._sequence_nr())
            if hasattr(node, "_forward_cls"):  # a custom function's backward is Python code with lines of its own
                probe = OpProbe(self.tape, self.ledger, phase=Phase.BACKWARD)
                node.register_prehook(partial(self.guarded, self._custom_begins, probe))
                node.register_hook(partial(self.guarded, self._custom_ran, probe))
            elif forward is not None:
                node.register_hook(partial(self.guarded, self._node_ran, node.name(), forward))

    def guarded(self, call: Callable[..., None], *args: Any) -> None:
        """Run a piece of the tool; an error turns off the watches whose steps it serves."""
        try:
            call(*args)
        except Exception as error:  # ours
            self._fail(error)

    def _made(self, node: Any) -> bool:
        """Whether a node was made outside: a model's are done again by a replay, whether or not its outputs still live."""
        if node.name() == ACCUMULATE:
            return False
        number = node._sequence_nr()
        place = bisect_right(self._nodes, number, key=attrgetter("start"))
        return place > 0 and number in self._nodes[place - 1]

    def _custom_begins(self, probe: OpProbe, coming: Sequence[Tensor | None]) -> None:
        self._custom.append(probe)
        _push_mode(probe)

    def _custom_ran(self, probe: OpProbe, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]) -> None:
        if probe in self._custom:
            self._custom.remove(probe)
        self._pop(probe)
        self.backward += [s for g in going if isinstance(g, Tensor) and (s := self.tape.state_of(g)) is not None]

    def _node_ran(self, node: str, forward: OpRecord, going: Sequence[Tensor | None], coming: Sequence[Tensor | None]) -> None:
        """A record of the backward operation as the op probe would have made it: incoming gradients, what was saved, results."""
        name = f"{forward.op.rstrip('_')}_backward"
        index = self.tape.first + len(self.tape.records)
        record = OpRecord(index, name, Phase.BACKWARD, forward.module, forward.stack, node=node, forward=forward)
        for i, gradient in enumerate(coming):
            if isinstance(gradient, Tensor):
                record.inputs.append(self._operand(f"grad_output[{i}]", gradient, ()))
        record.inputs += [o for o in (*forward.inputs, *forward.outputs) if o.state is not None]
        for i, gradient in enumerate(going):
            if isinstance(gradient, Tensor):
                result = self._operand(f"grad_input[{i}]", gradient, (index,))
                record.outputs.append(result)
                if result.state is not None:
                    self.backward.append(result.state)
        self.tape.records.append(record)

    def _operand(self, name: str, tensor: Tensor, writers: tuple[int, ...]) -> OperandRecord:
        return OperandRecord(name, State(self.ledger.observe(tensor), writers), None, tensor.dtype, tuple(tensor.shape))


_threads = threading.local()


def current() -> Outside:
    """This thread's."""
    found: Outside | None = getattr(_threads, "outside", None)
    if found is None:
        found = _threads.outside = Outside()
    return found


class _Backward(optimizer_probe.StepListener):
    """Tells the thread's tape of backward, before the steps of the models hear of it."""

    def __init__(self) -> None:
        self._num_watches = 0

    def enter(self) -> None:
        """One more watch needs the tape."""
        self._num_watches += 1
        if self._num_watches == 1:
            optimizer_probe.listen(self)

    def leave(self) -> None:
        """One watch less."""
        self._num_watches -= 1
        if not self._num_watches:
            optimizer_probe.unlisten(self)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        outside = current()
        outside.guarded(outside.before_backward, roots)

    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        outside = current()
        outside.guarded(outside.after_gradients, gradients)


backward = _Backward()
