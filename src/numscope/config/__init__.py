"""A configuration, from YAML or a dict to a plan; every error names the key as the user wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numscope.config.loading import load
    from numscope.config.resolving import Resolved, resolve

__all__ = ["Resolved", "load", "resolve"]


def __getattr__(name: str) -> object:  # pydantic and PyYAML are loaded when a configuration is
    if name == "load":
        from numscope.config.loading import load

        return load
    if name in ("Resolved", "resolve"):
        from numscope.config import resolving

        return getattr(resolving, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
