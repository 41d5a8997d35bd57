"""``numscope doctor explain PATH…``: reads files, prints and writes the explanation, returns the exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from numscope.doctor.explain import Explanation, examine
from numscope.doctor.findings import CONSEQUENCES
from numscope.doctor.output import write_json
from numscope.doctor.records import Finding, to_json
from numscope.records.words import count

if TYPE_CHECKING:
    from rich.text import Text

FORMAT = 1
HEALTHY, FAULT, WRONG_USAGE, UNATTRIBUTED, INCOMPLETE = 0, 1, 2, 3, 5
SHOWN_FILES = 20
SHOWN_WHOM = 12

_STYLES = {"fault": "bold red", "degraded": "bold yellow", "note": "bold"}


def run(paths: Sequence[str], json_path: str = "", *, redact: bool = False) -> int:
    """Explains the files and folders, prints the findings, writes them to ``json_path`` ("-": instead); returns the exit code."""
    missing = [path for path in paths if not Path(path).exists()]
    if not paths or len(missing) == len(paths):
        got = ", ".join(missing) or "nothing"
        print(f"numscope doctor explain: PATH: got {got!r}, expected files or folders that exist.", file=sys.stderr)
        return WRONG_USAGE
    explanation = examine([Path(path) for path in paths], redact=redact)
    if json_path != "-":
        print_explanation(explanation, sys.stdout)
    if json_path and not write_json(to_json_values(explanation), json_path, "numscope doctor explain"):
        return WRONG_USAGE
    return exit_code(explanation)


def exit_code(explanation: Explanation) -> int:
    """0 nothing wrong, 1 a fault was found, 3 a fault with unknown cause, 5 nothing was recognized."""
    faults = [one for one in explanation.findings if one.severity == "fault"]
    if faults:
        return UNATTRIBUTED if all(one.id in CONSEQUENCES for one in faults) else FAULT
    return HEALTHY if explanation.recognized else INCOMPLETE


def headline(explanation: Explanation) -> str:
    """The most important sentence."""
    files, known = len(explanation.files), explanation.recognized
    if explanation.findings:
        if faults := sum(one.severity == "fault" for one in explanation.findings):
            return f"{count(faults, 'fault')} in {count(files, 'file')}. First: {explanation.findings[0].summary}"
        return f"No fault in {count(files, 'file')}; {count(len(explanation.findings), 'other finding')}."
    if not known:
        return f"Nothing was recognized in {count(files, 'file')}: no NCCL log, no flight-recorder dump, no output of torchrun."
    return f"Nothing wrong found in {count(len(known), 'file')}: {_kinds(explanation)}."


def to_json_values(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON values."""
    return {
        "format": FORMAT,
        "exit_code": exit_code(explanation),
        "headline": headline(explanation),
        "findings": [to_json(one) for one in explanation.findings],
        "files": [
            {"name": file.name, "kinds": sorted(file.kinds), "num_lines": file.num_lines, "problem": file.problem}
            for file in explanation.files
        ],
    }


def print_explanation(explanation: Explanation, file: IO[str] | None = None) -> None:
    """Prints it, with colors if the file is a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for one in explanation.findings:
        console.print(_finding(one))
    console.print(Text(headline(explanation), "bold" if not explanation.findings else ""))
    if explanation.findings and explanation.recognized:
        console.print(Text(f"Read: {_kinds(explanation)}.", "dim"))
    strange = [one for one in explanation.files if one.problem or not one.kinds]
    for one_file in strange[:SHOWN_FILES]:
        console.print(Text(f"  {one_file.name}: {one_file.problem or 'nothing was recognized in it'}", "dim"))
    if len(strange) > SHOWN_FILES:
        console.print(Text(f"  and {len(strange) - SHOWN_FILES} more files without findings", "dim"))


def _finding(one: Finding) -> Text:
    from rich.text import Text

    whom = [f"rank {rank}" for rank in one.ranks[:SHOWN_WHOM]]
    whom += [f"{len(one.ranks) - SHOWN_WHOM} more"] if len(one.ranks) > SHOWN_WHOM else []
    whom += one.hosts[:SHOWN_WHOM]
    return Text.assemble(
        (f"{one.severity} ", _STYLES[one.severity]),
        (one.id, "bold"),
        f" ({', '.join([one.confidence, *whom])})\n  {one.summary}\n",
        *((f"    {line}\n", "dim") for line in one.evidence),
        *((f"  > {line}\n", "green") for line in one.remedy),
    )


def _kinds(explanation: Explanation) -> str:
    kinds = Counter(kind for file in explanation.recognized for kind in file.kinds)
    return ", ".join(f"{kind} ({number})" for kind, number in sorted(kinds.items()))
