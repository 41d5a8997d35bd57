"""Packages that take long to import: every process collects all files, and one of them runs a file's tests."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


def late(name: str, reason: str = "") -> Any:
    """The package, imported where something of it is first asked for. Where it is not installed, the file's tests are skipped."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(reason or f"{name} is not installed", allow_module_level=True)
    return _Late(name)


class _Late:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks at all that a file has
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
