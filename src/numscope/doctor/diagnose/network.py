"""Which node, link or direction does not carry packets (phase 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numscope.doctor.diagnose.blame import Blame, node_of
from numscope.doctor.diagnose.matrix import CommonCause, Kind, attribute
from numscope.doctor.findings import finding, listed, named, pasted, without
from numscope.doctor.records import Cell, DoctorFinding, Examined, ExamPhase, cells_of, from_json

Pair = tuple[int, int]  # from node, to node
_WHERE: dict[Kind, str] = {
    "everything": "between all nodes",
    "split": "between the parts of the network",
    "groups": "between two groups of hosts",
    "node": "{}",
    "inbound": "into {}",
    "outbound": "out of {}",
    "link": "between {} and {}",
    "direction": "from {} to {}",
    "packets": "from {} to {}",
}


@dataclass(frozen=True, slots=True)
class LinkMatrix:
    """The measurements of phase 3 as a matrix over the nodes."""

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


def broken_links(examined: Examined, blame: Blame) -> tuple[list[DoctorFinding], dict[int, list[str]]]:
    """Findings about links that fail; and, by node, evidence about ranks that are known to be lost."""
    links = links_of(examined, blame)
    found = []
    about_lost: dict[int, list[str]] = {}
    lost = {node for node, ranks in links.ranks.items() if set(ranks) & blame.ranks}
    # Who waits for a lost rank is late for the next one: that a process between others did not answer in time means nothing then.
    late = {pair for pair, cell in links.examined.items() if lost and cell.status == "silent" and not lost & set(pair)}
    reached = {pair: cell.status == "ok" for pair, cell in links.examined.items() if pair not in late}
    dead = {rank for fault in blame.faults if fault.id == "rank-died" for rank in fault.ranks}
    died = {node for node, ranks in links.ranks.items() if set(ranks) & dead}
    attribution = attribute(reached)
    for cause in attribution.causes:
        if cause.nodes and all(lost & set(pair) for pair in cause.cells) and _is_of_lost(cause, lost, died, links):
            for node in lost & set(cause.nodes):  # nobody reaches a rank that is gone, which is not news
                about_lost.setdefault(node, []).extend(links.lines(cause.cells)[:4])
        else:
            found.append(_explain(cause, links, len(reached)))
    rest = {pair for pair in attribution.unexplained if not lost & set(pair)}
    if rest:
        hosts = {links.hosts[node] for pair in rest for node in pair}
        found.append(finding("links-failing", links=links.names(rest), hosts=hosts, evidence=links.lines(rest), count=len(rest)))
    return [*found, *_fresh_ports(links), *_loopbacks(examined, blame)], about_lost


def _is_of_lost(cause: CommonCause, lost: set[int], died: set[int], links: LinkMatrix) -> bool:
    """Whether links to lost ranks fail because these are lost, rather than that they were lost because a link failed."""
    if cause.kind not in ("link", "direction"):
        return True
    if not died.isdisjoint(cause.nodes):
        if all(links.cells[pair].status == "reset" for pair in cause.cells):
            return True  # its kernel resets the connections of a process that dies
    elif not any(0 in links.ranks.get(node, ()) for node in cause.nodes):
        return True  # the hub has lost it too: who reached it before says nothing of the link then
    gone = lost & set(cause.nodes)
    return not any(cell.status == "ok" and other in gone and one not in cause.nodes for (one, other), cell in links.cells.items())


@dataclass(frozen=True, slots=True)
class ObservedCause:
    """A cause, with what was observed."""

    cause: CommonCause  # refined by datagrams: of a link, only one direction may carry packets
    links: LinkMatrix
    notes: tuple[str, ...] = ()  # further evidence

    def finding(self, id: str, **other: Any) -> DoctorFinding:
        """A finding about all that the case concerns."""
        hosts, cells, cause = self.hosts, self.cells, self.cause
        ranks = self.links.ranks.get(cause.nodes[0], ()) if cause.one_node else ()
        where = _WHERE[cause.kind].format(*hosts) + (f" ({named(ranks)})" if ranks else "")
        route = f"ip route get {pasted(cells[0].address)}  # on {pasted(cells[0].from_host)}" if cells[0].address else ""
        links = cause.links(self.links.hosts.__getitem__)
        about: dict[str, Any] = {"ranks": ranks, "hosts": hosts, "links": links, "confidence": cause.confidence}
        about |= {"evidence": [*self.links.lines(cause.cells), *self.notes], "where": where, "route": route}
        return finding(id, **{**about, "without": without(*hosts[:1]), **other})

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.links.hosts[node] for node in self.cause.nodes)

    @property
    def cells(self) -> list[Cell]:
        return [self.links.cells[pair] for pair in sorted(self.cause.cells)]

    @property
    def other_ports_work(self) -> bool:
        """Whether packets arrive at the hub's port number, although the links fail."""
        known = [cell.known for cell in self.cells if cell.status in ("dropped", "unreachable", "refused")]
        return bool(known) and all(word in ("ok", "refused") for word in known)


def _explain(cause: CommonCause, links: LinkMatrix, num_cells: int) -> DoctorFinding:
    """The finding of the first rule that applies."""
    share = f"{len(cause.cells)} of {num_cells} directions between nodes fail for this reason"
    case = ObservedCause(cause, links, (share,) if num_cells > len(cause.cells) else ())
    match Counter(cell.status for cell in case.cells).most_common(1)[0][0]:
        case "stalled":
            return case.finding("mtu-mismatch")
        case "stranger":
            return _wrong_address(case)
        case "silent":
            return case.finding("process-unresponsive", confidence="likely")
    return _blocked_ports(case) if case.other_ports_work else _by_kind(_refined(case))


