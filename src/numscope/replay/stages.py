"""Runs a call's forward and its backwards once more under the op probe, one after the other, until one shows what went wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from numscope.distributed.agree import Ranks
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.calls import heard
from numscope.probe.hook import can_be_hooked
from numscope.probe.naming import named_state
from numscope.probe.nodes import MOST_WALKED, graph, node_of
from numscope.records.faults import ours, told
from numscope.records.finding import Culprit
from numscope.records.site import Phase
from numscope.replay.capture import FORWARD, Call, Place
from numscope.replay.culprit import at_own_line, find, find_culprit, pending_states
from numscope.replay.op import COLLECTIVES, Communicates, OpProbe, Stop
from numscope.replay.tape import OpRecord, OpTape
from numscope.summary.ledger import Ledger

REPRODUCED = "reproduced"
FINITE = (
    "not reproduced: forward and backward were finite the second time; "
    "if only the weights' gradients are bad, look at what changes them after backward (clipping, unscaling)"
)
FORWARD_FINITE = "not reproduced: the forward was finite the second time"
COMMUNICATES = "not replayed: the model communicates between ranks, and the other ranks were not at the same place"
_CHECKPOINT = "CheckpointFunctionBackward"  # the node of a checkpoint with use_reentrant=True, which hides what is in it
CHANGED = "not reproduced: the weights were changed before the step was judged"
ELSEWHERE = "not reproduced: another rank could not do its part"


@dataclass(slots=True)
class Replay:
    """The result of a replay: a culprit, or the reason why there is none; and the call that was done again."""

    culprit: Culprit | None
    status: str
    call: Call | None = None


@contextlib.contextmanager
def conditions(call: Call) -> Iterator[None]:
    """The modes in which a call ran."""
    with heard(), torch.inference_mode(call.inference), torch.set_grad_enabled(call.grad_enabled), call.autocast.restored():
        yield


@contextlib.contextmanager
def untrained(names: Mapping[nn.Module, str]) -> Iterator[None]:
    """A call that itself trains the model, by Lightning's manual optimization, is done again up to there."""
    gradients = [(p, p.grad) for module in names for p in module._parameters.values() if p is not None and p.is_leaf]
    try:
        with optimizer_probe.paused(untrained=True):
            yield
    finally:
        for parameter, gradient in gradients:  # zero_grad has run
            if parameter.grad is not gradient:
                parameter.grad = gradient


def some(flag: bool, ranks: Ranks | None) -> bool:
    """Whether it is so on any of the ranks that replay together."""
    return flag if ranks is None else ranks.any("a replay", flag)[0]


def run_stages(stages: Stages, backward: bool) -> Replay:
    """Run the stages. Ranks that replay together also stop together; a rank that continued alone would wait forever."""
    replay = _attempt(stages.forward, stages.pending)
    if some(replay is not None, stages.ranks):
        return replay or Replay(None, ELSEWHERE)
    if not some(backward, stages.ranks):
        return Replay(None, FORWARD_FINITE)
    replay = stages.unready()
    if some(replay is not None, stages.ranks):
        return replay or Replay(None, ELSEWHERE)
    return _attempt(stages.backward, stages.pending) or Replay(None, FINITE)


def _attempt(stage: Callable[[], Culprit | None], pending: Callable[[], Culprit | None]) -> Replay | None:
    """The result of one stage; None to continue. If the model raises, the bad value may be the cause, so the tape is searched too."""
    try:
        culprit = stage()
    except Communicates:
        return Replay(None, COMMUNICATES)
    except ours() as error:
        culprit = pending()
        if culprit is None:
            return Replay(None, f"not reproduced: the replay raised {told(error)}")
    return None if culprit is None else Replay(culprit, REPRODUCED)


