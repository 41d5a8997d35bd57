"""Replays a call operation by operation: on one rank if it needs no other rank, otherwise on all of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from numscope.distributed.agree import Ranks, has_group, spread
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.calls import heard
from numscope.probe.hook import can_be_hooked
from numscope.probe.naming import named_state
from numscope.probe.nodes import graph
from numscope.records.faults import ours
from numscope.records.finding import Culprit
from numscope.records.places import is_installed
from numscope.records.site import Phase
from numscope.replay.capture import BufferCopies, Call, RandomState, attributes_restored, put_back
from numscope.replay.culprit import at_own_line, find_culprit, find_record, pending_states
from numscope.replay.fork import in_child
from numscope.replay.graph import HINT, backend_of, differing
from numscope.replay.op import COLLECTIVES, Communicates, OpProbe
from numscope.replay.tape import OpRecord, OpTape
from numscope.summary.ledger import Ledger

REPRODUCED = "reproduced"
FINITE = (
    "not reproduced: forward and backward were finite the second time; "
    "if only the weights' gradients are bad, look at what changes them after backward (clipping, unscaling)"
)
FORWARD_FINITE = "not reproduced: the forward was finite the second time"
NOT_WANTED = "not replayed: the watch has replay=False"
COMMUNICATES = "not replayed: the model communicates between ranks, and the other ranks were not at the same place"
NO_FORK = (
    "not replayed: nothing of it reached training, and no process of its own can do the call again (a device, other threads, other ranks)"
)
_ELSEWHERE = "not reproduced: another rank could not do its part"


@dataclass(slots=True)
class Replay:
    """The result of a replay: a culprit, or the reason why there is none."""

    culprit: Culprit | None
    status: str


def replay_call(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    *,
    backward: bool,
    ranks: Ranks | None = None,
    gave_bad: bool = False,
    forks: bool = False,
    saved: Collection[str] = (),
) -> Replay:
    """Replay one outermost call under the op probe, with its backward if requested, and find the culprit.

    The run is not changed: the call runs in a forked process. Where there can be none (a device, other threads, a call that all ranks do
    together), random states, buffers, gradients, attributes and training flags are restored afterwards.

    Args:
        call: captured when it began.
        names: the model's modules and their names.
        buffers: holds copies of the model's buffers.
        backward: also replay the backward, from the gradients that the outputs had received.
        ranks: that replay the same call at the same time. Without them no collective runs, and the replay ends with COMMUNICATES.
        gave_bad: the call returned a nan or an infinity.
        forks: in a forked process or not at all.
        saved: names of buffers that it may have made bad.

    *Cost:* one step under a dispatch mode, about 50 µs per operation; a fork.
    """
    if ranks is None:
        done = in_child(lambda: _replay(call, names, buffers, backward, None, gave_bad, saved, lone=has_group()), not_reproduced)
        if done is not None and (done.status != COMMUNICATES or spread()):
            return done  # else it communicates with itself, for which a fork lacks the threads
    if forks:
        return Replay(None, NO_FORK)
    return _replay(call, names, buffers, backward, ranks, gave_bad, saved, lone=ranks is None and spread())


def parameters_of(names: Mapping[nn.Module, str]) -> Iterator[Tensor]:
    """The parameters of modules, as often as they have them."""
    return (p for module in names for p in module._parameters.values() if p is not None)


def not_reproduced(why: str) -> Replay:
    """The result of a replay whose process has failed."""
    return Replay(None, f"not reproduced: {why}")


def _replay(
    call: Call,
    names: Mapping[nn.Module, str],
    buffers: BufferCopies,
    backward: bool,
    ranks: Ranks | None,
    gave_bad: bool,
    saved: Collection[str],
    *,
    lone: bool,
) -> Replay:
    stale = any(tensor._version != version for tensor, version in call.versions)
    if _some(stale, ranks):
        return Replay(None, "not reproduced: an argument of the model was changed in place after the call began" if stale else _ELSEWHERE)
    if lone and any(map(needs_accumulation, parameters_of(names))):
        return Replay(None, COMMUNICATES)  # FSDP2's state must not be left incomplete
    spared: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}
    try:
        with as_it_began(call, names, buffers), eager():
            done = _placed(run_stages(Stages(call, names, lone, ranks, spared, saved=saved), backward), call)
        put_spared_back(spared)
        return done if ranks is not None else _compared(call, names, buffers, done, gave_bad)
    finally:
        put_spared_back(spared)
        if ranks is not None:
            for module in names:
                if (reshard := getattr(module, "reshard", None)) is not None:
                    reshard()  # FSDP2 keeps the gathered weights until backward, and the optimizer does not update them


@contextlib.contextmanager
def as_it_began(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies) -> Iterator[None]:
    """Everything is as it was when a call began; afterwards it is again as it is now."""
    before = RandomState.capture()
    try:
        with attributes_restored({*names, *call.around}), buffers.restored(call.buffers), optimizer_probe.paused():
            for module, forward in call.forwards.items():
                vars(module)["forward"] = forward
            for module, weights in call.weights.items():
                put_back(module._parameters, weights)
            for module, training in zip(names, call.training, strict=False):  # modules added since then come last
                module.training = training
            call.random.restore()
            yield
    finally:
        before.restore()


def put_spared_back(spared: Mapping[int, tuple[UntypedStorage, UntypedStorage]]) -> None:
    """Give memory that a replay has written in place the content that it had."""
    for storage, content in spared.values():
        if storage.nbytes() == content.nbytes():  # else it was freed, as what FSDP2 gathers is
            storage.copy_(content)


def _compared(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies, done: Replay, gave_bad: bool) -> Replay:
    """Of a compiled call that eager has done without a fault: look for it in the graphs. What the call writes, the caller restores."""
    found = done
    if gave_bad and done.culprit is not None and done.culprit.phase is Phase.BACKWARD:
        done = Replay(None, FORWARD_FINITE)  # it went on from what this forward does not give
    compiler = backend_of(call.module) if done.status in (FINITE, FORWARD_FINITE) else None
    if compiler is None:
        return found
    with as_it_began(call, names, buffers), _conditions(call), _untrained(names):
        try:
            culprit = differing(lambda: call.module(*call.args, **call.kwargs), compiler, names)
        except ours() as error:
            return replace(done, status=f"{done.status}; in the graph not looked for: {type(error).__name__}: {error}")
    return replace(done, status=done.status + HINT) if culprit is None else Replay(culprit, REPRODUCED)


@contextlib.contextmanager
def _conditions(call: Call) -> Iterator[None]:
    with heard(), torch.inference_mode(call.inference), torch.set_grad_enabled(call.grad_enabled), call.autocast.restored():
        yield


@contextlib.contextmanager
def _untrained(names: Mapping[nn.Module, str]) -> Iterator[None]:
    """A call that itself trains the model, by Lightning's manual optimization, is done again up to there."""
    gradients = [(p, p.grad) for module in names for p in module._parameters.values() if p is not None and p.is_leaf]
    try:
        with optimizer_probe.paused(untrained=True):
            yield
    finally:
        for parameter, gradient in gradients:  # zero_grad has run
            if parameter.grad is not gradient:
                parameter.grad = gradient


