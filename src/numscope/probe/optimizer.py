"""The optimizer probe: an optimizer's step before and after weights are touched, GradScaler's skips, what backward is called on, and
calls of the loop's own.

All of it is process-wide in torch, so it is installed while any listener is there and taken away with the last one.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from numscope.probe import optimizers
from numscope.probe.calls import forget_kept, guard, in_backward, is_captured, is_traced
from numscope.probe.dynamo import never_traced, run_plainly
from numscope.probe.hook import put, stay_fused
from numscope.probe.keras import hear_steps
from numscope.probe.living import Living
from numscope.probe.loop_calls import Kind, LoopCall, hear_loop
from numscope.probe.patching import patch, patch_warnings, settle_inference, settle_subclasses
from numscope.probe.rehearsal import hear_rehearsals, makes_state
from numscope.probe.saves import hear_late_saves

Method = TypeVar("Method", bound=Callable[..., None])


class StepListener:
    """Hears what the optimizer probe sees; a listener overrides what it needs."""

    @property
    def sleeps(self) -> bool:
        """Whether it is told of nothing but ``before_step`` and ``skipped_step`` for now."""
        return False

    def made(self, optimizer: Optimizer) -> None:
        """An optimizer was made."""

    def rehearsal(self) -> None:
        """A pipeline is about to rehearse, or something is traced: nobody is told what it does."""

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        """``backward`` is about to run from these tensors; their graphs are whole."""

    def after_backward(self) -> None:
        """``backward``, or ``autograd.grad``, has returned."""

    def after_gradients(self, gradients: Sequence[Tensor]) -> None:
        """``autograd.grad`` gave gradients to the script, which may go on with them; or a backward made a graph of them."""

    def before_step(self, optimizer: Optimizer) -> None:
        """Gradients are final, unless the step has a closure that makes them; weights are untouched."""

    def after_closure(self, optimizer: Optimizer) -> None:
        """The closure of the current step has run. After its first run gradients are final, and weights still untouched."""

    def after_step(self, optimizer: Optimizer) -> None:
        """Weights have been updated."""

    def skipped_step(self, optimizer: Optimizer) -> None:
        """GradScaler saw a non-finite gradient and left the step out."""

    def called(self, call: LoopCall) -> None:
        """A function of the training loop is about to run; for ``scale``, has run."""

    def returned(self, call: LoopCall) -> None:
        """It has run."""


def guarded(*through: type[Exception]) -> Callable[[Method], Method]:
    """For the tool's own methods: an error other than these goes to ``self.failed`` instead of the script.

    The object has an attribute ``closed``: once it is true, such a method does nothing.
    """

    def decorate(method: Method) -> Method:
        @never_traced
        @functools.wraps(method)
        def run(self: Any, *args: Any) -> None:
            if not self.closed:
                guard(self.failed, through, method, self, *args)

        return cast(Method, run)

    return decorate


_listeners: Living[StepListener] = Living()
_undo: list[Callable[[], None]] = []
# The same for what scripts load later: Keras's optimizers, pipelines, packages that save.
_keras: list[Callable[[], None]] = []
_pipelines: list[Callable[[], None]] = []
_saves: list[Callable[[], None]] = []
_unscaled: WeakValueDictionary[int, Optimizer] = WeakValueDictionary()  # by id: not stepped since GradScaler unscaled
_lock = threading.RLock()  # of the two; a listener may be collected, and taken off, while another is put on
_paused: dict[int, tuple[int, bool]] = {}  # by id of each ``paused`` at work: its thread, and whether that may train


class _Thread(threading.local):
    stepped: list[Optimizer] | None = None  # optimizers whose step ran inside the current GradScaler.step
    scaler: torch.amp.GradScaler | None = None  # that is stepping an optimizer
    has_closure = False  # the optimizer that is about to step was given one
    accumulates = False  # the backward that began last
    creates_graph = False  # the same one
    seeds: tuple[Tensor, ...] = ()  # the same one's


_thread = _Thread()


def listen(listener: StepListener) -> None:
    """Tell a listener of each step until ``unlisten``, as long as somebody else keeps it alive. Safe to call twice."""
    with _lock:
        if not _undo:
            _install()
        _install_late()
        if not any(listener is known for known in _listeners):
            _listeners.add(listener)


def unlisten(listener: StepListener) -> None:
    with _lock:
        _listeners.discard(listener)
        if not _listeners:
            forget_kept()
            for undo in (_undo, _keras, _pipelines, _saves):
                while undo:
                    undo.pop()()


_STEP = next(code for code in Optimizer.profile_hook_step.__code__.co_consts if isinstance(code, CodeType))  # what wraps each ``step``


def in_step() -> bool:
    """Whether an optimizer's ``step`` is at work on this thread. *Cost:* a look at each frame of the stack."""
    return next(_steps_at_work(), None) is not None


def _steps_at_work() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _STEP:
            yield frame
        frame = frame.f_back


