"""Calls back once a module has been imported, so that numscope need not import it first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Calls ``then`` right after the first import of a module, in the thread that imports it; at once if it stands already.

    A script may set the environment that torch reads while it loads (OMP_NUM_THREADS, TORCH_LOGS): importing torch before the
    script's first line would change the run.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Doorbell(name, then))


class _Doorbell(MetaPathFinder):
    """Lets the other finders find the module, rings when it has been executed, and is gone by then.

    A module may be looked for, with ``importlib.util.find_spec``, long before it is imported, if ever: each spec rings.
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