class Stages:
    """The forward and backward of a call, recorded on one tape.

    Attributes:
        seeks: a culprit; else stages only run.
    """

    seeks = True

    def __init__(
        self,
        call: Call,
        names: Mapping[nn.Module, str],
        lone: bool,
        ranks: Ranks | None,
        stop: tuple[int, Stop] | None = None,
        saved: Collection[str] = (),
    ) -> None:
        self.stop, self.saved = stop, saved
        self.asked: OpRecord | None = None  # what the user's code ran that led to the culprit
        self.call, self.names, self.lone, self.ranks = call, names, lone, ranks
        uncalled = {name for module, name in names.items() if isinstance(module, nn.ModuleList | nn.ModuleDict)}
        self.tape, self.rows = OpTape(uncalled=uncalled, rewritten=call.rewritten), Ledger()
        self.spared: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}  # memory that is written in place, and what it held
        self.under: AbstractContextManager[object] = contextlib.nullcontext()  # a variation
        self.slots: dict[int, str] = {}
        self.outputs: list[tuple[Place, Tensor]] = []
        self.parameters: list[tuple[str, Tensor]] = []
        self.arguments = [(slot, t) for slot, t in call.known if t.requires_grad]

    def forward(self) -> Culprit | None:
        call, state = self.call, named_state(self.names)  # buffers among it have stand-ins by now
        self.slots = slot_names(call, state)
        self.parameters = [(f"{module}.{slot}".lstrip("."), t) for module, slot, t in state if t.requires_grad and t.is_leaf]
        with conditions(call), untrained(self.names), self._probed(Phase.FORWARD):
            output = call.module(*call.args, **call.kwargs)
        self.outputs = [((FORWARD, slot), t) for slot, t in walk.tensors(output, "output")]
        self._leave_out_what_came_before()
        buffers = [
            buffer
            for module, name in (self.names.items() if self.saved else ())
            for slot, buffer in module._buffers.items()
            if buffer is not None and (f"{name}.{slot}" if name else slot) in self.saved
        ]
        return self._culprit([t for _, t in self.outputs], buffers)

    def _leave_out_what_came_before(self) -> None:
        """A part of a model may be called on what other parts made. Their graph is gone: leave out the parameters that lie behind."""
        before = {node for _, t in self.arguments if (node := node_of(t)) is not None}
        nodes = [*graph([t for _, t in self.outputs], lambda node: node not in before)] if before else []
        if before and len(nodes) < MOST_WALKED and not any(node.name() == _CHECKPOINT for node in nodes):
            reached = {id(getattr(node, "variable", None)) for node in nodes}
            self.parameters = [(name, p) for name, p in self.parameters if id(p) in reached]

    def unready(self) -> Replay | None:
        """The reason why the backward can't be replayed; None if it can."""
        received = {place for gradients in self.call.gradients for place in gradients}
        if not any(t.requires_grad and place in received for place, t in self.outputs):
            if self.call.gradients_dropped:
                return Replay(None, "not reproduced: the gradients of the model's outputs were too large to keep")
            return Replay(None, "not reproduced: no gradient reached the model's outputs")
        if any(needs_accumulation(p) and getattr(p, "_post_accumulate_grad_hooks", None) for _, p in self.parameters):
            return Replay(None, "not reproduced: hooks on gradient accumulation can't be run twice")
        return None

    def backward(self) -> Culprit | None:
        """Run each backward, in the order in which they ran. The gradients that one gave are outputs from which a later one may begin."""
        runs = [[*gradients.items()] for gradients in self.call.gradients]
        if self.ranks is not None:  # each does the same, though perhaps not as often
            runs = [[pair for run in runs for pair in run if pair[0][0] == FORWARD]]
        for number, received in enumerate(runs):
            derived = {place for later in runs[number + 1 :] for place, _ in later if place[0] == number}
            culprit = self._backward(number, received, derived, is_last=number == len(runs) - 1)
            if culprit is not None:
                return culprit
        return None

    def _backward(self, number: int, received: list[tuple[Place, Tensor]], derived: Collection[Place], is_last: bool) -> Culprit | None:
        places = {place for place, _ in received}
        outputs = {id(t): (place, t) for place, t in reversed(self.outputs) if t.requires_grad and place in places}
        given: list[tuple[Tensor, Tensor]] = []
        made: list[Tensor] = []
        hooks = []

        def meet(total: Tensor, gradient: Tensor | None) -> Tensor:
            if gradient is not None:  # one of several outputs of a node may get none
                made.append(gradient)  # the model's own part; only the total includes what the loss added
            return total

        for (place, t), head in zip(outputs.values(), heads([t for _, t in outputs.values()]), strict=True):
            gradients = [gradient for at, gradient in received if at == place]
            if head:
                given += [(t, g) for g in gradients]
            else:  # others were computed from it
                total = gradients[0] if len(gradients) == 1 else torch.stack(gradients).sum(0)
                self.slots[id(total)] = f"grad {place[1]}"
                hooks.append(t.register_hook(partial(meet, total)))  # type: ignore[no-untyped-call]
        if not given:
            return None
        inputs = [*self.parameters, *self.arguments]
        with self._probed(Phase.BACKWARD):
            found = _gradients(given, [p for _, p in self.parameters], [t for _, t in self.arguments], bool(derived), not is_last)
        for hook in hooks:
            hook.remove()
        self.outputs += [
            ((number, name), g) for (name, _), g in zip(inputs, found, strict=False) if g is not None and (number, name) in derived
        ]
        if derived:
            self.arguments += [(f"grad {slot} ({number})", g) for (_, slot), g in received if g.requires_grad]
        own, handed = found[: len(self.parameters)], found[len(self.parameters) :]
        self._gave(own)
        # another model's backward, or a penalty, goes on with those that are handed
        return self._culprit([*made, *(g for g in own if g is not None)]) or self._culprit([g for g in handed if g is not None])

    def _gave(self, gradients: Sequence[Tensor | None]) -> None:
        """A backward has given the parameters these."""

    def pending(self) -> Culprit | None:
        """The culprit of the last bad value before the model raised."""
        self.rows.read()
        if not self.seeks:
            return None
        culprit, self.asked = find(self.tape, pending_states(self.tape, self.rows), self.rows)
        return culprit and at_own_line(culprit, self.names)

    def put_spared_back(self) -> None:
        """Give memory that was written in place the content that it had."""
        for storage, content in self.spared.values():
            if storage.nbytes() == content.nbytes():  # else it was freed, as what FSDP2 gathers is
                storage.copy_(content)

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        # activation checkpointing calls modules in the backward too
        with heard(), ModuleStack(self.names) as stack, OpProbe(
            self.tape, self.rows, phase=phase, module_name=stack.current, names=self.slots, boundary=run_stages.__code__, lone=self.lone,
            spared=self.spared, stop=self.stop,
        ):  # fmt: skip
            yield

    def _culprit(self, results: list[Tensor], buffers: Sequence[Tensor] = ()) -> Culprit | None:
        if not self.seeks:
            return None
        bad = [state for t in results if nonfinite(t) and (state := self.tape.read_state_of(t, self.rows)) is not None]
        saved = [t for t in buffers if nonfinite(t)]
        self.rows.read()
        culprit, self.asked = find(self.tape, bad, self.rows, saved)
        if self.ranks is not None and (culprit is None or culprit.op.partition(".")[0] in COLLECTIVES):
            # What this rank sent to the others may be bad although nothing that it kept is.
            handed = [o.state for r in self.tape.records if r.op.partition(".")[0] in COLLECTIVES for o in r.inputs if o.state is not None]
            culprit = find_culprit(self.tape, handed, self.rows) or culprit
        return culprit and at_own_line(culprit, self.names)


