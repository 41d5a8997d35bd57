"""Functions of torch's whose calls are run by ours while somebody listens."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.jit import _builtins as torch_script
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from numscope.probe.hook import has_others_hooks


def patch(owner: Any, name: str, ours: Callable[..., Any]) -> Callable[[], None]:
    """Have a function's calls run by ours, which gets the original and its arguments. Returns: what ends it.

    TorchScript takes it for the operator that the original stands for, and compiles neither.
    """
    original = owner.__dict__[name]
    on = True

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return ours(original, *args, **kwargs) if on else original(*args, **kwargs)

    # Where compiled code breaks off to call it, dynamo leaves these two frames to Python, and goes on with those that they call.
    eval_frame: Any = torch._C._dynamo.eval_frame
    strategy = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT)
    for function in (wrapped, ours):
        if (code := getattr(function, "__code__", None)) is not None:
            eval_frame.set_code_exec_strategy(code, strategy)

    if (operator := torch_script._find_builtin(original)) is not None:  # type: ignore[no-untyped-call]
        torch_script._register_builtin(wrapped, operator)
    setattr(owner, name, wrapped)

    def undo() -> None:
        nonlocal on
        torch_script._get_builtin_table().pop(id(wrapped), None)  # type: ignore[no-untyped-call]
        on = False  # somebody may have patched on top of it: theirs stays, ours only passes on
        if owner.__dict__.get(name) is wrapped:
            setattr(owner, name, original)

    return undo


def settle_inference() -> Callable[[], None]:
    """Have no dispatch mode expected after ``torch.inference_mode`` that was taken off within it. Returns: what ends it.

    At its end torch sets back its thread's dispatch keys, that of dispatch modes too; with that key and without a mode the next operation
    fails.
    """
    undo = patch(torch.inference_mode, "__exit__", _leave_inference)
    return lambda: None if torch.is_inference_mode_enabled() else undo()  # what is taken off now comes to light at the end of that


def _leave_inference(original: Callable[..., Any], *args: Any) -> Any:
    left = original(*args)
    if _is_key_on("Python") and not _num_modes():
        for key in ("Python", "PythonTLSSnapshot"):
            torch._C._dispatch_tls_set_dispatch_key_included(key, False)
    return left


def settle_subclasses() -> Callable[[], None]:
    """Have ``Subclass(tensor)`` done as without our modes: torch makes none of what a dispatch mode has seen. Returns: what ends it."""
    make = torch._C.TensorBase.__new__

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is torch.Tensor or not _num_modes() or not all(map(_is_ours, _get_current_dispatch_mode_stack())):
            return make(cls, *args, **kwargs)
        with _disable_current_modes():
            return make(cls, *args, **kwargs)

    def undo() -> None:
        if torch.Tensor.__dict__.get("__new__") is new:
            del torch.Tensor.__new__

    torch.Tensor.__new__ = functools.wraps(make)(new)  # type: ignore[method-assign]
    return undo


def _is_ours(mode: object) -> bool:
    return type(mode).__module__.startswith(f"{__name__.partition('.')[0]}.")


_is_key_on, _num_modes = torch._C._dispatch_tls_is_dispatch_key_included, torch._C._len_torch_dispatch_stack


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


def patch_warnings(drops: Callable[[str], bool] = lambda message: False) -> Callable[[], None]:
    """Have warnings name the same line as if neither ours ran between them and their callers, nor what torch runs because of ours.

    Args:
        drops: says of which messages nobody is to hear, since ours are their cause.

    Returns: what ends it.
    """
    if not _drops:
        _unpatch.append(patch(warnings, "warn", _warn))
    _drops.append(drops)

    def undo() -> None:
        if drops in _drops:
            _drops.remove(drops)
            if not _drops:
                _unpatch.pop()()

    return undo


_drops: list[Callable[[str], bool]] = []
_unpatch: list[Callable[[], None]] = []
_HANDLES = torch.overrides.handle_torch_function.__code__
_CALLS_HOOKS = next((code for code in nn.Module._call_impl.__code__.co_consts if isinstance(code, CodeType)), None)


def _warn(original: Any, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **further: Any) -> None:
    if not any(drops(str(message)) for drops in _drops):
        original(message, category, _level(sys._getframe(), stacklevel), source, **further)


_warn._torchdynamo_disable = True  # type: ignore[attr-defined]


def _level(frame: FrameType, wanted: int) -> int:
    """The level, counted from a frame of ours, of the frame that has this level where we are not there."""
    level, left, is_ours, skips = 1, max(wanted, 1), True, 0
    while left > 0 and (outer := frame.f_back) is not None:
        name = outer.f_globals.get("__name__")
        if name == "numscope.cli.script":  # runs the script: bare, nothing is below
            return 1 << 30
        if outer.f_code is _HANDLES and (is_ours or (outer.f_back is not None and frame.f_code is outer.f_back.f_code)):
            skips = 2  # torch calls a mode of ours, and the function once more
        is_ours = type(name) is str and name.startswith("numscope.")  # a script may put anything there
        is_extra = is_ours or skips > 0 or (outer.f_code is _CALLS_HOOKS and not has_others_hooks(vars(outer.f_locals["self"])))
        if not ("importlib" in outer.f_code.co_filename and "_bootstrap" in outer.f_code.co_filename):  # Python does not count these
            level += 1
            left -= not is_extra
        frame, skips = outer, skips - 1
    return level + left
