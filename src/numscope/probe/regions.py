"""The compiled parts of a model: which modules are traced into graphs, and the calls in plain Python around them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from numscope.probe import dynamo
from numscope.probe.entry import Entry


class Regions:
    """Knows which modules of a model are compiled, from ``find`` to ``forget``.

    Args:
        entries: the model's modules.
        changed: is called when a further one was compiled.

    Attributes:
        shells: what ``torch.compile`` has made of modules, each with its module's entry.
        wrapped: modules whose ``compile`` method was called and whose calls are heard, each with what ends that.
    """

    def __init__(self, entries: Mapping[nn.Module, Entry], changed: Callable[[], None]) -> None:
        self.shells: weakref.WeakKeyDictionary[nn.Module, Entry] = weakref.WeakKeyDictionary()
        self.wrapped: dict[nn.Module, Callable[[], None]] = {}
        self._entries, self._changed = entries, changed
        self._compiled: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._listens = False

    @property
    def traced(self) -> set[nn.Module]:
        """The modules that are compiled, and all inside them."""
        return {module for compiled in self._compiled for module in compiled.modules()}

    def find(self) -> None:
        """Look for compiled modules, and hear of those to come. *Cost:* the first time, where dynamo is loaded, a walk over all objects."""
        if not self._listens:
            self._listens = True
            dynamo.listen(self)
            self.find_methods()
            for shell in dynamo.shells_of(self._entries):
                self._note(shell._orig_mod, shell)  # type: ignore[arg-type]

    def find_methods(self) -> None:
        """Look for modules whose ``compile`` method was called."""
        self._compiled.update(module for module in self._entries if module._compiled_call_impl is not None)

    def forget(self) -> None:
        """Hear of no others."""
        self._listens = False
        dynamo.unlisten(self)

    def compiled(self, module: nn.Module, shell: nn.Module | None) -> None:
        if module in self._entries:
            self._note(module, shell)
            self._changed()

    def _note(self, module: nn.Module, shell: nn.Module | None) -> None:
        self._compiled.add(module)
        if shell is not None:
            self.shells[shell] = self._entries[module]

    def wrap(self, enter: Callable[..., None], leave: Callable[..., None]) -> None:
        """Hear the calls of modules whose ``compile`` method was called; both get the entry and the module first."""
        for module in self._compiled:
            if module not in self.wrapped:
                entry = self._entries[module]
                unwrap: Any = dynamo.wrap_compiled(module, partial(enter, entry, module), partial(leave, entry, module))
                if unwrap is not None:
                    self.wrapped[module] = unwrap

    def unwrap(self) -> None:
        """Hear them no more."""
        while self.wrapped:
            self.wrapped.popitem()[1]()
