"""Source lines around the ones that a culprit names, where the file is still there and unchanged."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from numscope.records.finding import Finding

AROUND = 6  # lines before and after
MAX_BYTES = 4 << 20
MAX_FILES = 200

Excerpt = dict[str, object]  # file, line, first: number of the first line, lines


def excerpts(findings: Sequence[Finding]) -> list[Excerpt]:
    """Lines around each one that a finding's culprit or its stack names.

    A file is shown only if it is a Python file whose line still is what the run recorded: a run from somebody else names any file it likes.
    """
    found: dict[tuple[str, int], Excerpt] = {}
    files: dict[str, list[str]] = {}
    for finding in findings:
        if (culprit := finding.culprit) is None:
            continue
        for file, line, code in [(culprit.file, culprit.line, culprit.code), *((f, n, c) for f, n, _, c in culprit.stack)]:
            if (file, line) in found or (file not in files and len(files) >= MAX_FILES):
                continue
            if file not in files:
                files[file] = _lines(file)
            lines = files[file]
            first_code = code.strip().split("\n")[0].strip()
            if first_code and 0 < line <= len(lines) and first_code in lines[line - 1]:
                start = max(1, line - AROUND)
                found[file, line] = {"file": file, "line": line, "first": start, "lines": lines[start - 1 : line + AROUND]}
    return list(found.values())


def _lines(file: str) -> list[str]:
    if not file.endswith(".py"):
        return []
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # nobody may ever write to a pipe
        with open(handle, "rb") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return []
            return stream.read(MAX_BYTES).decode("utf-8", "replace").split("\n")
    except (OSError, ValueError):  # gone, or no name in this file system
        return []
