"""A package's public names, each fetched from its own file when it is first used."""

from __future__ import annotations

import importlib
import os

TYPE_CHECKING = False  # typing and ast take longer to import than everything here: 10 ms of every script that imports numscope
if TYPE_CHECKING:
    from collections.abc import Callable


def homes_of(file: str) -> dict[str, str]:
    """The public names of a package, each with the module it comes from, by the stub beside its ``__init__.py``.

    Args:
        file: the package's ``__file__``.
    """
    homes = {}
    with open(f"{os.path.splitext(file)[0]}.pyi", encoding="utf-8") as stub:
        for line in stub:
            if line.startswith("from "):
                _, module, _, name, _, _ = line.split()  # from MODULE import NAME as NAME
                homes[name] = module
    return homes


def lazy_names(package: str, file: str, namespace: dict[str, object]) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """A package's ``__getattr__``, ``__dir__`` and ``__all__``.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
        namespace: its ``globals()``: a name stays there once it was fetched.
    """
    homes = homes_of(file)

    def fetch(name: str) -> object:
        if name in homes:
            value = getattr(importlib.import_module(homes[name]), name)
            namespace[name] = value  # the next use does not come here
            return value
        hint = ""
        if not name.startswith("_"):  # probing for dunders (copy, inspect, doctest) is no typing mistake
            from numscope.records.words import nearest

            near = nearest(name, homes)
            hint = f".{near}" if near else f", expected one of {', '.join(sorted(homes))}"
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return fetch, lambda: sorted(homes), sorted(homes)
