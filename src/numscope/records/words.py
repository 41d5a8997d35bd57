"""Suggestions for mistyped words."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(word: str, known: Sequence[str]) -> str:
    """``Did you mean …?`` with a space before it, or nothing."""
    near = difflib.get_close_matches(word, known, 1)
    return f" Did you mean {near[0]!r}?" if near else ""