def _gradients(
    given: list[tuple[Tensor, Tensor]], parameters: list[Tensor], arguments: list[Tensor], creates_graph: bool, keeps_graph: bool
) -> list[Tensor | None]:
    """Gradients of the parameters, and of arguments, without running accumulation hooks (DDP's reducer, optimizers inside backward).

    Where accumulation must run, the arguments' are left out.
    """
    outputs, grads = [t for t, _ in given], [g for _, g in given]
    needs_backward = any(node.name() == _CHECKPOINT for node in graph(outputs))
    how: dict[str, Any] = {"retain_graph": keeps_graph or creates_graph, "create_graph": creates_graph}
    if not any(needs_accumulation(p) for p in parameters) and not needs_backward:
        return [*torch.autograd.grad(outputs, [*parameters, *arguments], grads, allow_unused=True, **how)]
    saved = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        torch.autograd.backward(outputs, grads, **how)
        return [p.grad for p in parameters]
    finally:
        for p, gradient in zip(parameters, saved, strict=True):
            p.grad = gradient


def needs_accumulation(parameter: Tensor) -> bool:
    """FSDP2's graphs start at its own unsharded tensors, so only a real backward brings gradients to the sharded parameters."""
    return hasattr(parameter, "placements")


def nonfinite(tensor: Tensor) -> bool:
    """Whether a tensor is not finite; for a DTensor, this rank's part, because checking the whole would need a collective."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not bool(torch.isfinite(getattr(tensor, "_local_tensor", tensor).detach()).all())


class ModuleStack:
    """Tracks the qualified name of the innermost module being called; a context manager that hooks every module call."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._stack: list[str] = []
        self._handles: list[Any] = []

    def current(self) -> str:
        return self._stack[-1] if self._stack else ""

    def __enter__(self) -> ModuleStack:
        def push(module: nn.Module, args: Any) -> None:
            self._stack.append(self._names.get(module, self.current()))

        def pop(module: nn.Module, args: Any, output: Any) -> None:
            self._stack.pop()

        for module in filter(can_be_hooked, self._names):
            self._handles.append(module.register_forward_pre_hook(push, prepend=True))
            self._handles.append(module.register_forward_hook(pop, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._stack.clear()


def slot_names(call: Call, state: Iterable[tuple[str, str, Tensor]]) -> dict[int, str]:
    """Names for the op probe, by id, of the tensors that existed before the call."""
    slots = {id(t): slot for slot, t in call.known}
    for module, slot, tensor in state:
        slots[id(tensor)] = f"{module}.{slot}" if module else slot
        if isinstance(shard := getattr(tensor, "_local_tensor", None), Tensor):  # FSDP2 gathers from a view of this storage
            slots[shard.untyped_storage()._cdata] = slots[id(tensor)]
    for gradients in call.gradients:
        for (_, slot), gradient in gradients.items():
            slots[id(gradient)] = f"grad {slot}"
    return slots


def heads(outputs: Sequence[Tensor]) -> list[bool]:
    """For each output, whether no other output is computed from it, as from hidden states or from logits returned with a loss.

    The gradient of a head comes from outside the model. The gradient of any other output also includes the model's own part.

    *Cost:* a walk over the autograd graph; about 1 µs per node.
    """
    below = {following for node in graph(outputs) for following, _ in node.next_functions}
    return [t.grad_fn is None or t.grad_fn not in below for t in outputs]
