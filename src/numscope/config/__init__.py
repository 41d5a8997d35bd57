"""A configuration, from YAML or a dict to a plan; every error names the key as the user wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numscope.lazy import lazy_names

if TYPE_CHECKING:
    from numscope.config.loading import load
    from numscope.config.resolving import Resolved, resolve

__all__ = ["Resolved", "load", "resolve"]

# pydantic and PyYAML are loaded when a configuration is
_HOMES = {"load": "numscope.config.loading", "Resolved": "numscope.config.resolving", "resolve": "numscope.config.resolving"}
__getattr__ = lazy_names(__name__, _HOMES, globals())
