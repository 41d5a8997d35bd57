"""Finds the user's line: captures the Python stack cheaply, and computes line numbers only on demand.

A capture keeps code objects and instruction offsets, never frames: a frame would keep its locals, and so activations, alive.
"""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from numscope.records.places import is_installed

USER, OURS, TORCH, STANDARD, ENGINE, RECOMPUTE, LAUNCHER = range(7)  # whose frame it is; ENGINE is torch calling the autograd engine

Resolved = tuple[str, int, str, str]  # file, line, function, code


def _full(file: str) -> str:
    return file if file.startswith("<") else os.path.abspath(file)


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")


_TORCH = tuple(_folder(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), name)) for name in ("torch", "functorch"))
_OURS = _folder(os.path.dirname(os.path.dirname(__file__)))
_STANDARD = tuple({_folder(p) for p in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")) if p})
_MACHINERY = ("_ops.py", "_compile.py", "_python_dispatch.py", "_contextlib.py", "_tensor.py")
# Frameworks' own wrappers of torch's operations and of models' calls: the line to look at is the one that calls them.
_WRAPPERS = re.compile(
    r"/keras/src/(ops/|backend/torch/\w+\.py$|utils/traceback_utils\.py$|layers/layer\.py$)"
    r"|/accelerate/utils/operations\.py$|/deepspeed/(runtime/engine|utils/nvtx)\.py$".replace("/", re.escape(os.sep))
)
_LAUNCHERS = os.path.join("numscope", "cli", "script.py"), os.path.join("IPython", "core", "interactiveshell.py")
_CHECKPOINT = os.path.join(_TORCH[0], "utils", "checkpoint.py")


@functools.lru_cache(maxsize=65536)  # by file: hashing a code object walks its instructions
def _owner_of_file(path: str) -> int:
    if path.startswith("<"):  # "<stdin>" and "<ipython-input-3>" are the user's
        return STANDARD if path.startswith(("<frozen ", "<__array_function__")) else TORCH if path.startswith("<eval_with_key>") else USER
    path = os.path.abspath(path)
    if path.endswith(_LAUNCHERS):
        return LAUNCHER
    if path.startswith(_OURS):
        return OURS
    if path.startswith(_TORCH):
        return RECOMPUTE if path == _CHECKPOINT else TORCH
    if _WRAPPERS.search(path):
        return TORCH
    if path.startswith(_STANDARD) and not is_installed(path):  # packages lie inside the standard library's folder
        return STANDARD
    return USER


@functools.lru_cache(maxsize=65536)
def _is_installed(path: str) -> bool:
    return is_installed(_full(path))


@functools.lru_cache(maxsize=65536)
def _machinery(path: str) -> bool:
    """Torch's own files that stand between an operation and whoever asked for it."""
    return path.endswith(_MACHINERY) or f"{os.sep}_dynamo{os.sep}" in path


def owner(code: CodeType) -> int:
    """Whose code it is: the user's (or that of a library other than torch), ours, torch's, or the standard library's."""
    whose = _owner_of_file(code.co_filename)
    return ENGINE if whose == TORCH and code.co_name == "_engine_run_backward" else whose


@dataclass(frozen=True, slots=True)
class Stack:
    """The user's frames of a captured stack, innermost first.

    Args:
        frames: code objects, each with the offset of the instruction being executed.
        inner: torch's innermost frame, the fallback if the user has none (an optimizer that we replay).
        recompute: activation checkpointing was recomputing a forward.
    """

    frames: tuple[tuple[CodeType, int], ...] = ()
    inner: tuple[CodeType, int] | None = None
    recompute: bool = False

    def resolve(self) -> tuple[Resolved, ...]:
        """``(file, line, function, code)`` from the outermost frame to the innermost; empty if no frame is known."""
        frames = self.frames or ((self.inner,) if self.inner is not None else ())
        return tuple(resolve(code, offset) for code, offset in reversed(frames))

    def innermost(self) -> Resolved | None:
        """The innermost frame outside installed packages, else the innermost one; None if no frame is known.

        *Cost:* one frame is resolved, however deep the stack is.
        """
        frames = self.frames or ((self.inner,) if self.inner is not None else ())
        for pair in frames:
            if not _is_installed(pair[0].co_filename):
                return resolve(*pair)
        return resolve(*frames[0]) if frames else None


def capture(frame: FrameType | None, boundary: CodeType | None = None) -> Stack:
    """Capture the user's frames from ``frame`` outward.

    The walk ends at ``boundary``, our function that replays a step, because frames outside it are not the step's own. It also ends where
    torch calls the autograd engine, because frames outside that belong to ``backward()`` and not to the line at fault, and at the
    launcher of ``numscope run`` or IPython's of cells, whose callers are the console script, the kernel and their libraries.

    Args:
        frame: the innermost frame to look at.
        boundary: code of the function at which to stop.

    *Cost:* about 0.1 µs a frame; no line number is computed.
    """
    return _stack(_pairs(frame), boundary)


def _pairs(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lasti
        frame = frame.f_back


def _stack(pairs: Iterable[tuple[CodeType, int]], boundary: CodeType | None = None) -> Stack:
    frames: list[tuple[CodeType, int]] = []
    inner: tuple[CodeType, int] | None = None
    recompute = False
    for pair in pairs:
        code = pair[0]
        if code is boundary:
            break
        whose = owner(code)
        if whose == USER:
            frames.append(pair)
        elif whose in (ENGINE, LAUNCHER):
            break
        elif whose == RECOMPUTE:
            recompute = True
        elif whose == TORCH and inner is None and not _machinery(code.co_filename):
            inner = pair
    return Stack(tuple(frames), inner, recompute)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from ``frame`` outward; none beyond torch's call of the autograd engine."""
    while frame is not None and (whose := owner(frame.f_code)) != USER:
        frame = None if whose in (ENGINE, LAUNCHER) else frame.f_back
    return frame


def user_frames(frame: FrameType | None) -> list[tuple[FrameType, int]]:
    """The frames of the user's code with their lines, from the outermost to ``frame``, without torch's and those outside the launcher."""
    found = []
    while frame is not None and (whose := owner(frame.f_code)) != LAUNCHER:
        if whose == USER and frame.f_code.co_filename[:8] != "<frozen ":
            found.append((frame, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    return found[::-1]


def of_walk(walked: Sequence[Any]) -> Stack:
    """``capture`` of what C has noted: code and offset of each frame, the innermost first, out to a script's outermost."""
    return _stack(zip(walked[::2], walked[1::2], strict=True))


def of_text(text: str) -> tuple[Resolved, ...]:
    """The user's frames in the text of a traceback, from the outermost to the innermost."""
    found = re.findall(r'File "(.+?)", line (\d+), in (.+)\n\s*(.*)', text)
    return tuple((file, int(line), function, code.strip()) for file, line, function, code in found if _owner_of_file(file) == USER)


def resolve(code: CodeType, offset: int) -> Resolved:
    """File, line, function and code text of one captured instruction.

    In a statement of several lines, this is the line of the call being executed, as in Python's own tracebacks. ``code`` is "" if the
    source is not available.
    """
    line = _line(code, offset)
    text = linecache.getline(code.co_filename, line).strip() if line else ""
    function = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
    return _full(code.co_filename), line, function, text


def _line(code: CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= max(offset, 0) < end:
            return line or 0
    return code.co_firstlineno
