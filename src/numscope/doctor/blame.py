"""What is known to be broken already, so that whoever fails only because of it is a victim and no finding of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.catalog import CATALOG
from numscope.doctor.records import Confidence, Examined, Finding, Severity


@dataclass(slots=True)
class Blame:
    """Filled as findings are made, phase after phase.

    Args:
        hosts: by rank.
        ranks: lost or at fault.
        links: between hosts, both ways: TCP needs both directions of a link.
        missing: some ranks never came, or everything is blocked.
    """

    hosts: Mapping[int, str]
    ranks: set[int] = field(default_factory=set)
    links: set[frozenset[str]] = field(default_factory=set)
    missing: bool = False
    faults: list[Finding] = field(default_factory=list)

    def take(self, findings: Iterable[Finding]) -> None:
        """Remembers the faults among the findings."""
        for finding in findings:
            if finding.severity == "fault" and finding.confidence != "possible":
                self.faults.append(finding)
                self.ranks |= set(finding.ranks)
                self.links |= {frozenset(link) for link in finding.links}
                self.missing = (
                    self.missing or not set(finding.ranks) <= set(self.hosts) or finding.id in ("network-blocked", "network-split")
                )

    def between(self, one: int, other: int) -> bool:
        """Whether something known explains that these two fail with each other."""
        link = frozenset((self.hosts.get(one, ""), self.hosts.get(other, "")))
        return one in self.ranks or other in self.ranks or link in self.links

    @property
    def anything(self) -> bool:
        """Whether something is known that makes whatever needs all ranks fail."""
        return bool(self.faults)


def hosts_of(examined: Examined) -> dict[int, str]:
    """Host name of each rank that came; of hosts of the same name, which are two nodes, the number is added."""
    names = {rank: str(entry.get("identity", {}).get("hostname", "")) for rank, entry in examined.roster.items()}
    nodes = {rank: int(entry.get("identity", {}).get("node", 0)) for rank, entry in examined.roster.items()}
    of_name: dict[str, set[int]] = defaultdict(set)
    for rank, name in names.items():
        of_name[name].add(nodes[rank])
    return {rank: name if len(of_name[name]) == 1 and name else f"{name}#{nodes[rank]}" for rank, name in names.items()}


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
    """A finding of the catalog; its severity is the catalog's unless it is told."""
    return Finding(
        id=id,
        severity=CATALOG[id].severity if severity is None else severity,
        summary=summary,
        ranks=tuple(sorted(set(ranks))),
        hosts=tuple(sorted({host for host in hosts if host})),
        links=tuple(links),
        evidence=tuple(dict.fromkeys(evidence))[:12],
        confidence=confidence,
        remedy=tuple(dict.fromkeys(remedy)),
    )


def named(ranks: Iterable[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0–3, 7``, ``ranks 0, 2, 4 and 40 more``."""
    numbers = sorted(set(ranks))
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