def _placed(replay: Replay, call: Call) -> Replay:
    """Add what the op probe can't know: the script's line that called the model."""
    culprit = replay.culprit
    if culprit is None:
        return replay
    callers = call.caller.resolve()
    own = [number for number, caller in enumerate(callers) if not is_installed(caller[0])]
    stack = (*callers[own[-1] if own else -1 :], *culprit.stack)  # from the script's own line on; a library's loop may lie between
    if not culprit.line and stack:  # the whole model is torch's own code, so the innermost user line is the one that called it
        file, line, _, code = stack[-1]
        culprit = replace(culprit, file=file, line=line, code=code)
    return replace(replay, culprit=replace(culprit, stack=stack))


def _some(flag: bool, ranks: Ranks | None) -> bool:
    return flag if ranks is None else ranks.any("a replay", flag)[0]


def run_stages(stages: Stages, backward: bool) -> Replay:
    """Run the stages. Ranks that replay together also stop together; a rank that continued alone would wait forever."""
    replay = _attempt(stages.forward, stages.pending)
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
    if not _some(backward, stages.ranks):
        return Replay(None, FORWARD_FINITE)
    replay = stages.unready()
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
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
            return Replay(None, f"not reproduced: the replay raised {type(error).__name__}: {error}")
    return None if culprit is None else Replay(culprit, REPRODUCED)