def _is_its_bases(optimizer: Optimizer) -> bool:
    """Whether the step at work is that of a base class, called by the optimizer's own: the two are one step."""
    hooked = [one for one in type(optimizer).__mro__ if getattr(vars(one).get("step"), "hooked", False)]
    return len(hooked) > 1 and sum(frame.f_locals.get("self") is optimizer for frame in _steps_at_work()) > 1


def in_scaler() -> bool:
    """Whether GradScaler is stepping an optimizer: it has looked at that optimizer's gradients and found them finite."""
    return _thread.stepped is not None


def scale() -> float | None:
    """Of the GradScaler that is stepping an optimizer; None without one. *Cost:* a sync off the host."""
    return None if _thread.scaler is None else float(_thread.scaler.get_scale())


def backoff() -> float:
    """By which that scaler multiplies its scale when it skips a step; torch's default without one."""
    found = 0.5 if _thread.scaler is None else float(_thread.scaler.get_backoff_factor())
    return found if 0 < found < 1 else 0.5


def has_closure() -> bool:
    """To be asked in ``before_step``: whether forward and backward may run within the step, so that gradients are not final yet."""
    return _thread.has_closure


def accumulates() -> bool:
    """To be asked in ``before_backward``: whether parameters get its gradients. ``autograd.grad`` returns them instead."""
    return _thread.accumulates


def creates_graph() -> bool:
    """To be asked in ``before_backward``: whether its gradients can be differentiated."""
    return _thread.creates_graph


def seeds() -> tuple[Tensor, ...]:
    """To be asked in ``before_backward``: the gradients that it begins with, where the script gave some."""
    return _thread.seeds


def is_paused() -> bool:
    """Whether a replay runs in this thread; a thread of autograd's own, where a device's backward runs, may work for any thread's."""
    if not _paused:
        return False
    here = threading.get_ident()
    is_anyones = in_backward() and threading.current_thread().name.startswith("Dummy")
    return is_anyones or any(thread == here for thread, _ in tuple(_paused.values()))


retold: set[int] = set()  # threads in which a replay tells a listener of its own what modules are called with


def is_unheard() -> bool:
    """Whether modules' hooks have nobody to tell: a replay runs in this thread that nobody listens to."""
    return is_paused() and threading.get_ident() not in retold


class paused:
    """While a replay runs the optimizer or backward, nobody is told what its thread does; ``untrained``: and it may do neither.

    It begins and ends by one write each, which an interrupt can't divide.
    """

    def __init__(self, untrained: bool = False) -> None:
        self._untrained = untrained

    def __enter__(self) -> None:
        _paused[id(self)] = threading.get_ident(), not self._untrained

    def __exit__(self, *_: object) -> None:
        _paused.pop(id(self), None)

    def __del__(self) -> None:  # an interrupt at the beginning of __exit__ left it undone, and nobody would be told anything again
        _paused.pop(id(self), None)


def _told(*, asleep: bool = False) -> list[StepListener]:
    return [] if is_paused() or is_traced() else [listener for listener in _listeners if asleep or not listener.sleeps]


def _install_late() -> None:
    """Hear of what is loaded by now, and perhaps was not when the first listener came."""
    if not _keras:
        _keras.extend(hear_steps(_skip, is_paused))
    if not _pipelines:
        _pipelines.extend(hear_rehearsals(_rehearse))
    _saves.extend(hear_late_saves(_tell_of_call))


def _install() -> None:
    @never_traced
    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        _refuse()
        if _is_its_bases(optimizer) or makes_state():
            return None
        _unscaled.pop(id(optimizer), None)
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        _thread.has_closure = callable(closure)
        if _thread.stepped is not None:
            _thread.stepped.append(optimizer)
        if not _skips_inside(optimizer):
            for listener in _told(asleep=True):
                listener.before_step(optimizer)
        if not _thread.has_closure or not _told():
            return None
        wrapped = _tell_of(closure, optimizer)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    @never_traced
    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if _is_its_bases(optimizer) or makes_state():
            return
        skipped = _skips_inside(optimizer)
        for listener in _told(asleep=skipped):
            (listener.skipped_step if skipped else listener.after_step)(optimizer)

    _undo.append(put(torch_optimizer._global_optimizer_pre_hooks, before))
    _undo.append(put(torch_optimizer._global_optimizer_post_hooks, after))
    _undo.append(patch(torch.autograd, "backward", _backward))
    _undo.append(patch(torch.autograd, "grad", _grad))
    _undo.append(patch(Optimizer, "__init__", _make))
    _undo.append(patch(Optimizer, "__setstate__", _copy))
    for owner, name in _TRACERS:
        _undo.append(patch(owner, name, _trace))
    _undo.extend(hear_loop(_tell_of_call, _scaler_step, _scaler_update))
    _undo.append(stay_fused())
    _undo.append(settle_inference())
    _undo.append(settle_subclasses())
    _undo.append(patch_warnings())
    _undo.append(optimizers.made.forget)
    optimizers.made.forget()


def _refuse() -> None:
    here = threading.get_ident()
    if not in_backward() and any(
        thread == here and not trains for thread, trains in tuple(_paused.values())
    ):  # where reentrant checkpointing needs it
        raise RuntimeError("the call itself trains the model")


