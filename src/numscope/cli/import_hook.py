"""Calls a function once a module has been imported, so that numscope need not import it first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` right after the first import of a module, in the importing thread; at once if it is imported already.

    A script can set environment variables that torch reads at import (OMP_NUM_THREADS, TORCH_LOGS), so importing torch before the
    script's first line would change the run.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Doorbell(name, then))


class _Doorbell(MetaPathFinder):
    """Lets the other finders find the module and calls ``then`` when it has been executed.

    ``importlib.util.find_spec`` can look for a module long before it is imported, if ever, so each spec calls ``then``.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        spec = next((found for finder in others if (found := finder.find_spec(fullname, path, target)) is not None), None)
        loader = spec.loader if spec is not None else None
        if loader is None:
            return spec

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the instance's: the class's own comes back
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            loader.exec_module(module)
            self._then()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
