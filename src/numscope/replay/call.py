"""The same step again, op by op, from what it began with: by one rank alone where no rank needs another, else by all of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from numscope.distributed.agree import Ranks, spread
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import walk
from numscope.probe.module import can_be_hooked
from numscope.probe.naming import named_state
from numscope.records.finding import Culprit
from numscope.records.site import Phase
from numscope.replay.capture import BufferCopies, Call, RandomState, attributes_restored
from numscope.replay.culprit import find_culprit
from numscope.replay.heads import heads
from numscope.replay.op import COLLECTIVES, Communicates, OpProbe, OpTape
from numscope.replay.pending import pending_states
from numscope.replay.reasons.case import widen
from numscope.summary.ledger import Ledger

REPRODUCED = "reproduced"
FINITE = (
    "not reproduced: forward and backward were finite the second time; "
    "if only the weights' gradients are bad, look at what changes them after backward (clipping, unscaling)"
)
COMMUNICATES = "not replayed: the model communicates between ranks, and the other ranks were not at the same place"
_ELSEWHERE = "not reproduced: another rank could not do its part"


@dataclass(slots=True)
class Replay:
    """What a replay showed: a culprit, or the reason why there is none."""

    culprit: Culprit | None
    status: str


def replay_call(call: Call, names: Mapping[nn.Module, str], buffers: BufferCopies, *, backward: bool, ranks: Ranks | None = None) -> Replay:
    """Do one outermost call again under the op probe, and its backward too where asked, and find the culprit.

    Nothing of the run is changed: random states, buffers, gradients and training flags are as before afterwards.

    Args:
        call: what was captured when it began.
        names: the model's modules and their names.
        buffers: the keeper of the model's buffers.
        backward: also from the gradients that its outputs had received.
        ranks: those that do the same call again at the same time. Without them no collective is run: the replay ends as COMMUNICATES.

    *Cost:* one step under a dispatch mode, some 50 µs an operation.
    """
    stale = any(tensor._version != version for tensor, version in call.versions)
    if _some(stale, ranks):
        return Replay(None, "not reproduced: an argument of the model was changed in place after the call began" if stale else _ELSEWHERE)
    lone = ranks is None and spread()
    if lone and any(needs_accumulation(p) for module in names for p in module._parameters.values() if p is not None):
        return Replay(None, COMMUNICATES)  # FSDP2's own state must not be left half way
    before = RandomState.capture()
    try:
        with attributes_restored(names), buffers.restored(call.buffers), optimizer_probe.paused(), eager():
            for module, training in zip(names, call.training, strict=False):  # modules put in since come last
                module.training = training
            call.random.restore()
            return _placed(_run(_Stages(call, names, lone, ranks), backward), call, names)
    finally:
        if ranks is not None:
            for module in names:
                if (reshard := getattr(module, "reshard", None)) is not None:
                    reshard()  # FSDP2 keeps what a forward gathered until its backward; the optimizer's step would not reach it
        before.restore()


def _placed(replay: Replay, call: Call, names: Mapping[nn.Module, str]) -> Replay:
    """What the op probe can't know: the script's line that called the model, and which module is around the one at fault."""
    culprit = replay.culprit
    if culprit is None:
        return replay
    advice = culprit.advice
    if any(name == culprit.module and type(m).__module__.startswith("torch.nn.") for m, name in names.items()):
        advice = widen(advice, culprit.module, _around(culprit.module, names))
    stack = (*call.caller.resolve()[-1:], *culprit.stack)
    if not culprit.line and stack:  # all of the model is torch's own code: the line that called it is the innermost of the user's
        file, line, _, code = stack[-1]
        culprit = replace(culprit, file=file, line=line, code=code)
    return replace(replay, culprit=replace(culprit, advice=advice, stack=stack))


def _around(name: str, names: Mapping[nn.Module, str]) -> str:
    """The module whose forward calls the one named: lists and sequences of modules are passed over."""
    modules = {n: m for m, n in names.items()}
    while name:
        name = name.rpartition(".")[0]
        if not isinstance(modules.get(name), nn.ModuleList | nn.ModuleDict | nn.Sequential):
            break
    return name


def _some(flag: bool, ranks: Ranks | None) -> bool:
    return flag if ranks is None else ranks.any(flag)[0]


def _run(stages: _Stages, backward: bool) -> Replay:
    """Stage after stage. Ranks that replay together leave together: one that went on alone would wait for the others for ever."""
    replay = _attempt(stages.forward, stages.pending)
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
    if not _some(backward, stages.ranks):
        return Replay(None, "not reproduced: the forward was finite the second time")
    replay = stages.unready()
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
    return _attempt(stages.backward, stages.pending) or Replay(None, FINITE)


def _attempt(stage: Callable[[], Culprit | None], pending: Callable[[], Culprit | None]) -> Replay | None:
    """A culprit, or that there can be none; None to go on. A model that raises may have died of what is looked for."""
    try:
        culprit = stage()
    except Communicates:
        return Replay(None, COMMUNICATES)
    except Exception as error:
        culprit = pending()
        if culprit is None:
            return Replay(None, f"not reproduced: the replay raised {type(error).__name__}: {error}")
    return None if culprit is None else Replay(culprit, REPRODUCED)


class _Stages:
    """A call's forward and backward on one tape."""

    def __init__(self, call: Call, names: Mapping[nn.Module, str], lone: bool, ranks: Ranks | None) -> None:
        self.call, self.names, self.lone, self.ranks = call, names, lone, ranks
        self.tape, self.rows = OpTape(), Ledger()
        self.slots = slot_names(call, names)
        self.outputs: list[tuple[str, Tensor]] = []
        self.parameters = [t for _, _, t in named_state(dict(names)) if t.requires_grad and t.is_leaf]
        self.given: list[tuple[Tensor, Tensor]] = []
        self.met: list[tuple[Tensor, Tensor]] = []  # outputs that others were computed from, and all that they received

    def forward(self) -> Culprit | None:
        call = self.call
        with torch.inference_mode(call.inference), torch.set_grad_enabled(call.grad_enabled), call.autocast.restored():
            with self._probed(Phase.FORWARD):
                output = call.module(*call.args, **call.kwargs)
        self.outputs = walk.tensors(output, "output")
        return self._culprit([t for _, t in self.outputs])

    def unready(self) -> Replay | None:
        """Why there is no backward; None where there is one."""
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
            if gradient is not None:  # of several outputs of one node, one may get none
                made.append(gradient)  # the model's own share; what the loss added is known only in the total
            return total

        for tensor, total in self.met:
            tensor.register_hook(partial(meet, total))  # type: ignore[no-untyped-call]
        with self._probed(Phase.BACKWARD):
            gradients = _gradients(self.given, self.parameters)
        return self._culprit([*made, *(g for g in gradients if g is not None)])

    def pending(self) -> Culprit | None:
        """Of what was at work when the model raised."""
        self.rows.read()
        return find_culprit(self.tape, pending_states(self.tape, self.rows), self.rows)

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        # modules run in a backward too, where activation checkpointing computes a forward anew
        with ModuleStack(self.names) as stack, OpProbe(
            self.tape, self.rows, phase=phase, module_name=stack.current, names=self.slots, boundary=_run.__code__, lone=self.lone
        ):  # fmt: skip
            yield

    def _culprit(self, results: list[Tensor]) -> Culprit | None:
        self.rows.read()
        bad = [t for t in results if nonfinite(t)]
        culprit = find_culprit(self.tape, bad, self.rows) if bad else None
        if self.ranks is not None and (culprit is None or culprit.op.partition(".")[0] in COLLECTIVES):
            # What this rank handed to the others went bad on its way there, though nothing that stayed here did.
            handed = [o.state for r in self.tape.records if r.op.partition(".")[0] in COLLECTIVES for o in r.inputs if o.state is not None]
            culprit = find_culprit(self.tape, handed, self.rows) or culprit
        return culprit


