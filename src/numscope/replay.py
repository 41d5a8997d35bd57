"""The same step again, op by op, from what it began with.

Only references and small states are kept while training runs: the outermost call's arguments, random states, autocast state, small or changing
buffers, and the gradients that the call's outputs received. They are dropped when the step is over.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from numscope.culprit import find_culprit
from numscope.distributed.agree import Ranks, spread
from numscope.ledger import Ledger
from numscope.probe import optimizer as optimizer_probe
from numscope.probe import stack as stacks
from numscope.probe import walk
from numscope.probe.heads import heads
from numscope.probe.module import can_be_hooked
from numscope.probe.naming import named_state
from numscope.probe.op import COLLECTIVES, Communicates, OpProbe, OpTape
from numscope.probe.stack import Stack
from numscope.reasons import widen
from numscope.record import Culprit
from numscope.site import Phase

REPRODUCED = "reproduced"
FINITE = (
    "not reproduced: forward and backward were finite the second time; "
    "if only the weights' gradients are bad, look at what changes them after backward (clipping, unscaling)"
)
COMMUNICATES = "not replayed: the model communicates between ranks, and the other ranks were not at the same place"
_ELSEWHERE = "not reproduced: another rank could not do its part"
SMALL_BUFFER_BYTES = 1 << 16  # copied at each call's start; larger ones from the second time they are seen to change


class BufferCopies:
    """Copies of the buffers that forward calls change, as they were when a call began."""

    def __init__(self, names: Mapping[nn.Module, str]) -> None:
        self._names = names
        self._num_modules = 0  # that have been looked at
        self._places: list[tuple[nn.Module, str]] = []
        self._stamps: dict[int, tuple[int, int]] = {}  # by place: which tensor, its version
        self._volatile: set[int] = set()

    def capture(self) -> dict[int, Tensor]:
        """Copies by place. *Cost:* a copy of each small or changing buffer."""
        if self._num_modules != len(self._names):  # new ones come at the end
            self._places += [(m, slot) for m in list(self._names)[self._num_modules :] for slot, _ in m._buffers.items()]
            self._num_modules = len(self._names)
        copies: dict[int, Tensor] = {}
        for place, (module, slot) in enumerate(self._places):
            buffer = module._buffers[slot] if slot in module._buffers else None
            if buffer is None or is_lazy(buffer) or buffer.device.type == "meta":
                continue
            stamp = id(buffer), -1 if buffer.is_inference() else buffer._version
            if self._stamps.setdefault(place, stamp) != stamp:
                self._volatile.add(place)
                self._stamps[place] = stamp
            if place in self._volatile or buffer.numel() * buffer.element_size() <= SMALL_BUFFER_BYTES:
                copies[place] = buffer.detach().clone()
        return copies

    @contextlib.contextmanager
    def restored(self, copies: Mapping[int, Tensor]) -> Iterator[None]:
        """Stand-ins with the captured values in the buffers' places; the buffers themselves are not written to."""
        originals = [(m, dict(m._buffers.items())) for m in self._names]
        stand_ins: dict[int, Tensor] = {}  # by the buffer's id: one for all places of a shared buffer
        try:
            for place, (module, slot) in enumerate(self._places):
                buffer = module._buffers[slot] if slot in module._buffers else None
                if buffer is None or is_lazy(buffer) or buffer.device.type == "meta":
                    continue
                if id(buffer) not in stand_ins:
                    stand_ins[id(buffer)] = copies.get(place, buffer).detach().clone()
                module._buffers[slot] = stand_ins[id(buffer)]
            yield
        finally:
            for module, buffers in originals:
                _put_back(module._buffers, buffers)


@contextlib.contextmanager
def attributes_restored(names: Mapping[nn.Module, str]) -> Iterator[None]:
    """What modules note in attributes of their own (counters, caches, the last auxiliary loss) is afterwards as before, by reference."""
    before = [(m.__dict__, dict(m.__dict__)) for m in names]
    try:
        yield
    finally:
        for attributes, values in before:
            _put_back(attributes, values)


