"""Functions of torch's whose calls are run by ours while somebody listens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any


def patch(owner: Any, name: str, ours: Callable[..., Any]) -> Callable[[], None]:
    """Have a function's calls run by ours, which gets the original and its arguments. Returns: what ends it."""
    original = owner.__dict__[name]
    on = True

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return ours(original, *args, **kwargs) if on else original(*args, **kwargs)

    setattr(owner, name, wrapped)

    def undo() -> None:
        nonlocal on
        on = False  # somebody may have patched on top of it: theirs stays, ours only passes on
        if owner.__dict__.get(name) is wrapped:
            setattr(owner, name, original)

    return undo


def patch_inside(decorated: FunctionType, ours: Callable[..., Any]) -> Callable[[], None]:
    """``patch`` for a function that torch has wrapped: scripts that imported it earlier run ours too. Returns: what ends it.

    The wrapper keeps the function in a cell named ``func``; where there is none, nothing is patched.
    """
    names, cells = decorated.__code__.co_freevars, decorated.__closure__ or ()
    if "func" not in names:
        return lambda: None
    cell = cells[names.index("func")]
    original = cell.cell_contents

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return ours(original, *args, **kwargs)

    cell.cell_contents = wrapped

    def undo() -> None:
        if cell.cell_contents is wrapped:
            cell.cell_contents = original

    return undo
