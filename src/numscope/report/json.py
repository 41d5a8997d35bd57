"""Findings as a JSON file, described in ``docs/json.md`` and checked by ``schema.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numscope.records.files import write_atomically
from numscope.records.finding import Finding, plain

# Incremented when a reader of the previous version would misread the file; added keys do not count.
SCHEMA_VERSION = 1


def write_findings(
    path: str | os.PathLike[str], findings: Sequence[Finding], contained: Sequence[Finding], meta: Mapping[str, Any]
) -> None:
    """Write the findings of a run as JSON. A reader never sees half a file.

    Args:
        path: the file; missing folders are created.
        findings: values that escaped, in order.
        contained: non-finite values that reached nothing.
        meta: facts on the run, by name; values that JSON lacks are written as their ``str``.

    Raises:
        OSError: the file cannot be written; the old file is untouched.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "schema_version": SCHEMA_VERSION,
        "meta": plain(dict(meta)),
        "findings": [plain(finding) for finding in findings],
        "contained": [plain(finding) for finding in contained],
    }
    # With ensure_ascii (the default): a lone surrogate in a file's name is not valid UTF-8, but JSON can escape it.
    write_atomically(target, json.dumps(document, indent=1, allow_nan=False, default=str) + "\n")