def _put_back(now: Any, before: Mapping[str, Any]) -> None:
    """Make a dict again what it was; also a scripted module's likeness of one, which has ``items`` and no iterator."""
    for key in [key for key, _ in now.items() if key not in before]:
        del now[key]
    for key, value in before.items():
        if key not in now or now[key] is not value:
            now[key] = value


@dataclass(slots=True)
class RandomState:
    """Every generator that a forward may draw from."""

    torch_cpu: Tensor
    python: Any
    numpy: Any
    devices: dict[int, Tensor]

    @classmethod
    def capture(cls) -> RandomState:
        numpy = sys.modules.get("numpy")
        devices: dict[int, Tensor] = {}
        if torch.cuda.is_available() and torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            devices[torch.cuda.current_device()] = torch.cuda.get_rng_state()
        return cls(torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy is not None else None, devices)

    def restore(self) -> None:
        torch.set_rng_state(self.torch_cpu)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        for device, state in self.devices.items():
            torch.cuda.set_rng_state(state, device)


@dataclass(slots=True)
class AutocastState:
    """Autocast as it stood, for the CPU and the accelerator."""

    types: list[tuple[str, bool, torch.dtype]]
    cache: bool

    @classmethod
    def capture(cls) -> AutocastState:
        kinds = ["cpu"]
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if accelerator is not None:
            kinds.append(accelerator.type)
        return cls([(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds], torch.is_autocast_cache_enabled())

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self.types:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache))
            yield


@dataclass(eq=False)  # no slots: it is referred to weakly
class Call:
    """One outermost forward call, with what it takes to do it again."""

    module: nn.Module
    index: int
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[tuple[Tensor, int]]
    random: RandomState
    autocast: AutocastState
    buffers: dict[int, Tensor]
    training: list[bool]
    grad_enabled: bool
    inference: bool
    caller: Stack  # of the script's frames
    outputs: list[tuple[str, Any]] = field(default_factory=list)  # slot, weak reference
    gradients: dict[str, list[Tensor]] = field(default_factory=dict)  # by output slot, one a backward pass
    gradients_dropped: bool = False
    had_backward: bool = False
    thread: int = field(default_factory=get_ident)

    @classmethod
    def capture(
        cls,
        module: nn.Module,
        index: int,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        buffers: BufferCopies,
        modules: Sequence[nn.Module],
    ) -> Call:
        given = [t for _, t in (*walk.tensors(args, "input"), *walk.tensors(dict(kwargs), "input"))]
        return cls(
            module=module,
            index=index,
            args=args,
            kwargs=dict(kwargs),
            versions=[(t, t._version) for t in given if not t.is_inference()],
            random=RandomState.capture(),
            autocast=AutocastState.capture(),
            buffers=buffers.capture(),
            training=[m.training for m in modules],
            grad_enabled=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            caller=stacks.capture(sys._getframe(1)),
        )

    def keep(self, slot: str, gradient: Tensor, limit: int) -> None:
        """Keep a gradient that an output received, if all that is kept stays within so many bytes."""
        if self.nbytes + gradient.numel() * gradient.element_size() > limit:
            self.gradients_dropped = True
        else:
            self.gradients.setdefault(slot, []).append(gradient.detach())

    @property
    def nbytes(self) -> int:
        """Bytes of tensors kept alive for a replay."""
        kept = [t for t, _ in self.versions] + [g for grads in self.gradients.values() for g in grads]
        return sum(t.numel() * t.element_size() for t in kept)


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
        with attributes_restored(names), buffers.restored(call.buffers), optimizer_probe.paused(), _eager():
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
    replay = _attempt(stages.forward)
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
    if not _some(backward, stages.ranks):
        return Replay(None, "not reproduced: the forward was finite the second time")
    replay = stages.unready()
    if _some(replay is not None, stages.ranks):
        return replay or Replay(None, _ELSEWHERE)
    return _attempt(stages.backward) or Replay(None, FINITE)


