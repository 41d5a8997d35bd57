"""``numscope doctor explain PATH…``: reads, prints, writes JSON, and says how to end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from numscope.doctor.explain import examine
from numscope.doctor.explain.report import exit_code, print_explanation, to_json_values

WRONG_USAGE = 2


def run(paths: Sequence[str], json_path: str = "", *, redact: bool = False, strict: bool = False) -> int:
    """Explains the files and folders, and prints what was found.

    Args:
        json_path: a file for the same as JSON; "-" for standard output, in place of the text; "" for none.
        redact: no names of hosts, no addresses.
        strict: what is degraded has its own exit code.

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
                Path(json_path).write_text(text, encoding="utf-8")
            except OSError as error:
                print(
                    f"numscope doctor explain: --json: got {json_path!r}, expected a file that can be written: {error.strerror}.",
                    file=sys.stderr,
                )
                return WRONG_USAGE
    return exit_code(explanation, strict=strict)
