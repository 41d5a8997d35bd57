"""Keeps torch.compile from reusing graphs traced without hooks, and notices modules compiled after a watch began."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from numscope.probe.hook import has_others_hooks, put
from numscope.probe.living import Living
from numscope.probe.patching import patch_warnings
from numscope.records.heap import Instances

Function = TypeVar("Function", bound=Callable[..., Any])

SHELL = "OptimizedModule"  # what torch.compile makes of a module; by name, since to import it would load dynamo

_undo: list[Callable[[], None]] = []


def run_plainly(function: Function) -> Function:
    """Let Python run a function of the tool, and all that it calls, where compiled code calls it: dynamo does not compile its frame.

    Dynamo still traces it as part of a graph whose code calls it.
    """
    eval_frame: Any = torch._C._dynamo.eval_frame
    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return function


def never_traced(function: Function) -> Function:
    """``run_plainly``, and a graph whose code calls the function ends there and goes on behind it."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = "numscope runs it in Python"  # type: ignore[attr-defined]
    return run_plainly(function)


def in_compiled() -> bool:
    """Whether a function that ``torch.compile`` has made is at work, be it in Python for now, or dynamo traces.

    Those functions of dynamo's leave torch's state of dispatch as it was when they began. *Cost:* a look at each frame of the stack.
    """
    if (wrapper := sys.modules.get("torch._dynamo.eval_frame")) is None:
        return False
    wraps, converts = vars(wrapper), getattr(sys.modules.get("torch._dynamo.convert_frame"), "__dict__", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        known = frame.f_globals
        if known is converts or (known is wraps and frame.f_code.co_name == "compile_wrapper"):
            return True
        frame = frame.f_back
    return False


def is_exporting() -> bool:
    """Whether ``torch.export`` traces. To code that dynamo traces, torch 2.10's own function of this name always says that it does."""
    return torch.compiler._is_exporting_flag


def prepare_dynamo() -> None:
    """Let compiled code be guarded by the hooks on its modules, so that graphs made without hooks are not taken for watched ones.

    Only where dynamo is loaded already: a model compiled later is traced with its hooks anyway. Graphs made so far are dropped, since torch
    keeps no note of which were made before.
    """
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.config.skip_nnmodule_hook_guards:
        _undo.append(partial(setattr, dynamo.config, "skip_nnmodule_hook_guards", True))
        dynamo.config.skip_nnmodule_hook_guards = False
        dynamo.reset()


def release_dynamo() -> None:
    """No model is watched any more: torch's own setting is back. Graphs made meanwhile keep their guards."""
    while _undo:
        _undo[-1]()
        _undo.pop()


def drop_graphs() -> None:
    """Graphs that dynamo made of a watched model, if nothing but the setting above tells them from bare ones."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.config.skip_nnmodule_hook_guards:
        dynamo.reset()


def shells_of(modules: Collection[nn.Module]) -> list[nn.Module]:
    """Dynamo's compiled code of some modules. *Cost:* where dynamo is loaded and nobody listens yet, one walk over all objects."""
    if not _unpatch:
        _shells.forget()
    return [o for o in _shells if getattr(o, "_orig_mod", None) in modules]


def wrap_compiled(
    module: nn.Module,
    before: Callable[[tuple[Any, ...], Mapping[str, Any]], None],
    after: Callable[[Any, bool], None],
) -> Callable[[], None] | None:
    """Be told of the calls of a module whose ``compile`` method was called: its own hooks run inside the graph.

    Args:
        before: gets a call's arguments.
        after: gets its output, and whether it raised.

    Returns: what ends it; None: the module is not compiled.
    """
    impl: Any = module._compiled_call_impl
    if impl is None:
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        output = None
        try:
            before(args, kwargs)
            output = impl(*args, **kwargs)
            return output
        finally:
            after(output, output is None and sys.exc_info()[0] is not None)

    module._compiled_call_impl = call
    return partial(setattr, module, "_compiled_call_impl", impl)


# ---- modules that are compiled from now on


class CompileListener(Protocol):
    """Is told of each module that is compiled."""

    def compiled(self, module: nn.Module, shell: nn.Module | None) -> None:
        """A module was compiled, and has not been called since.

        Args:
            shell: what ``torch.compile`` returns for it; None: its own ``compile`` method was called.
        """


_listeners: Living[CompileListener] = Living()
_shells = Instances[nn.Module](lambda: getattr(sys.modules.get("torch._dynamo.eval_frame"), SHELL, None))
_unpatch: list[Callable[[], None]] = []


def listen(listener: CompileListener) -> None:
    """Tell a listener, as long as somebody else keeps it alive, until ``unlisten``. Both may be called twice."""
    if not _unpatch:
        _patch()
    if not any(listener is known for known in _listeners):
        _listeners.add(listener)


def unlisten(listener: CompileListener) -> None:
    """Tell a listener nothing more."""
    _listeners.discard(listener)
    if not _listeners:
        while _unpatch:
            _unpatch.pop()()


def _patch() -> None:
    original = nn.Module.compile

    @functools.wraps(original)
    def compile(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for listener in _listeners:
            listener.compiled(self, None)

    def unpatch() -> None:
        if nn.Module.compile is compile:
            nn.Module.compile = original  # type: ignore[method-assign]

    @run_plainly
    def registered(parent: nn.Module, name: str, child: nn.Module | None) -> None:
        if child is not None and name == "_orig_mod" and type(parent).__name__ == SHELL:
            _shells.made(parent)
            for listener in _listeners:
                listener.compiled(child, parent)

    _shells.forget()
    nn.Module.compile = compile  # type: ignore[method-assign]
    _unpatch.append(unpatch)
    _unpatch.append(patch_warnings(_is_of_own_hooks))
    _unpatch.append(put(torch_module._global_module_registration_hooks, registered))


def _is_of_own_hooks(message: str) -> bool:
    """Whether torch warns, at the call of a compiled module, of global hooks that are all the tool's: they don't mind."""
    return message.startswith("Using `torch.compile(module)` when there are global hooks") and not has_others_hooks({})
