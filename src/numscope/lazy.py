"""A package's public names, each fetched from its own file when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str], namespace: dict[str, object]) -> Callable[[str], object]:
    """A package's ``__getattr__``.

    Args:
        package: its ``__name__``.
        homes: public name → the module it comes from.
        namespace: the package's ``globals()``: a name stays there once it was fetched.
    """

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

    return fetch