class Stages:
    """The forward and backward of a call, recorded on one tape."""

    def __init__(
        self,
        call: Call,
        names: Mapping[nn.Module, str],
        lone: bool,
        ranks: Ranks | None,
        spared: dict[int, tuple[UntypedStorage, UntypedStorage]],
        stop: tuple[int, Callable[[FrameType], None]] | None = None,
        saved: Collection[str] = (),
    ) -> None:
        self.stop, self.saved = stop, saved
        self.asked: OpRecord | None = None  # what the user's code ran that led to the culprit
        self.call, self.names, self.lone, self.ranks = call, names, lone, ranks
        uncalled = {name for module, name in names.items() if isinstance(module, nn.ModuleList | nn.ModuleDict)}
        self.tape, self.rows = OpTape(uncalled=uncalled), Ledger()
        self.spared = spared
        self.slots = slot_names(call, names)
        self.outputs: list[tuple[str, Tensor]] = []
        self.parameters = [t for _, _, t in named_state(names) if t.requires_grad and t.is_leaf]
        self.given: list[tuple[Tensor, Tensor]] = []
        self.met: list[tuple[Tensor, Tensor]] = []  # outputs that others were computed from, each with its total gradient

    def forward(self) -> Culprit | None:
        call = self.call
        with _conditions(call), _untrained(self.names), self._probed(Phase.FORWARD):
            output = call.module(*call.args, **call.kwargs)
        self.outputs = walk.tensors(output, "output")
        buffers = [
            buffer
            for module, name in (self.names.items() if self.saved else ())
            for slot, buffer in module._buffers.items()
            if buffer is not None and (f"{name}.{slot}" if name else slot) in self.saved
        ]
        return self._culprit([t for _, t in self.outputs], buffers)

    def unready(self) -> Replay | None:
        """The reason why the backward can't be replayed; None if it can."""
        received = {id(t): (slot, t) for slot, t in reversed(self.outputs) if t.requires_grad and self.call.gradients.get(slot)}
        for (slot, t), head in zip(received.values(), heads([t for _, t in received.values()]), strict=True):
            gradients = self.call.gradients[slot]
            if head:
                self.given += [(t, g) for g in gradients]
            else:
                total = gradients[0] if len(gradients) == 1 else torch.stack(gradients).sum(0)
                self.slots[id(total)] = f"grad {slot}"
                self.met.append((t, total))
        if not self.given:
            if self.call.gradients_dropped:
                return Replay(None, "not reproduced: the gradients of the model's outputs were too large to keep")
            return Replay(None, "not reproduced: no gradient reached the model's outputs")
        if any(needs_accumulation(p) and getattr(p, "_post_accumulate_grad_hooks", None) for p in self.parameters):
            return Replay(None, "not reproduced: hooks on gradient accumulation can't be run twice")
        return None

    def backward(self) -> Culprit | None:
        made: list[Tensor] = []

        def meet(total: Tensor, gradient: Tensor | None) -> Tensor:
            if gradient is not None:  # one of several outputs of a node may get none
                made.append(gradient)  # the model's own part; only the total includes what the loss added
            return total

        for tensor, total in self.met:
            tensor.register_hook(partial(meet, total))  # type: ignore[no-untyped-call]
        arguments = [t for _, t in self.call.given if t.requires_grad]
        with self._probed(Phase.BACKWARD):
            gradients, handed = _gradients(self.given, self.parameters, arguments)
        return self._culprit([*made, *gradients]) or self._culprit(handed)  # another model's backward, or a penalty, goes on with those

    def pending(self) -> Culprit | None:
        """The culprit of the last bad value before the model raised."""
        self.rows.read()
        states = pending_states(self.tape, self.rows)
        self.asked = find_record(self.tape, states, self.rows)
        return self._at_own_line(find_culprit(self.tape, states, self.rows))

    def _at_own_line(self, culprit: Culprit | None) -> Culprit | None:
        return None if culprit is None else at_own_line(culprit, self.names)

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        # activation checkpointing calls modules in the backward too
        with heard(), ModuleStack(self.names) as stack, OpProbe(
            self.tape, self.rows, phase=phase, module_name=stack.current, names=self.slots, boundary=run_stages.__code__, lone=self.lone,
            spared=self.spared, stop=self.stop,
        ):  # fmt: skip
            yield

    def _culprit(self, results: list[Tensor], buffers: Sequence[Tensor] = ()) -> Culprit | None:
        bad = [state for t in results if nonfinite(t) and (state := self.tape.read_state_of(t, self.rows)) is not None]
        saved = [t for t in buffers if nonfinite(t)]
        self.rows.read()
        culprit = find_culprit(self.tape, bad, self.rows, saved) if bad or saved else None
        self.asked = find_record(self.tape, bad, self.rows) if culprit is not None else None
        if self.ranks is not None and (culprit is None or culprit.op.partition(".")[0] in COLLECTIVES):
            # What this rank sent to the others may be bad although nothing that it kept is.
            handed = [o.state for r in self.tape.records if r.op.partition(".")[0] in COLLECTIVES for o in r.inputs if o.state is not None]
            culprit = find_culprit(self.tape, handed, self.rows) or culprit
        return self._at_own_line(culprit)


