"""A remedy written with the script's own expressions: ``torch.rsqrt((var + eps).clamp_min(1e-6))`` for ``rsqrt(x.clamp_min(1e-6))``."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from functools import lru_cache

from numscope.records.faults import ours

MOST_LETTERS = 60  # of an expression
_PACKAGES = frozenset({"torch", "F", "functional", "special", "nn.functional", "torch.special", "torch.nn.functional"})
_SIGNS: dict[str, type[ast.operator]] = {"div": ast.Div, "reciprocal": ast.Div, "pow": ast.Pow}
_FIRST, _SECOND = "\0", "\1"  # stand for what may itself have an x or a y in it
_TWICE = re.compile(r"\bx / torch\.where\(y\.abs\(\) < ([^,]+), \1, y\)")


def in_own_words(text: str, op: str, file: str, line: int) -> str:
    """The text with what the line calculates in the place of ``op(x``, ``x / y`` or ``x ** p``, if there is one such place on the line.

    Args:
        op: its plain name, as ``rsqrt``.
    """
    if not re.search(rf"\b{op}\(x\b|\bx / |\*\* p\b", text):  # nor does the file have to be read
        return text
    whole = _tree("".join(linecache.getlines(file)))
    alone = whole or _tree(linecache.getline(file, line).strip())
    found = _found(alone, line if whole else 1, op) if alone else []
    if len(found) != 1 or max(map(len, found[0])) > MOST_LETTERS:
        return text
    first, second = found[0]
    if not second:
        return re.sub(rf"(?:\btorch\.)?\b{op}\(x\b", lambda _: first, text)
    if op == "pow":
        return re.sub(r"\bx\.clamp_min\(([^)]+)\) \*\* p\b", lambda m: f"{first}.clamp_min({m[1]}) ** {second}", text)
    if not second.isidentifier():
        text = _TWICE.sub(lambda m: f"d = {_SECOND}; {_FIRST} / torch.where(d.abs() < {m[1]}, {m[1]}, d)", text)
    divided = re.sub(r"\bx / (?=\S*\by\b)", f"{_FIRST} / ", text)
    text = text if divided == text else re.sub(r"\by\b", _SECOND, divided)
    return text.replace(_FIRST, first).replace(_SECOND, second)


@lru_cache(maxsize=4)
def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except ours(SyntaxError, ValueError, RecursionError, MemoryError):  # none of Python's, or a part of a statement
        return None


@lru_cache(maxsize=4)
def _found(tree: ast.Module, line: int, op: str) -> list[tuple[str, str]]:
    return list(_places(tree, line, op))


def _places(tree: ast.Module, line: int, op: str) -> Iterator[tuple[str, str]]:
    """Of each place on a line where an operation is written: a call up to what it works on, and ""; or both sides of a sign."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.AugAssign) or not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, _SIGNS.get(op, ast.MatMult)):
            yield _whole(node.left), _whole(node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, _SIGNS.get(op, ast.MatMult)):
            yield "x" * (MOST_LETTERS + 1), ""  # nothing of its form
        elif isinstance(node, ast.Call) and (given := _given(node, op)) is not None and not isinstance(given[1], ast.Starred):
            others = [one for one in node.args if one is not given[1]]
            yield (_whole(given[1]), _whole(others[0])) if op in _SIGNS and others else (f"{given[0]}({_whole(given[1])}", "")


def _whole(value: ast.expr) -> str:
    text = ast.unparse(value)
    return text if isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant) else f"({text})"


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