def _refined(case: ObservedCause) -> ObservedCause:
    """Uses datagrams to find which direction fails, where TCP, which needs both, fails in both."""
    cause, links, nodes = case.cause, case.links, case.cause.nodes
    if cause.kind == "node":
        (node,) = nodes
        others = {other for pair in cause.cells for other in pair if other != node and other in links.listened}
        sent = {other for other in others if (node, other) in links.heard}
        received = {other for other in others if (other, node) in links.heard}
        if node in links.listened and others and {len(sent), len(received)} == {0, len(others)}:
            return replace(case, cause=replace(cause, kind="inbound" if sent else "outbound"))
    elif cause.kind == "link" and set(nodes) <= links.listened:
        heard = [pair for pair in (nodes, nodes[::-1]) if pair in links.heard]
        if not heard:
            return replace(case, notes=(*case.notes, "no datagrams arrive either"))
        if len(heard) == 1:
            sender, receiver = (links.hosts[node] for node in heard[0])
            line = f"datagrams from {sender} arrive at {receiver}, none arrive in the other direction"
            return replace(case, cause=replace(cause, kind="packets", nodes=heard[0][::-1]), notes=(*case.notes, line))
    elif cause.kind == "direction" and ((back := links.cells.get((nodes[1], nodes[0]))) is None or back.status == "skipped"):
        return replace(case, cause=replace(cause, kind="link"))
    return case


def _wrong_address(case: ObservedCause) -> DoctorFinding:
    address, count = Counter({cell.to_node: cell.address for cell in case.cells}.values()).most_common(1)[0]
    if count == 1:
        return case.finding("wrong-address", confidence="likely")
    name = case.links.interface
    words: dict[str, Any] = {"count": count, "address": address, "name": name or "INTERFACE"}
    words |= {"export": f"export NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name}" if name else ""}
    ranks = [rank for node in {pair[1] for pair in case.cause.cells} for rank in case.links.ranks.get(node, ())]
    return case.finding("wrong-address/shared", ranks=ranks, links=(), confidence="certain", **words)


def _blocked_ports(case: ObservedCause, **more: Any) -> DoctorFinding:
    return case.finding("ephemeral-ports-blocked", **{"confidence": "likely" if case.cause.kind == "everything" else "certain", **more})


def _by_kind(case: ObservedCause) -> DoctorFinding:
    names, sides = case.links.hosts, ["{" + listed(case.links.hosts[node] for node in side) + "}" for side in case.cause.sides]
    match kind := case.cause.kind:
        case "everything":
            sure = len(case.hosts) > 3 and len({cell.status for cell in case.cells}) == 1
            return case.finding("network-blocked", confidence="likely" if sure else "possible", nodes=listed(names.values()))
        case "split":
            return case.finding("network-split", sides=" and ".join(sides))
        case "groups":
            links = case.links.names(case.cause.cells)
            return case.finding("links-failing/groups", links=links, one=sides[0], other=sides[1], count=len({frozenset(c) for c in links}))
        case "node":
            return case.finding("node-unreachable")
        case "inbound" | "outbound":
            return case.finding(f"node-{kind}-blocked")
        case "link":
            one, other = case.hosts
            which = "; which of the two is at fault is unknown" if len(names) == 2 else ""
            detail = ", but each reaches other nodes" if case.cause.confidence == "certain" else which
            return case.finding("link-broken", one=one, other=other, detail=detail, without_other=without(other))
        case "direction" | "packets":
            one, other = case.hosts
            what, why = "Connections", "a firewall that rejects new connections"
            if kind == "packets":  # if connections work in one direction, packets pass in both
                what, why = "Packets", "a firewall or a route"
            source, target = (_address_of(node, case.links) for node in case.cause.nodes)
            words = {"one": one, "other": other, "pasted_one": pasted(one), "pasted_other": pasted(other), "what": what, "why": why}
            return case.finding("one-way-link", source=source, target=target, **words)


def _fresh_ports(links: LinkMatrix) -> Iterator[DoctorFinding]:
    """Links that work at one port but not at a freshly opened one."""
    works = {pair: cell.works for pair, cell in links.cells.items() if cell.status == "ok" and cell.ephemeral}
    for cause in attribute(works).all_causes:
        unexplained = cause.kind == "everything" and not cause.nodes
        pairs = links.names(cause.cells) if unexplained else ()
        more = {"where": "several links", "links": pairs, "hosts": {host for pair in pairs for host in pair}} if unexplained else {}
        yield _blocked_ports(ObservedCause(cause, links), **more)


def _loopbacks(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Ranks that do not reach the listener of their own host."""
    for rank, result in sorted(examined.of(ExamPhase.LINKS).items()):
        cell = from_json(Cell, result.data["loopback"]) if result.data.get("loopback") else None
        if cell is not None and cell.status not in ("ok", "skipped") and not {rank, cell.to_rank} & blame.ranks:
            evidence = (f"{cell.address}:{cell.port}: {cell.status}, {cell.error}",)
            yield blame.finding("loopback-blocked", ranks=(rank,), evidence=evidence, to=cell.to_rank, error=cell.error)


def _address_of(node: int, links: LinkMatrix) -> str:
    own = (cell.address for (_, other), cell in sorted(links.cells.items()) if other == node and cell.address)
    return pasted(next(own, links.hosts[node]))