def _gradients(given: list[tuple[Tensor, Tensor]], parameters: list[Tensor], arguments: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of the parameters, and of arguments, without running accumulation hooks (DDP's reducer, optimizers inside backward).

    Where accumulation must run, the arguments' are left out.
    """
    outputs, grads = [t for t, _ in given], [g for _, g in given]
    needs_backward = any(node.name() == "CheckpointFunctionBackward" for node in graph(outputs))  # a checkpoint with use_reentrant=True
    if not any(needs_accumulation(p) for p in parameters) and not needs_backward:
        made = torch.autograd.grad(outputs, [*parameters, *arguments], grads, allow_unused=True)
        of_parameters, of_arguments = made[: len(parameters)], made[len(parameters) :]
        return [g for g in of_parameters if g is not None], [g for g in of_arguments if g is not None]
    saved = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        torch.autograd.backward(outputs, grads)
        return [p.grad for p in parameters if p.grad is not None], []
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


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Run compiled models as Python, because only then are there an operation and a line to name."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


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


def slot_names(call: Call, names: Mapping[nn.Module, str]) -> dict[int, str]:
    """Names for the op probe, by id, of the tensors that existed before the call."""
    slots = {id(t): slot for slot, t in call.given}
    for module, slot, tensor in named_state(names):
        slots[id(tensor)] = f"{module}.{slot}" if module else slot
        if isinstance(shard := getattr(tensor, "_local_tensor", None), Tensor):  # FSDP2 gathers from a view of this storage
            slots[shard.untyped_storage()._cdata] = slots[id(tensor)]
    for slot, grads in call.gradients.items():
        for gradient in grads:
            slots[id(gradient)] = f"grad {slot}"
    return slots


def heads(outputs: Sequence[Tensor]) -> list[bool]:
    """For each output, whether no other output is computed from it, as from hidden states or from logits returned with a loss.

    The gradient of a head comes from outside the model. The gradient of any other output also includes the model's own part.

    *Cost:* a walk over the autograd graph; about 1 µs per node.
    """
    below = {following for node in graph(outputs) for following, _ in node.next_functions}
    return [t.grad_fn is None or t.grad_fn not in below for t in outputs]