def _attempt(stage: Callable[[], Culprit | None]) -> Replay | None:
    """A culprit, or that there can be none; None to go on."""
    try:
        culprit = stage()
    except Communicates:
        return Replay(None, COMMUNICATES)
    except Exception as error:  # whatever the model raises the second time is news, not a crash
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

        def meet(total: Tensor, gradient: Tensor) -> Tensor:
            made.append(gradient)  # the model's own share; what the loss added is known only in the total
            return total

        for tensor, total in self.met:
            tensor.register_hook(partial(meet, total))  # type: ignore[no-untyped-call]
        with self._probed(Phase.BACKWARD):
            gradients = _gradients(self.given, self.parameters)
        return self._culprit([*made, *(g for g in gradients if g is not None)])

    @contextlib.contextmanager
    def _probed(self, phase: Phase) -> Iterator[None]:
        # modules run in a backward too, where activation checkpointing computes a forward anew
        with ModuleStack(self.names) as stack, OpProbe(
            self.tape, self.rows, phase=phase, module_name=stack.current, names=self.slots, boundary=_run.__code__, lone=self.lone
        ):  # fmt: skip
            yield

    def _culprit(self, results: list[Tensor]) -> Culprit | None:
        self.rows.read()
        bad = [t for t in results if _nonfinite(t)]
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


def _nonfinite(tensor: Tensor) -> bool:
    """Of a DTensor, whether this rank's part is: to look at the whole would be a collective."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not bool(torch.isfinite(getattr(tensor, "_local_tensor", tensor).detach()).all())


@contextlib.contextmanager
def _eager() -> Iterator[None]:
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
    for slot, grads in call.gradients.items():
        for gradient in grads:
            slots[id(gradient)] = f"grad {slot}"
    return slots


def replay_optimizer(optimizer: Optimizer, names: Mapping[int, str]) -> Replay:
    """Do an optimizer's step again under the op probe, on copies, from the state that it left behind.

    The weights from before the step are gone, so their non-finite elements are taken as zero; an update that is bad by its own state and gradients
    (a zero denominator, an overflowed square, a non-finite rate) is bad again. Weights, state and gradients are put back exactly.

    Args:
        optimizer: its parameters still have the gradients of the bad step.
        names: names of parameters by id.

    *Cost:* a copy of weights and state, for the time of the replay.
    """
    params = [p for group in optimizer.param_groups for p in group["params"]]
    kept = [(p, p.detach().clone(), None if p.grad is None else p.grad.detach().clone()) for p in params]
    state = {p: dict(s) if isinstance(s, dict) else s for p, s in optimizer.state.items()}
    kept_state = [(t, t.detach().clone()) for s in state.values() for _, t in walk.tensors(s, "state")]
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    random_state = RandomState.capture()
    tape, rows = OpTape(), Ledger()
    status = "not reproduced: the optimizer's step was finite the second time"
    culprit: Culprit | None = None
    try:
        with torch.no_grad(), optimizer_probe.paused(), _eager():
            for p in params:
                _make_finite(p)
            for s in optimizer.state.values():
                _make_finite(s)
            with OpProbe(tape, rows, phase=Phase.OPTIMIZER, names=dict(names)):
                optimizer.step()
            rows.read()
            bad = [p.detach() for p in params if _nonfinite(p)]
            bad += [t for s in optimizer.state.values() for _, t in walk.tensors(s, "state") if _nonfinite(t)]
            culprit = find_culprit(tape, bad, rows) if bad else None
            if culprit is not None:
                status = REPRODUCED
    except Exception as error:
        status = f"not reproduced: the optimizer's second step raised {type(error).__name__}: {error}"
    finally:
        with torch.no_grad():
            for p, value, gradient in kept:
                p.detach().copy_(value)
                if gradient is not None and p.grad is not None:
                    p.grad.copy_(gradient)
            for tensor, value in kept_state:
                tensor.detach().copy_(value)
        optimizer.state.clear()
        optimizer.state.update(state)
        for group, values in zip(optimizer.param_groups, groups, strict=True):
            group.update(values)
        random_state.restore()
    return Replay(culprit, status)


def _make_finite(value: Any) -> None:
    for _, tensor in walk.tensors(value, "state"):
        if tensor.is_floating_point():
            torch.nan_to_num_(getattr(tensor, "_local_tensor", tensor).detach(), nan=0.0, posinf=0.0, neginf=0.0)
