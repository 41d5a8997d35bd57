"""The module probe: forward hooks and output-gradient hooks make a model's tensors visible to a tap.

Tensor hooks rather than full-backward module hooks: the latter wrap inputs and outputs in an extra autograd node, which breaks in-place
operations and changes the graph. A tensor hook that returns None changes nothing.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from numscope.probe import walk
from numscope.probe.compiled import CompiledRows
from numscope.probe.entry import Entry, Leaves
from numscope.probe.naming import class_name, qualified_names
from numscope.records.site import Phase


class Listener(Protocol):
    """What a module probe tells; all that it knows of the rest."""

    def enter(self, module: nn.Module, entry: Entry, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""

    def leave(self, module: nn.Module, entry: Entry, output: Any, failed: bool) -> None:
        """An outermost call has returned, or raised."""

    def tap(self, entry: Entry, phase: Phase, weights: Mapping[str, Tensor | None], leaves: Leaves) -> None:
        """A module was called (or an output's gradient came): its own weights, its leaves with their slots, in order."""

    def failed(self, error: Exception) -> None:
        """The tool itself failed; the probe is off."""


_task = torch._C._current_graph_task_id
_grad_enabled = torch.is_grad_enabled


def in_backward() -> bool:
    """Whether autograd is at work on this thread: a forward that runs now is a recomputation for activation checkpointing."""
    return _task() != -1


class Hook(partial[None]):
    """A hook that stays with the object it was put on: a copy, in memory or in a file, gets one in its place that does nothing.

    ``copy.deepcopy(model)`` would else copy the watch, and ``torch.save(model)`` try to write it. What stands in needs no numscope to load.
    """

    __torch_unserializable__ = True  # no warning from torch when a tensor that has it is saved

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")


def _calls_itself(module: nn.Module) -> bool:
    """Whether the call that is beginning is inside another call of the same module."""
    frame = sys._getframe(1)
    calls = 0
    while calls < 2 and (outer := frame.f_back) is not None:
        frame = outer
        calls += frame.f_code is _CALL and frame.f_locals.get("self") is module
    return calls == 2


_CALL = nn.Module._call_impl.__code__


def can_be_hooked(module: nn.Module) -> bool:
    """A scripted module runs no Python; the module around it sees what goes in and out."""
    return not isinstance(module, torch.jit.ScriptModule)


_NO_WEIGHTS: dict[str, Tensor | None] = {}


def _note_trace(probe: ModuleProbe) -> int:
    probe.root_was_traced = True
    return 0


_note_trace._dynamo_marked_constant = True  # type: ignore[attr-defined]  # runs while dynamo traces, see probe/compiled.py


class ModuleProbe:
    """Hooks on every module below ``root`` (or on the root alone), until ``detach``.

    Args:
        root: the watched model.
        listener: gets the calls.
        deep: every module; otherwise only the root's outermost calls are told.
        gradients: hook the gradients of outputs.
        errors: exceptions that go through to the training script.
        hooked: False: names only, the model runs bare.

    *Cost:* 2 hook calls a module call, about 5 µs together; one tensor hook an output.
    """

    def __init__(
        self,
        root: nn.Module,
        listener: Listener,
        *,
        deep: bool = True,
        gradients: bool = True,
        errors: tuple[type[Exception], ...] = (),
        hooked: bool = True,
    ) -> None:
        self.root = root
        self.listener = listener
        self.deep = deep
        self.gradients = gradients
        self.errors = errors
        self.hooked = hooked
        self.paused = False  # during a replay, and on batches that are off schedule
        self.names = qualified_names(root)
        self.entries = {m: Entry(name, class_name(m), m is root) for m, name in self.names.items()}
        self._by_name = {entry.name: entry for entry in self.entries.values()}
        self.compiled = CompiledRows()
        self.root_was_traced = False  # somebody compiled the root after the watch began: its calls are inside a graph
        self._active: nn.Module | None = None
        self._depth = 0
        self._thread = 0  # of the outermost call
        self._shells: list[nn.Module] = []
        self._handles: list[Any] = []
        self._compiled_calls: list[tuple[nn.Module, Any]] = []
        self._deep_handles: list[Any] = []
        if hooked:
            self._hook(root, self.entries[root], self._handles)
        for module, entry in self.entries.items() if hooked else ():
            if module._compiled_call_impl is not None:  # module.compile(): its own hooks run inside the graph, so its call is wrapped
                self._wrap_compiled(module, entry)
        if deep:
            self.deepen()

    def deepen(self) -> None:
        """Hook every module below the root."""
        self.deep = True
        if not self._deep_handles:
            for module, entry in self.entries.items():
                if module is not self.root:
                    self._hook(module, entry, self._deep_handles)

    def flatten(self) -> None:
        """Leave the root's hooks alone; the modules below run bare."""
        self.deep = False
        while self._deep_handles:
            self._deep_handles.pop().remove()

    def _hook(self, module: nn.Module, entry: Entry, handles: list[Any]) -> None:
        if can_be_hooked(module):
            handles.append(module.register_forward_pre_hook(Hook(self._before, entry), with_kwargs=True))
            handles.append(module.register_forward_hook(Hook(self._after, entry), with_kwargs=True, always_call=True))

    @property
    def active(self) -> bool:
        """Whether an outermost call is running."""
        return self._active is not None

    def refresh(self) -> list[nn.Module]:
        """Take up the modules that were put into the model since, as adapters are. *Cost:* a look at each child, 0.1 µs.

        Returns: the new ones; ``names`` holds them at its end.
        """
        if all(child is None or child in self.names for module in self.names for child in module._modules.values()):
            return []
        names = qualified_names(self.root)
        new = [module for module in names if module not in self.names]
        self.names.update(names)
        for module, name in names.items():
            entry = self.entries.setdefault(module, Entry(name, class_name(module)))
            entry.name = name
        self._by_name = {entry.name: entry for entry in self.entries.values()}
        if self.deep:
            for module in new:
                self._hook(module, self.entries[module], self._deep_handles)
        return new

    def entry_of(self, module_name: str) -> Entry:
        """The entry of a module by its name."""
        return self._by_name[module_name]

    def find_shells(self) -> bool:
        """Hook the compiled wrappers around the root, whose calls are plain Python.

        Returns: whether there are new ones. *Cost:* one walk over all objects.
        """
        self.root_was_traced = False
        found = False
        for shell in [o for o in gc.get_objects() if type(o).__name__ == "OptimizedModule" and getattr(o, "_orig_mod", None) is self.root]:
            if shell not in self._shells:
                self._shells.append(shell)
                self._hook(shell, self.entries[self.root], self._handles)
                found = True
        return found

    def adopt(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Begin the outermost call of the root that is already on its way (the probe was attached inside it)."""
        self._active, self._depth, self._thread = self.root, 1, get_ident()
        self._guard(self.listener.enter, self.root, self.entries[self.root], args, kwargs)

    def detach(self) -> None:
        """Remove every hook."""
        self.flatten()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for module, impl in self._compiled_calls:
            module._compiled_call_impl = impl
        self._compiled_calls.clear()
        self._shells.clear()
        self._active = None

    # ---- hooks

    def _before(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            if entry.is_root:
                _note_trace(self)
            return
        if self.paused:
            return
        if module is self._active and self._thread == get_ident():
            self._depth += 1
            if not _calls_itself(module):  # the call before was left by an interrupt, of which torch tells no hook
                self._active = None
                self._guard(self.listener.leave, module, entry, None, True)
        if self._active is None and not in_backward():
            self._active, self._depth, self._thread = module, 1, get_ident()
            self._guard(self.listener.enter, module, entry, args, kwargs)

    def _after(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if torch.compiler.is_compiling():
            if self.deep:
                self.compiled.trace(entry, args, kwargs, output)
            return
        if self.paused:
            return
        failed = output is None and sys.exc_info()[0] is not None
        if self.deep and not failed:
            try:  # _guard, without the frame: this is the hot path
                self._see(entry, module, args, kwargs, output)
            except self.errors:
                raise
            except Exception as error:
                self._fail(error)
        if module is self._active and self._thread == get_ident():
            self._depth -= 1
            if self._depth == 0:
                self._active = None
                self._guard(self.listener.leave, module, entry, output, failed)

    def _see(self, entry: Entry, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        plain = isinstance(output, Tensor)
        if _task() == -1:  # in_backward()
            if plain and not kwargs and len(args) == 1 and isinstance(args[0], Tensor):  # most modules; saves 3 µs
                found: Leaves = [("input[0]", args[0]), ("output", output)]
            else:
                found = walk.leaves(args, kwargs, output)
            self.listener.tap(entry, Phase.FORWARD, module._parameters, found)
        if not self.gradients or not _grad_enabled():
            return
        if plain:
            if output.requires_grad and not output.is_leaf:
                output.register_hook(Hook(self._gradient, entry, "grad output"))
        else:
            for slot, leaf in walk.tensors(output, "output"):
                if leaf.requires_grad and not leaf.is_leaf:  # a hook on a leaf would outlive the step
                    hook = Hook(self._gradient, entry, entry.gradient_slot(slot))
                    leaf.register_hook(hook)  # type: ignore[no-untyped-call]

    def _gradient(self, entry: Entry, slot: str, gradient: Tensor | None) -> None:
        # None: the node has several outputs, and this one gets no gradient
        if gradient is not None and not self.paused and not torch.compiler.is_compiling():
            try:
                self.listener.tap(entry, Phase.BACKWARD, _NO_WEIGHTS, [(slot, gradient)])
            except self.errors:
                raise
            except Exception as error:
                self._fail(error)

    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except self.errors:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """An error of ours: never the run's end."""
        self.detach()
        self.paused = True
        self.listener.failed(error)

    def _wrap_compiled(self, module: nn.Module, entry: Entry) -> None:
        impl: Any = module._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(entry, module, args, kwargs)
            output = None
            try:
                output = impl(*args, **kwargs)
                return output
            finally:
                if module is self._active:
                    self._depth -= 1
                    if self._depth == 0:
                        self._active = None
                        self._guard(self.listener.leave, module, entry, output, output is None and sys.exc_info()[0] is not None)

        self._compiled_calls.append((module, impl))
        module._compiled_call_impl = call
