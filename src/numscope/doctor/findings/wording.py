"""How findings are made, and how ranks, hosts and lists are spelled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from numscope.doctor.findings.catalog import CATALOG
from numscope.doctor.records import Confidence, Finding, Severity

_MOST_EVIDENCE = 12


def finding(
    id: str,
    summary: str,
    *,
    ranks: Iterable[int] = (),
    hosts: Iterable[str] = (),
    links: Iterable[tuple[str, str]] = (),
    evidence: Iterable[str] = (),
    confidence: Confidence = "likely",
    remedy: Iterable[str] = (),
    severity: Severity | None = None,
) -> Finding:
    """A finding with the catalog's severity, unless another one is given."""
    return Finding(
        id=id,
        severity=severity or CATALOG[id],
        summary=summary,
        ranks=tuple(sorted(set(ranks))),
        hosts=tuple(sorted({host for host in hosts if host})),
        links=tuple(dict.fromkeys(links)),
        evidence=tuple(dict.fromkeys(evidence))[:_MOST_EVIDENCE],
        confidence=confidence,
        remedy=tuple(dict.fromkeys(remedy)),
    )


def gravity(finding: Finding) -> tuple[int, int]:
    """By which findings are sorted: the gravest first, then the most certain."""
    return get_args(Severity).index(finding.severity), get_args(Confidence).index(finding.confidence)


def named(ranks: Iterable[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0–3, 7``, ``ranks 0, 2, 4 and 40 more``."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}, {run[-1]}" if len(run) == 2 else f"{run[0]}–{run[-1]}" for run in runs]
    shown, left = words[:most], sum(map(len, runs[most:]))
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(shown) + (f" and {left} more" if left else "")


def listed(words: Iterable[Any], most: int = 6) -> str:
    """``a``, ``a and b``, ``a, b and c``, ``a, b and 40 more``."""
    items = [str(word) for word in words]
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else ""


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def without(host: str) -> str:
    """The remedy that leaves a host out of the job, in SLURM's words."""
    return f"srun --exclude={host} …"
