"""Watches the models that a script builds: each outermost module is watched from its first call on."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import Optimizer

from numscope.alerts import desk
from numscope.alerts.checks.loading import Loads
from numscope.config.options import WatchOptions
from numscope.distributed import agree
from numscope.probe import dynamo, keras
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward, is_captured, unheard
from numscope.probe.hook import can_be_hooked, put
from numscope.probe.living import Beside, Living
from numscope.probe.naming import has_identity, peel, qualified_names
from numscope.probe.optimizers import ids_of
from numscope.probe.rehearsal import is_rehearsal
from numscope.records.errors import STOPS, AbortAfter, UsageError
from numscope.records.faults import ours, told
from numscope.replay import fork, outside
from numscope.scope import open_scopes, signals
from numscope.scope.coverage import Coverage
from numscope.scope.model_watch import ModelWatch
from numscope.scope.tensors import TensorWatch, stands_for
from numscope.sinks.opening import SharedSinks

if TYPE_CHECKING:
    from numscope.inspect.recorder import Recorder

log = logging.getLogger("numscope")

STRANGE_STEPS = 3  # after these, an optimizer's unknown parameters are taken to belong to no called module


class AutoWatch(optimizer_probe.StepListener):
    """A context manager: each model that is called inside it is watched; leaving it closes the watches.

    Modules without parameters (losses, activations called alone) don't count as models: their operations belong to the loss.

    Without detection, the search for models stops once each optimizer's parameters belong to a watched model, and resumes when other
    optimizers appear: torch calls a global hook for each module, and steps off the schedule must run the bare model.

    Statistics of all of them go to one recorder. A section of the configuration that selects no layer in any model called so far is an
    error when the first optimizer is about to step.

    Args:
        options: for every model.
        recorder: for statistics; None: one of the watch's own, where the options have a configuration.
        prepare: called with each model before it is watched, and before its first forward.

    Raises: UsageError for a wrong configuration.
    """

    def __init__(
        self,
        options: WatchOptions,
        *,
        recorder: Recorder | None = None,
        prepare: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.options = options
        self._prepare = prepare
        self._recorder = recorder
        self._own_recorder: Recorder | None = None
        self._sinks: SharedSinks | None = None
        self.explicit = False  # steps end with ``step`` alone
        self.elsewhere: list[tuple[str, ...]] = []  # sections that do not select what a script hands in by itself, a tuple each
        self._checks_selection = False  # until the first optimizer steps
        self._searches = False  # it looks for models by what optimizers step
        self._known: Beside[Optimizer, tuple[int, int]] = Beside()
        self._strange: Beside[Optimizer, int] = Beside()  # and how often
        self._tensors: TensorWatch | None = None
        self._loads = Loads()  # before any model is watched
        self.scopes: Living[ModelWatch] = Living()
        self.num_calls = 0  # of any module, as far as torch tells of them
        self._calls_when_stepped = -1
        self.coverage = Coverage()
        self._seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # of what was looked at and left alone
        self._transformed: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # called inside transforms of functions
        self._parents: weakref.WeakKeyDictionary[nn.Module, weakref.ref[nn.Module]] = weakref.WeakKeyDictionary()
        self._hook: Callable[[], None] | None = None
        self._registering: Callable[[], None] | None = None

    def __enter__(self) -> AutoWatch:
        _open.add(self)
        desk.remember(self)
        self._registering = put(torch_module._global_module_registration_hooks, self._registered)
        self._checks_selection = self._recorder is not None or self.options.config is not None
        self._searches = self.options.on_nonfinite is None and not self.options.trace and self.options.abort_after is None
        if self._checks_selection or self._searches:
            optimizer_probe.listen(self)
        self.look(True)
        if self.options.on_nonfinite is not None and not self.options.trace:
            self._tensors = TensorWatch(self._watch_tensors, open_scopes.live)
            optimizer_probe.listen(self._tensors)
            optimizer_probe.listen(self._loads)
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    @property
    def looking(self) -> bool:
        """Whether a model that is called now for the first time would be seen."""
        return self._hook is not None

    @property
    def has_just_stepped(self) -> bool:
        """Whether an optimizer has stepped and no module was called since, as long as calls are counted."""
        return self.looking and self.num_calls == self._calls_when_stepped

    def after_step(self, optimizer: Optimizer) -> None:
        self._calls_when_stepped = self.num_calls

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._calls_when_stepped = self.num_calls

    def look(self, on: bool) -> None:
        """Start or stop looking for models."""
        if on and self._hook is None:
            self._hook = put(torch_module._global_forward_pre_hooks, self._called)
            dynamo.listen(self)
        elif not on and self._hook is not None:
            self._hook()
            dynamo.unlisten(self)
            self._hook = None

    def check_selection(self) -> None:
        """Raise UsageError for sections that select nothing in any model so far. Checked once: at the first optimizer step, or here."""
        if self._checks_selection:
            self._checks_selection = False
            from numscope.inspect.unmatched import refuse_unmatched

            found = [scope.inspector.resolved.unmatched for scope in self.scopes if scope.inspector is not None]
            refuse_unmatched(*(found + self.elsewhere or [()]))

    def before_step(self, optimizer: Optimizer) -> None:
        """Stop looking for models once each optimizer has stepped twice with parameters of watched models alone.

        *Cost:* a walk over the parameters for each optimizer that is new or has changed.
        """
        self.check_selection()
        if not self._searches:
            return
        state = (sum(len(group["params"]) for group in optimizer.param_groups), len(self.scopes))
        if self._known.get(optimizer) == state:
            self.look(any(times < STRANGE_STEPS for times in self._strange.values()))
            return
        watched = {id(p) for scope in self.scopes if scope.model is not None for p in scope.model.parameters()}
        if ids_of(optimizer) <= watched or self._strange.get(optimizer, 0) >= STRANGE_STEPS:
            self._known[optimizer] = state
            self._strange.pop(optimizer, None)
        else:
            self._strange[optimizer] = self._strange.get(optimizer, 0) + 1
            self.look(True)

    def finish(self, error: BaseException | None = None) -> None:
        """Stop looking for models, close the watches.

        Args:
            error: what ended the script, if it did not end well.
        """
        self._stop()
        with signals.ending(), contextlib.ExitStack() as stack:  # all are closed, though one finds something at its close
            if self._own_recorder is not None:
                stack.callback(self._own_recorder.close)
            if self._sinks is not None:
                stack.callback(self._sinks.close)
            for scope in reversed(self.scopes):
                stack.callback(scope.close, error)
        if error is None:
            open_scopes.leave_ranks()

    def abandon(self) -> None:
        """Remove every hook without judging or writing: in a forked child, the watches belong to the parent."""
        self._stop()
        for scope in self.scopes:
            if not scope.closed:
                scope.abandon()

    def _stop(self) -> None:
        _open.discard(self)
        desk.forget(self)
        self.look(False)
        if self._registering is not None:
            self._registering()
        optimizer_probe.unlisten(self)
        if self._tensors is not None:
            self._tensors.close()
        optimizer_probe.unlisten(self._loads)

    def compiled(self, module: nn.Module, shell: nn.Module | None) -> None:
        """Look at a module whose ``compile`` method was called as its first call begins: dynamo would trace a global hook, not run it."""
        if shell is not None:  # its own call is no compiled one
            return
        made: Any = module._compiled_call_impl

        def first(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and module._compiled_call_impl is first:
                module._compiled_call_impl = made
                if self._hook is not None:
                    outside.current().pause()  # dynamo would trace it
                    self._called(module, args, before=True)
                    return module._compiled_call_impl(*args, **kwargs)
            return made(*args, **kwargs)

        module._compiled_call_impl = first

    def _called(self, module: nn.Module, args: tuple[Any, ...], before: bool = False) -> None:
        if torch.compiler.is_compiling():
            return
        if not has_identity(module):
            if module._parameters:
                self.coverage.not_watched(type(module).__name__, "its class finds modules by their values")
            return
        if torch._C._functorch.peek_interpreter_stack() is not None:
            if module not in self._transformed:
                self._transformed.update(module.modules())
                what = f"{type(self._whole(module)).__name__} inside torch.func transforms (grad, vmap)"
                self.coverage.not_watched(what, "its tensors have no values there")
            return
        self.num_calls += 1
        if any(s.active for s in open_scopes.live()) or module in self._seen or in_backward():
            return
        with unheard():
            is_training = not (optimizer_probe.is_paused() or is_captured() or is_rehearsal() or keras.has_no_values(args))
        if not is_training:
            return
        try:
            self._attach(module, args, before)
        except ours(but=(*STOPS, AbortAfter, UsageError)) as error:  # of a scope that this one takes the place of; of the configuration
            self._seen.update(module.modules())  # nor its parts, which it calls
            self.coverage.not_watched(type(module).__name__, told(error))
            log.error("numscope can't watch %s: %s: %s", type(module).__name__, type(error).__name__, error)

    def _watch_tensors(self, model: nn.Module) -> ModelWatch | None:
        try:
            scope = ModelWatch(model, self.options, recorder=self._statistics(), strict=False, called=False)
        except ours() as error:
            self.coverage.not_watched("an optimizer's tensors", told(error))
            return None
        self.scopes.add(scope)
        self.coverage.add(scope)
        return scope

    def _statistics(self) -> Recorder | None:
        if self._recorder is None and self.options.config is not None:  # not before: by now the script's process group may say the rank
            from numscope.inspect.recorder import Recorder  # loads what reads configurations, which a watch without one does not need

            self._recorder = self._own_recorder = Recorder.of(self.options)
        return self._recorder

    @dynamo.run_plainly
    def _registered(self, parent: nn.Module, name: str, child: nn.Module | None) -> None:
        if type(parent).__name__ == "ModuleToTrace" and dynamo.is_exporting():
            self._pause_while(parent)
        elif child is not None and has_identity(child) and has_identity(parent):
            self._parents[child] = weakref.ref(parent)

    def _pause_while(self, parent: nn.Module) -> None:
        """Let a strict ``torch.export`` see no global hook: it would trace torch's own calling code, and refuse that."""
        if self._hook is not None:
            self._hook()
            weakref.finalize(parent, self._resume).atexit = False

    def _resume(self) -> None:
        if self._hook is not None:
            self._hook()
            self._hook = put(torch_module._global_forward_pre_hooks, self._called)

    def _whole(self, module: nn.Module) -> nn.Module:
        """The model that contains a module: scripts call an agent's actor, never the agent itself."""
        called, seen = module, {module}
        while (ref := self._parents.get(module)) is not None and (parent := ref()) is not None:
            if parent in seen:  # a part holds its whole as a part of its own
                return called
            seen.add(parent)
            if not any(child is module for child in parent._modules.values()) or type(parent).__name__ == "OptimizedModule":
                break
            module = parent
        return module

    def _attach(self, module: nn.Module, args: tuple[Any, ...], before: bool) -> None:
        inner = peel(module)
        whole = self._whole(inner)
        if peel(whole) is not inner:
            module = whole
            inner = peel(whole)
            before = True  # the call on its way is of a part
        known = (*self.scopes, *open_scopes.live())  # also what the script watches by itself
        owners = [s for s in known if s.owns(inner)]
        for owner in owners:
            self.coverage.add(owner)
        is_model = not owners and next(inner.parameters(), None) is not None
        if is_model and not can_be_hooked(inner):
            self.coverage.not_watched(type(inner).__name__, "torch.jit runs it without Python")
        if not is_model or not can_be_hooked(inner):
            self._seen.add(module)
            return
        names, own = qualified_names(inner), {id(p) for p in inner.parameters()} if torch.is_grad_enabled() else set()
        for scope in [s for s in self.scopes if s.model in names or (s.model is not None and stands_for(s.model, own))]:
            self.scopes.discard(scope)  # a part was called alone before the whole, or an optimizer took a step to have states to load
            scope.close()
        for scope in self.scopes:
            scope.settle()
        if self._prepare is not None:
            self._prepare(inner)
        recorder = self._statistics()
        if recorder is None and self._sinks is None:  # all models' findings go to one run
            options = self.options
            self._sinks = SharedSinks.take(options.loggers, options.log_dir, agree.rank())
        scope = ModelWatch(module, self.options, recorder=recorder, strict=False, explicit=self.explicit)
        self.scopes.add(scope)
        self.coverage.add(scope)
        self._seen.add(module)
        if inner is module and not before:  # its own hooks were not there yet when this call began
            scope.adopt(args, _keyword_arguments(module))


_open: weakref.WeakSet[AutoWatch] = weakref.WeakSet()  # of this process


def _leave_parent() -> None:
    for watch in () if fork.is_forking else tuple(_open):
        watch.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


def _keyword_arguments(module: nn.Module) -> Mapping[str, Any]:
    """The keyword arguments of the running call: global hooks don't get them, so they are read from torch's own frame."""
    frame: FrameType | None = sys._getframe(3)
    for _ in range(4):
        if frame is None:
            break
        found = frame.f_locals.get("kwargs")
        if isinstance(found, dict) and frame.f_locals.get("self") is module:
            return found
        frame = frame.f_back
    return {}
