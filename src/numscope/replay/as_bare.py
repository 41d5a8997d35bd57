"""Operations that do other things within a dispatch mode than outside: within a probe they are to do what they do outside."""

from __future__ import annotations

import ast
import linecache
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from types import FrameType
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from numscope.probe.dynamo import run_plainly
from numscope.records.faults import suppress

Caller = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


@run_plainly
def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operation's result as it is outside of modes."""
    product = getattr(_here, "product", None)
    if product is not None and (found := product.went_on(func, args)) is not None:
        return found
    caller = _caller(func)
    return func(*args, **kwargs) if caller is None else caller(func, args, kwargs)


def needs_care(func: Any) -> bool:
    return _caller(func) is not None


@lru_cache(maxsize=4096)
def _caller(func: Any) -> Caller | None:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    if func is torch.ops.aten.squeeze.dim:
        return _maybe_of_product
    if schema.name in _CONJUGATE or not schema.name.startswith(_OF_TORCH):
        return _resolving
    if schema.name in _VECTORS:
        return _spared_vectors
    writes_lists = any(a.alias_info is not None and a.alias_info.is_write and str(a.type) == "List[Tensor]" for a in schema.arguments)
    return _counted if writes_lists and not schema.name.startswith(_NOT_COUNTED) else None


_PRODUCTS = frozenset({"@", "matmul", "__matmul__", "__rmatmul__"})
_here = threading.local()  # product: what may be one, of this thread


class _BatchTimesOne:
    """A batch of matrices times a single one, which asks for no gradient. Where a mode is active torch makes one product of it, by the
    operations squeeze, view and mm; else the single matrix is repeated, and other last bits come out.
    """

    def __init__(self, single: Tensor, squeezed: Tensor, place: tuple[int, int]) -> None:
        self._single, self._squeezed, self._place = ref(single), ref(squeezed), place  # nothing is kept alive
        self._batch: ref[Tensor] | None = None
        self._rows: ref[Tensor] | None = None

    def went_on(self, func: Any, args: Sequence[Any]) -> Tensor | None:
        """The result of the operation where it is the product's second one, and of the product where it is the third."""
        made: Tensor
        if func is torch.ops.aten.view.default and self._batch is None and args[0].dim() == 3:
            made = func(*args)
            self._batch, self._rows = ref(args[0]), ref(made)
            return made
        _here.product = None
        if func is not torch.ops.aten.mm.default or self._batch is None or self._rows is None:
            return None
        batch, rows, single = self._batch(), self._rows(), self._single()
        if batch is None or single is None or args[0] is not rows or args[1] is not self._squeezed():
            return None
        if rows.shape != (batch.shape[0] * batch.shape[1], batch.shape[2]) or _place(sys._getframe(2)) != self._place:
            return None
        made = torch.ops.aten.bmm.default(batch, single.expand(batch.shape[0], -1, -1))
        return made.view(-1, made.shape[-1])


def _maybe_of_product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    result = func(*args, **kwargs)
    single = args[0]
    if len(args) == 2 and args[1] == 0 and single.dim() == 3 and single.shape[0] == 1 and not single.requires_grad:
        frame = _of_script(sys._getframe(2))
        if frame is not None and _called(frame) in _PRODUCTS:
            _here.product = _BatchTimesOne(single, result, _place(frame))
    return result


def _place(frame: FrameType | None) -> tuple[int, int]:
    """Where the innermost frame that is no probe's is: operations of one call are at one place."""
    frame = _of_script(frame)
    return (0, 0) if frame is None else (id(frame), frame.f_lasti)


def _of_script(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OF_PROBES):
        frame = frame.f_back
    return frame


_OF_TORCH = ("aten::", "prims::", "prim::", "profiler::", "c10d::", "_c10d_functional::", "c10d_functional::")
_CONJUGATE = frozenset({"aten::linalg_pinv", "aten::linalg_lstsq"})  # within their kernels
_LAZY = ("Conjugate", "Negative", "ZeroTensor")


def _resolving(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """With what it conjugates lazily inside of it resolved: within a mode torch leaves that out, and the results are wrong."""
    left_out = [key for key in _LAZY if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    try:
        for key in left_out:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        return func(*args, **kwargs)
    finally:
        for key in left_out:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


# Torch's loops over lists leave it to the operations on their elements to count versions, which within a mode don't. Of these none does.
_NOT_COUNTED = ("aten::_fused_", "aten::_amp_")


def _counted(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """With what it wrote counted: by versions autograd finds the history of views, and notices that what it needs was overwritten."""
    of_args = zip(func._schema.arguments, args, strict=False)
    lists = [value for argument, value in of_args if argument.alias_info is not None]
    lists += [value for value in kwargs.values() if isinstance(value, list | tuple)]
    written = [one for values in lists for one in values if isinstance(one, Tensor) and not one.is_inference()]
    before = [one._version for one in written]
    result = func(*args, **kwargs)
    increment_version([one for one, version in zip(written, before, strict=True) if one._version == version])
    return result


# Where a mode is active, torch computes vectors even if only values are asked for, and these with another algorithm.
_VECTORS = {"aten::_linalg_svd": ("compute_uv", True), "aten::_linalg_eigh": ("compute_v", True)}
_OF_VALUES = frozenset({"svdvals", "eigvalsh", "cond", "norm", "matrix_norm", "nuclear_norm"})
_OF_PROBES = ("numscope.replay.", "torch._dynamo.", "torch._compile")  # modules in whose frames a probe runs
_PLAIN = (Tensor, nn.Parameter)


def _spared_vectors(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Without vectors where the script's call asks for none, and they were computed for the mode's sake."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False), **kwargs)
    asked, default = _VECTORS[func._schema.name]
    a = given["A"]
    is_needed = (
        (torch.is_grad_enabled() and a.requires_grad) or type(a) not in _PLAIN or torch._C._functorch.peek_interpreter_stack() is not None
    )
    frame = _of_script(sys._getframe(2))
    if given.get(asked, default) and not is_needed and forward_ad._current_level < 0 and frame is not None and _called(frame) in _OF_VALUES:
        given[asked] = False
    return func(**given)


def _called(frame: FrameType) -> str:
    with suppress(Exception):  # whoever has made the code says where its source is, and perhaps wrongly
        return _read_called(frame)
    return ""


def _read_called(frame: FrameType) -> str:
    """The name of the function that a frame's instruction calls, or ``@``; empty where its source doesn't tell.

    What a function written in Python does has a frame of its own: it is one written in C.
    """
    if sys.version_info < (3, 11):  # which part of a line is at work is not known
        return ""
    line, end, begins, ends = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[(line or 1) - 1 : end]
    if not lines or begins is None or ends is None:
        return ""
    lines[-1] = lines[-1].encode()[:ends].decode(errors="replace")
    lines[0] = lines[0].encode()[begins:].decode(errors="replace")
    text = "".join(lines)
    for source in (f"({text}\n)", text):
        with suppress(SyntaxError, ValueError):
            (statement,) = ast.parse(source).body
            if isinstance(statement, ast.AugAssign):
                return "@" if isinstance(statement.op, ast.MatMult) else ""
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.MatMult):
                return "@"
            called = value.func if isinstance(value, ast.Call) else None
            return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return ""
