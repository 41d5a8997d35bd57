"""``numscope doctor explain PATH…``: reads files, prints and writes findings, returns the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from numscope.doctor.explain import examine
from numscope.doctor.explain.report import exit_code, print_explanation, to_json_values
from numscope.records.files import write_atomically

WRONG_USAGE = 2


def run(paths: Sequence[str], json_path: str = "", *, redact: bool = False, strict: bool = False) -> int:
    """Explains the files and folders, and prints the findings.

    Args:
        json_path: file for the findings as JSON; "-" for standard output instead of the text; "" for none.
        redact: replace host names and addresses.
        strict: degradations have their own exit code.

    Returns: the exit code.
    """
    missing = [path for path in paths if not Path(path).exists()]
    if not paths or len(missing) == len(paths):
        got = ", ".join(missing) or "nothing"
        print(f"numscope doctor explain: PATH: got {got!r}, expected files or folders that exist.", file=sys.stderr)
        return WRONG_USAGE
    explanation = examine([Path(path) for path in paths], redact=redact)
    if json_path != "-":
        print_explanation(explanation, sys.stdout)
    if json_path:
        text = json.dumps(to_json_values(explanation, strict=strict), indent=1) + "\n"
        if json_path == "-":
            sys.stdout.write(text)
        else:
            try:
                write_atomically(json_path, text)
            except OSError as error:
                print(
                    f"numscope doctor explain: --json: got {json_path!r}, expected a file that can be written: {error.strerror}.",
                    file=sys.stderr,
                )
                return WRONG_USAGE
    return exit_code(explanation, strict=strict)
