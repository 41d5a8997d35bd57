"""A remedy written with the script's own expression: ``rsqrt((var + eps).clamp_min(1e-6))`` for ``rsqrt(x.clamp_min(1e-6))``."""

from __future__ import annotations

import ast
import linecache
import re

MOST_LETTERS = 60  # of an expression
_PACKAGES = frozenset({"torch", "F", "functional", "special", "nn.functional", "torch.special", "torch.nn.functional"})


def in_own_words(text: str, op: str, file: str, line: int) -> str:
    """The text with what the line gives an operation in the place of ``x``, if the line calls it once and stands by itself.

    Args:
        op: its plain name, as ``rsqrt``.
    """
    given = _argument(linecache.getline(file, line).strip(), op)
    return re.sub(rf"\b{op}\(x\b", lambda found: f"{op}({given}", text) if given else text


def _argument(code: str, op: str) -> str:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a part of a statement
        return ""
    found = [given for node in ast.walk(tree) if isinstance(node, ast.Call) and (given := _given(node, op)) is not None]
    if len(found) != 1 or isinstance(found[0], ast.Starred):
        return ""
    text = ast.unparse(found[0])
    is_whole = isinstance(found[0], ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return "" if len(text) > MOST_LETTERS else text if is_whole else f"({text})"


def _given(call: ast.Call, op: str) -> ast.expr | None:
    """What a call of this function or method works on."""
    first = call.args[0] if call.args else None
    if isinstance(call.func, ast.Name):
        return first if call.func.id == op else None
    if not isinstance(call.func, ast.Attribute) or call.func.attr != op:
        return None
    return first if ast.unparse(call.func.value) in _PACKAGES else call.func.value
