"""What is known to be broken already, so that whoever fails only because of it is a victim and no finding of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from numscope.doctor.records import Examined, Finding


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
