"""Keeps what is already known to be broken, so that a rank that fails only because of it is a victim and gets no finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numscope.doctor.findings import finding
from numscope.doctor.records import DoctorFinding, Examined

MOST_TEXT = 300  # characters of an error in a line of evidence


@dataclass(slots=True)
class Blame:
    """Filled while findings are made, phase after phase."""

    hosts: Mapping[int, str]  # by rank
    ranks: set[int] = field(default_factory=set)  # lost or at fault
    links: set[frozenset[str]] = field(default_factory=set)  # broken ones between hosts, in either direction, since TCP needs both
    faults: dict[DoctorFinding, None] = field(default_factory=dict)  # findings that are faults and at least likely

    def take(self, findings: Iterable[DoctorFinding]) -> None:
        """Remembers the faults among the findings."""
        for each in findings:
            if each.severity == "fault" and each.confidence != "possible" and each not in self.faults:
                self.faults[each] = None
                self.ranks |= set(each.ranks)
                self.links |= {frozenset(link) for link in each.links}

    def taken(self, findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
        """The findings, of which the faults are now remembered."""
        kept = list(findings)
        self.take(kept)
        return kept

    def host(self, rank: int) -> str:
        """Name of a rank's host; "" if it is not known."""
        return self.hosts.get(rank, "")

    def hosts_of(self, ranks: Iterable[int]) -> set[str]:
        """Names of these ranks' hosts."""
        return {self.host(rank) for rank in ranks} - {""}

    def ranks_on(self, host: str) -> list[int]:
        return [rank for rank, name in self.hosts.items() if name == host]

    def finding(self, id: str, *, ranks: Collection[int] = (), **more: Any) -> DoctorFinding:
        """A finding about these ranks and their hosts."""
        return finding(id, ranks=ranks, hosts=self.hosts_of(ranks), **more)

    def between(self, one: int, other: int) -> bool:
        """Whether a known fault explains that a transfer between these two ranks fails."""
        return one in self.ranks or other in self.ranks or frozenset((self.host(one), self.host(other))) in self.links


def most_accused(accusations: Mapping[int, int]) -> list[int]:
    """The ranks that most others accuse."""
    return [rank for rank, count in accusations.items() if count == max(accusations.values())]


def node_of(examined: Examined) -> dict[int, int]:
    """The number of each joined rank's node."""
    return {rank: int(entry.get("identity", {}).get("node", 0)) for rank, entry in examined.roster.items()}


def hosts_of(examined: Examined) -> dict[int, str]:
    """The host name of each rank that joined, with the node's number if two nodes have the same name."""
    names = {rank: str(entry.get("identity", {}).get("hostname", "")) for rank, entry in examined.roster.items()}
    nodes = node_of(examined)
    of_name: dict[str, set[int]] = defaultdict(set)
    for rank, name in names.items():
        of_name[name].add(nodes[rank])
    return {rank: name if len(of_name[name]) == 1 and name else f"{name}#{nodes[rank]}" for rank, name in names.items()}
