"""Lines of code as people read them, as programs open them, and with their neighbors."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable
from urllib.parse import quote

from numscope.records.faults import ours

CONTEXT_LINES = 2
_INSTALLED = re.compile(f"{re.escape(os.sep)}(site|dist)-packages{re.escape(os.sep)}")

cell_of: Callable[[str], int | None] = lambda file: None  # noqa: E731  # the number of a notebook's cell by its code's file name


def place(file: str, line: int) -> str:
    """``/path/train.py:12``, which terminals and editors open; in a notebook ``cell [3], line 4``; in PyCharm's console its own form."""
    cell = cell_of(file)
    if cell is not None:
        return f"cell [{cell}], line {line}"
    if os.environ.get("PYCHARM_HOSTED"):
        return f'File "{file}", line {line}'
    return f"{file}:{line}"


def is_installed(path: str) -> bool:
    """Whether a file is an installed package's, rather than the script's or a module's next to it."""
    return _INSTALLED.search(path) is not None  # no generator: what strikes as one is closed is lost


def file_of(cls: type) -> str:
    """The file that a class is defined in; "" for that of a notebook or of a prompt."""
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or ""


def quoted(path: str) -> str:
    """A path as a part of an address, whatever is in it."""
    try:
        return quote(os.fsencode(path.replace(os.sep, "/")))
    except UnicodeEncodeError:  # no name that a file system gives
        return quote(path.encode("utf-8", "surrogatepass"))


def terminal_link(file: str, line: int) -> str:
    """An address for a terminal's hyperlink (OSC 8), with the line as its fragment; "" where there is no file."""
    if cell_of(file) is not None or not os.path.isabs(file):
        return ""
    import socket

    return f"file://{quote(socket.gethostname())}{quoted(file)}#{line}"


def notebook_link(file: str, line: int) -> str:
    """An address for a notebook's page, "" where there is no file.

    JupyterLab and VS Code open a relative one themselves; a browser opens no file beside the notebook's folder, but hands one to VS Code.
    """
    if cell_of(file) is not None or not os.path.isabs(file):
        return ""
    below = os.path.relpath(file)
    if not below.startswith(os.pardir + os.sep):
        in_vscode = "VSCODE_PID" in os.environ
        return f"{quoted(below)}#{f'L{line}' if in_vscode else f'line={line - 1}'}"  # JupyterLab counts from 0, as RFC 5147 does
    return f"vscode://file{quoted(file)}:{line}"


def source(file: str, line: int, code: str) -> list[tuple[int, str]]:
    """A line between its neighbors, with their numbers and without their common margin; [] if the file is gone or has changed."""
    try:
        linecache.checkcache(file)
        lines = linecache.getlines(file)
    except ours(OSError, ValueError):  # not a name in this file system
        lines = []
    first = code.strip().split("\n")[0].strip()
    if not (0 < line <= len(lines)) or first not in lines[line - 1]:
        return []
    numbers = range(max(1, line - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES) + 1)
    margin = min((len(s) - len(s.lstrip()) for n in numbers if (s := lines[n - 1].expandtabs(4)).strip()), default=0)
    return [(number, lines[number - 1].rstrip().expandtabs(4)[margin:]) for number in numbers]
