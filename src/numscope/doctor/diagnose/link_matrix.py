"""The measurements of phase 3 as a matrix over the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from numscope.doctor.diagnose.blame import Blame, node_of
from numscope.doctor.records import Cell, Examined, ExamPhase, cells_of

Pair = tuple[int, int]  # from node, to node


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """The matrix."""

    cells: Mapping[Pair, Cell]  # by (from node, to node)
    hosts: Mapping[int, str]  # name of each node
    ranks: Mapping[int, tuple[int, ...]]  # ranks of each node
    heard: frozenset[Pair]  # pairs of which datagrams arrived; the absence of a pair proves nothing
    listened: frozenset[int]  # nodes that reported which datagrams they received
    interface: str = ""  # by which most ranks are reached; "" if that is not known

    @property
    def examined(self) -> dict[Pair, Cell]:
        return {pair: cell for pair, cell in self.cells.items() if cell.status != "skipped"}

    def names(self, pairs: Iterable[Pair]) -> tuple[tuple[str, str], ...]:
        """The host names of pairs of nodes."""
        return tuple((self.hosts[one], self.hosts[other]) for one, other in sorted(pairs))

    def lines(self, pairs: Iterable[Pair]) -> list[str]:
        """The observations between these pairs, one line each."""
        lines = []
        for pair in sorted(pairs):
            cell = self.cells[pair]
            known = f"; the hub's port number there: {cell.known}" if cell.known else ""
            lines.append(f"{self.hosts[pair[0]]} to {self.hosts[pair[1]]} ({cell.address}): {cell.status}, {cell.error}{known}")
        return lines


def links_of(examined: Examined, blame: Blame) -> LinkMatrix:
    """The matrix of all nodes."""
    cells: dict[Pair, Cell] = {}
    nodes = node_of(examined)
    hosts: dict[int, str] = {}
    ranks: dict[int, tuple[int, ...]] = {}
    for rank, node in sorted(nodes.items()):
        hosts.setdefault(node, blame.hosts[rank])
        ranks[node] = (*ranks.get(node, ()), rank)
    heard, listened = set(), set()
    for rank, result in examined.of(ExamPhase.LINKS).items():
        for cell in cells_of(result):
            cells[cell.from_node, cell.to_node] = cell
            hosts.setdefault(cell.from_node, cell.from_host)
            hosts.setdefault(cell.to_node, cell.to_host)
        if "heard" in result.data and result.data.get("representative") == rank and rank in nodes:
            listened.add(nodes[rank])
            heard |= {(nodes[int(sender)], nodes[rank]) for sender in result.data["heard"] if int(sender) in nodes}
    return LinkMatrix(cells, hosts, ranks, frozenset(heard), frozenset(listened), _interface(examined))


def _interface(examined: Examined) -> str:
    """The interface by which the hub saw most ranks."""
    names = Counter(str(result.data.get("interface", {}).get("name", "")) for result in examined.of(ExamPhase.COMPARE).values())
    del names[""], names["lo"]
    return names.most_common(1)[0][0] if names else ""