def _gradients(given: list[tuple[Tensor, Tensor]], parameters: list[Tensor]) -> list[Tensor | None]:
    """Gradients of the parameters, without running what hangs on their accumulation (DDP's reducer, optimizers inside backward)."""
    outputs, grads = [t for t, _ in given], [g for _, g in given]
    if not any(needs_accumulation(p) for p in parameters):
        return list(torch.autograd.grad(outputs, parameters, grads, allow_unused=True))
    saved = [p.grad for p in parameters]
    try:
        for p in parameters:
            p.grad = None
        torch.autograd.backward(outputs, grads)
        return [p.grad for p in parameters]
    finally:
        for p, gradient in zip(parameters, saved, strict=True):
            p.grad = gradient


def needs_accumulation(parameter: Tensor) -> bool:
    """FSDP2's graphs begin at unsharded tensors of its own; only a real backward brings the gradients to the sharded parameters."""
    return hasattr(parameter, "placements")


def nonfinite(tensor: Tensor) -> bool:
    """Of a DTensor, whether this rank's part is: to look at the whole would be a collective."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not bool(torch.isfinite(getattr(tensor, "_local_tensor", tensor).detach()).all())


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Compiled models run their Python again: only so is there an op and a line to name."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class ModuleStack:
    """The qualified name of the innermost module at work; a context manager that hooks every module call."""

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
    """What the op probe calls the tensors that were there before the call, by id."""
    slots = {id(t): slot for slot, t in (*walk.tensors(call.args, "input"), *walk.tensors(call.kwargs, "input"))}
    for module, slot, tensor in named_state(dict(names)):
        slots[id(tensor)] = f"{module}.{slot}" if module else slot
        if isinstance(shard := getattr(tensor, "_local_tensor", None), Tensor):  # FSDP2 gathers from a view of this storage
            slots[shard.untyped_storage()._cdata] = slots[id(tensor)]
    for slot, grads in call.gradients.items():
        for gradient in grads:
            slots[id(gradient)] = f"grad {slot}"
    return slots
