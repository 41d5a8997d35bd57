"""The outermost calls of a model: a forward that the script calls, not one within it."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from numscope.probe.entry import Entry, Leaves
from numscope.records.faults import had_no_room, ours
from numscope.summary import native

_task = torch._C._current_graph_task_id
_jit_tracing = torch._C._get_tracing_state
_num_dispatch_modes, _dispatch_mode = torch._C._len_torch_dispatch_stack, torch._C._get_dispatch_mode
_PROXY, _FAKE = torch._C._TorchDispatchModeKey.PROXY, torch._C._TorchDispatchModeKey.FAKE
_CALL = nn.Module._call_impl.__code__
_cuda = torch.cuda
_is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_grad_enabled, unheard = torch.is_grad_enabled, torch._C.DisableTorchFunctionSubclass
_manager = contextlib._GeneratorContextManager
_MANAGERS = (_manager.__enter__.__code__, _manager.__exit__.__code__)
_said: set[str] = set()
_kept: dict[int, BaseException] = {}  # of the script's, by thread, that struck where Python would have dropped them

log = logging.getLogger("numscope")

heard = torch._C._EnableTorchFunction  # around the script's own code, which a replay runs again


class CallListener(Protocol):
    """Gets outermost calls."""

    def enter(self, module: nn.Module, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        """An outermost call has returned, or raised."""


class ModuleListener(CallListener, Protocol):
    """Gets the calls of modules."""

    @property
    def tap(self) -> Callable[[Entry, Leaves], None]:
        """Is called when a module was called: its leaves with their slots, in order."""

    @property
    def gradient(self) -> Callable[[Entry, str, Tensor, torch.Size | None], None]:
        """Is called when an output's gradient came; the shape is the output's, where the gradient has another one."""

    def failed(self, error: Exception) -> None:
        """The tool itself failed; the listener is told nothing more."""


class TensorReader(Protocol):
    """Gets some tensors of some modules."""

    def observe(self, site: int, tensor: Tensor, shape: torch.Size | None = None) -> None:
        """A tensor that is wanted; ``shape``: in which it is meant, where it has another one."""

    def failed(self, error: Exception) -> None:
        """The tool itself failed; the reader is shown nothing more."""


def guard(fail: Callable[[Exception], None], but: tuple[type[Exception], ...], call: Callable[..., object], *args: Any) -> None:
    """Call something of the tool's. Of the script's tensors, the ``__torch_function__`` of a subclass hears of the script's calls alone.

    Args:
        fail: gets an error of the tool's.
        but: exceptions that are meant for the script.

    *Cost:* 0.5 µs.
    """
    if _kept and (kept := _kept.pop(get_ident(), None)) is not None:
        raise kept
    grad = _grad_enabled()
    with unheard():
        try:
            call(*args)
        except ours(but=but) as error:
            if not had_no_room(error):
                fail(error)
        except BaseException as error:
            _end_contexts(error.__traceback__)
            torch._C._set_grad_enabled(grad)
            raise


def _end_contexts(trace: TracebackType | None) -> None:
    """The script's exception may strike where a context begins or ends, in Python, and leave it undone. One that is a generator ends as it
    is collected: now, and not in the midst of what comes later.
    """
    while trace is not None:
        if trace.tb_frame.f_code in _MANAGERS:
            trace.tb_frame.clear()
        trace = trace.tb_next


def _finalizing(kept: dict[int, BaseException], call: Callable[..., None], *args: Any) -> None:
    try:
        call(*args)
    except BaseException as error:
        kept[get_ident()] = error


def finalizing(call: Callable[..., None]) -> Callable[..., None]:
    """Something of the tool's as a finalizer, where Python drops exceptions: one of the script's is kept for the next ``guard``.

    In C, since a signal's handler runs first of all where a Python function begins, outside of its ``try``.
    """
    return partial(_finalizing if native.module is None else native.module.finalizing, _kept, call)


def forget_kept() -> None:
    """Nobody watches any more: what was kept reaches no guard."""
    _kept.clear()


def in_backward() -> bool:
    """Whether autograd is at work on this thread: a forward that runs now is a recomputation for activation checkpointing."""
    return _task() != -1


def is_traced() -> bool:
    """Whether torch.jit.trace, make_fx or a CUDA graph would take what we do into the script's graph, or tensors have no numbers."""
    return _jit_tracing() is not None or (_num_dispatch_modes() > 0 and _dispatch_mode(_PROXY) is not None) or is_faked() or is_captured()


def is_captured() -> bool:
    """Whether the script captures a CUDA graph on this thread's stream: a wait would end that, and each replay would do what we launch."""
    return _cuda._initialized and _is_capturing is not None and _is_capturing()


def is_faked() -> bool:
    """Whether a FakeTensorMode is at work: what runs has shapes and no numbers."""
    return _num_dispatch_modes() > 0 and _dispatch_mode(_FAKE) is not None


def say_unread(what: str, why: str = "there are no numbers to read") -> None:
    """Tell once what is not watched, and why."""
    if what not in _said:
        _said.add(what)
        log.warning("numscope does not watch %s: %s. The rest is watched.", what, why)


class Calls:
    """Finds the outermost ones among all calls of a model's modules; one at a time, on one thread.

    Args:
        listener: is told of them; what it raises goes through.

    Attributes:
        module: whose outermost call is running.
    """

    def __init__(self, listener: CallListener) -> None:
        self._listener = listener
        self.module: nn.Module | None = None
        self._depth = 0
        self._thread = 0

    def before(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if module is self.module and self._thread == get_ident():
            self._depth += 1
            if not _calls_itself(module):  # the call before was left by an interrupt, of which torch tells no hook
                self.module = None
                self._listener.leave(module, entry, None, True)
        if self.module is None and _task() == -1:  # in_backward()
            self.begin(entry, module, args, kwargs)

    def begin(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """This call is an outermost one."""
        self.module, self._depth, self._thread = module, 1, get_ident()
        self._listener.enter(module, entry, args, kwargs)

    def after(self, entry: Entry, module: nn.Module, output: Any, failed: bool) -> None:
        if module is self.module and self._thread == get_ident():
            self._depth -= 1
            if self._depth == 0:
                self.module = None
                self._listener.leave(module, entry, output, failed)


def _calls_itself(module: nn.Module) -> bool:
    """Whether the call that is beginning is inside another call of the same module."""
    frame = sys._getframe(1)
    calls = 0
    while calls < 2 and (outer := frame.f_back) is not None:
        frame = outer
        calls += frame.f_code is _CALL and frame.f_locals.get("self") is module
    return calls == 2
