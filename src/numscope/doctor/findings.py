"""Makes findings from the table of them in findings.yaml, and spells ranks, hosts and lists.

Something degraded becomes a fault if it made a phase fail, or if a log mentions it, since logs do so only once it has caused harm.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import yaml

from numscope.doctor.records import Confidence, DoctorFinding, Severity
from numscope.records.words import escape
from numscope.records.words import named as named  # also for those who make findings

_MOST_EVIDENCE = 12
_READER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ROWS: dict[str, dict[str, Any]] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), _READER)
# By id or id/case, with what a case takes from its id.
TABLE = {id: {"severity": "fault", **_ROWS.get(id.partition("/")[0], {}), **row} for id, row in _ROWS.items()}
CATALOG: dict[str, Severity] = {id: row["severity"] for id, row in TABLE.items() if "/" not in id}
# Usually caused by another fault: next to a cause, these are notes.
CONSEQUENCES = frozenset(id for id, row in TABLE.items() if row.get("follows"))


def finding(
    id: str,
    *,
    ranks: Iterable[int] = (),
    hosts: Iterable[str] = (),
    links: Iterable[tuple[str, str]] = (),
    evidence: Iterable[str] = (),
    confidence: Confidence | None = None,
    severity: Severity | None = None,
    remedy: Iterable[str] = (),
    **words: object,
) -> DoctorFinding:
    """A finding as the table has it, with what is given here; ``id`` may name a case, ``words`` fill the braces there.

    Unknown ranks (-1) and hosts ("") are left out. ``remedy`` comes after the table's.
    """
    row = TABLE[id]
    ranks, hosts = sorted({rank for rank in ranks if rank >= 0}), sorted({host for host in hosts if host})
    host = hosts[0] if hosts else ""
    about: dict[str, object] = {"rank": ranks[0] if ranks else "", "ranks": named(ranks), "Ranks": capital(named(ranks)), "host": host}
    about |= {"hosts": listed(hosts), "Hosts": capital(listed(hosts)), "pasted": pasted(host), "without": without(host), **words}
    lines = [line.format_map(about) for line in row.get("remedy", "").splitlines()]
    return DoctorFinding(
        id=id.partition("/")[0],
        severity=severity or row["severity"],
        summary=row["summary"].format_map(about),
        ranks=tuple(ranks),
        hosts=tuple(hosts),
        links=tuple(dict.fromkeys(links)),
        evidence=tuple(dict.fromkeys(evidence))[:_MOST_EVIDENCE],
        confidence=confidence or row.get("confidence", "likely"),
        remedy=tuple(dict.fromkeys(line for line in (*lines, *remedy) if line)),
    )


def gravity(finding: DoctorFinding) -> tuple[int, int]:
    """The sort key of findings: the gravest first, then the most certain."""
    return get_args(Severity).index(finding.severity), get_args(Confidence).index(finding.confidence)


def listed(words: Iterable[Any], most: int = 6) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b and 40 more``."""
    items = [str(word) for word in words]
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def without(host: str = "") -> str:
    """The remedy that leaves a host out of the job, in SLURM's words; "" for no host."""
    return f"srun --exclude={pasted(host)} …" if host else ""


def pasted(host: str) -> str:
    """A host's name in a shell's line: its real name, without the number that distinguishes hosts of the same name, and quoted."""
    return shlex.quote(escape(re.sub(r"#\d+$", "", host)))