def _tell_of(closure: Any, optimizer: Optimizer) -> Callable[[], Any]:
    """A closure that tells listeners each time it has run."""

    @functools.wraps(closure, updated=())
    def run() -> Any:
        result = closure()
        for listener in _told():
            listener.after_closure(optimizer)
        return result

    return run


def _skips_inside(optimizer: Optimizer) -> bool:
    """Fused optimizers get GradScaler's verdict and leave their own step out by it. *Cost:* a sync, only with such an optimizer."""
    found_inf = getattr(optimizer, "found_inf", None)
    return isinstance(found_inf, Tensor) and not is_captured() and bool(found_inf.item())


def _backward(original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
    _refuse()
    _begin(tensors, args, kwargs, accumulates=True)
    creates_graph = _thread.creates_graph
    result = original(tensors, *args, **kwargs)
    _end(() if creates_graph else None)
    return result


def _grad(original: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
    _begin(outputs, args, kwargs, accumulates=False)
    result = original(outputs, *args, **kwargs)
    _end(result)
    return result


@run_plainly
def _begin(roots: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, accumulates: bool) -> None:
    place = 2 if accumulates else 3  # behind the roots
    seeds = kwargs.get("grad_tensors" if accumulates else "grad_outputs", args[place - 2] if len(args) > place - 2 else None)
    _thread.accumulates, _thread.seeds = accumulates, tuple(_tensors(seeds))
    _thread.creates_graph = bool(kwargs.get("create_graph", args[place] if len(args) > place else False))
    for listener in _told_of_numbers():
        listener.before_backward(_tensors(roots))


@run_plainly
def _end(gradients: Any) -> None:
    """``gradients``: those that the script gets, or of which a graph was made; None: there are none."""
    _thread.seeds = ()
    told = _told_of_numbers()
    for listener in told if gradients is not None else ():
        listener.after_gradients(_tensors(gradients))
    for listener in told:
        listener.after_backward()


def _told_of_numbers() -> list[StepListener]:
    """torch.func.grad comes here too, with tensors that have no values."""
    is_function = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
    return [] if is_function else _told()


def _tensors(given: Any) -> list[Tensor]:
    return [one for one in (given if isinstance(given, tuple | list) else (given,)) if isinstance(one, Tensor)]


def _rehearse(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    for listener in _told():
        listener.rehearsal()
    with paused():
        return original(*args, **kwargs)


def _trace(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch.jit.trace begins: within a dispatch mode it takes numbers for tensors."""
    for listener in _told():
        listener.rehearsal()
    return original(*args, **kwargs)


_FUNCTIONS = ("_create_function_from_trace", "_create_function_from_trace_with_dict", "_create_graph_by_tracing")
_METHODS = ("_create_method_from_trace", "_create_method_from_trace_with_dict")
_TRACERS = [
    (owner, name) for owner, names in ((torch._C, _FUNCTIONS), (torch._C.ScriptModule, _METHODS)) for name in names if name in vars(owner)
]


def _make(original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
    original(optimizer, *args, **kwargs)
    optimizers.made.made(optimizer)
    with _lock:
        _install_late()
    for listener in _told():
        listener.made(optimizer)


def _copy(original: Callable[..., Any], optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
    """An optimizer comes of a copy or a file."""
    original(optimizer, *args, **kwargs)
    optimizers.made.made(optimizer)


def _skip(optimizer: Optimizer) -> None:
    for listener in _told(asleep=True):
        listener.skipped_step(optimizer)


@run_plainly
def _tell_of_call(kind: Kind, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, over: bool = False) -> None:
    if torch.compiler.is_compiling():
        return
    call = LoopCall(kind, target, args, kwargs)
    if kind == "unscale" and isinstance(optimizer := call.given(0, "optimizer"), Optimizer):
        _unscaled[id(optimizer)] = optimizer
    for listener in _told():
        (listener.returned if over else listener.called)(call)


def _scaler_update(original: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
    """Before it: a script that has unscaled gradients may have left the step out itself, as ``step`` would have."""
    if scaler.is_enabled() and _told():
        outer, _thread.scaler = _thread.scaler, scaler
        try:
            for number, state in tuple(scaler._per_optimizer_states.items()):
                optimizer = _unscaled.get(number)
                if optimizer is None or state["stage"] is not OptState.UNSCALED:
                    continue
                if any(map(float, state["found_inf_per_device"].values())):
                    _skip(optimizer)
        finally:
            _thread.scaler = outer
    return original(scaler, *args, **kwargs)


def _scaler_step(original: Callable[..., Any], scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
    if not scaler.is_enabled():
        return original(scaler, optimizer, *args, **kwargs)
    outer, outer_scaler = _thread.stepped, _thread.scaler
    stepped = _thread.stepped = []
    _thread.scaler = scaler
    try:
        result = original(scaler, optimizer, *args, **kwargs)
        if not any(o is optimizer for o in stepped):
            _skip(optimizer)
    finally:
        _thread.stepped, _thread.scaler = outer, outer_scaler
    return result
