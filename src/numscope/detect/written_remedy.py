"""A remedy written with the script's own call: ``torch.rsqrt((var + eps).clamp_min(1e-6))`` for ``rsqrt(x.clamp_min(1e-6))``."""

from __future__ import annotations

import ast
import linecache
import re

from numscope.records.faults import ours

MOST_LETTERS = 60  # of an expression
_PACKAGES = frozenset({"torch", "F", "functional", "special", "nn.functional", "torch.special", "torch.nn.functional"})


def in_own_words(text: str, op: str, file: str, line: int) -> str:
    """The text with the line's function, and what it gives it, in the place of ``op(x``, if the line calls it once and stands by itself.

    Args:
        op: its plain name, as ``rsqrt``.
    """
    call = _call(linecache.getline(file, line).strip(), op)
    return re.sub(rf"(?:\btorch\.)?\b{op}\(x\b", lambda found: call, text) if call else text


def _call(code: str, op: str) -> str:
    """The call of a function up to what it works on; "" if that is not plain."""
    try:
        tree = ast.parse(code)
    except ours(SyntaxError, ValueError, RecursionError, MemoryError):  # a part of a statement
        return ""
    found = [given for node in ast.walk(tree) if isinstance(node, ast.Call) and (given := _given(node, op)) is not None]
    if len(found) != 1 or isinstance(found[0][1], ast.Starred):
        return ""
    function, value = found[0]
    text = ast.unparse(value)
    is_whole = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return "" if len(text) > MOST_LETTERS else f"{function}({text if is_whole else f'({text})'}"


def _given(call: ast.Call, op: str) -> tuple[str, ast.expr] | None:
    """A call's function, and what it works on."""
    first = call.args[0] if call.args else None
    name = ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""
    owner, _, last = name.rpartition(".")
    if last != op:
        return None
    if isinstance(call.func, ast.Attribute) and owner not in _PACKAGES:
        return f"torch.{op}", call.func.value
    return None if first is None else (name, first)
