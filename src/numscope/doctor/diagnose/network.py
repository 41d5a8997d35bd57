"""Which node, link or direction does not carry packets (phase 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.diagnose.link_matrix import LinkMatrix, links_of
from numscope.doctor.diagnose.matrix import Cause, attribute
from numscope.doctor.diagnose.matrix import Kind as CauseKind
from numscope.doctor.findings import finding, listed, named, pasted, without
from numscope.doctor.records import Cell, DoctorFinding, Examined, ExamPhase, Word, from_json

Kind = CauseKind | Literal["packets"]  # packets: of a link, only one direction carries them
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


def broken_links(examined: Examined, blame: Blame) -> tuple[list[DoctorFinding], dict[int, list[str]]]:
    """Findings about links that fail; and, by node, evidence about ranks that are known to be lost."""
    links = links_of(examined, blame)
    found = []
    about_lost: dict[int, list[str]] = {}
    lost = {node for node, ranks in links.ranks.items() if set(ranks) & blame.ranks}
    # Who waits for a lost rank is late for the next one: that a process between others did not answer in time means nothing then.
    late = {pair for pair, cell in links.examined.items() if lost and cell.status == "silent" and not lost & set(pair)}
    reached = {pair: cell for pair, cell in links.examined.items() if pair not in late}
    dead = {rank for fault in blame.faults if fault.id == "rank-died" for rank in fault.ranks}
    died = {node for node, ranks in links.ranks.items() if set(ranks) & dead}
    hub = next((node for node, ranks in links.ranks.items() if 0 in ranks), -1)
    attribution = attribute({pair: cell.status == "ok" for pair, cell in reached.items()})
    for cause in attribution.causes:
        if all(lost & set(pair) for pair in cause.cells):
            if cause.kind == "everything":
                continue
            is_gone = not _reached_by_others(cause, lost, links) or _reset_by_death(cause, died, links) or _lost_by_all(cause, died, hub)
            if cause.nodes and is_gone:
                # The rank is gone, so nobody reaches it, which is not news.
                for node in lost & set(cause.nodes):
                    about_lost.setdefault(node, []).extend(links.lines(cause.cells)[:4])
                continue
        found.append(_explain(cause, links, len(reached)))
    rest = {pair for pair in attribution.unexplained if not lost & set(pair)}
    if rest:
        found.append(
            finding(
                "links-failing",
                links=links.names(rest),
                hosts={links.hosts[node] for pair in rest for node in pair},
                evidence=links.lines(rest),
                count=len(rest),
            )
        )
    return [*found, *_fresh_ports(links), *_loopbacks(examined, blame)], about_lost


def _reached_by_others(cause: Cause, lost: set[int], links: LinkMatrix) -> bool:
    """Whether a failed link leads to a lost rank that third nodes still reach: then the link is at fault."""
    if cause.kind not in ("link", "direction"):
        return False
    return any(
        cell.status == "ok" and other in lost & set(cause.nodes) and one not in cause.nodes for (one, other), cell in links.cells.items()
    )


def _lost_by_all(cause: Cause, died: set[int], hub: int) -> bool:
    """Whether a node no longer reaches one that the hub has lost too: who reached it before says nothing of the link then."""
    return cause.kind in ("link", "direction") and hub not in cause.nodes and died.isdisjoint(cause.nodes)


def _reset_by_death(cause: Cause, died: set[int], links: LinkMatrix) -> bool:
    """Whether connections failed as they do when the process at one end dies: its kernel resets those that are open."""
    return all(links.cells[pair].status == "reset" and not died.isdisjoint(pair) for pair in cause.cells)


@dataclass(frozen=True, slots=True)
class ObservedCause:
    """A cause, with what was observed."""

    cause: Cause
    links: LinkMatrix
    cells: list[Cell]
    kind: Kind  # the cause's, refined by datagrams
    nodes: tuple[int, ...]  # the node; the ends of the link; from and to of the direction
    status: Word  # status of most of its cells
    where: str  # in words
    ranks: tuple[int, ...]  # those it concerns
    hosts: tuple[str, ...]  # those it concerns
    pairs: tuple[tuple[str, ...], ...]  # those it concerns, as host names
    evidence: tuple[str, ...]

    def finding(self, id: str, **other: Any) -> DoctorFinding:
        """A finding about all that the case concerns."""
        about: dict[str, Any] = {"ranks": self.ranks, "hosts": self.hosts, "links": self.pairs, "evidence": self.evidence}
        about |= {"confidence": self.cause.confidence, "where": self.where, "route": self.route, "without": without(*self.hosts[:1])}
        return finding(id, **{**about, **other})

    @property
    def other_ports_work(self) -> bool:
        """Whether packets arrive at the hub's port number, although the links fail."""
        known = [cell.known for cell in self.cells if cell.status in ("dropped", "unreachable", "refused")]
        return bool(known) and all(word in ("ok", "refused") for word in known)

    @property
    def shared_address(self) -> tuple[str, int]:
        """The address that most nodes of the case announced, and how many did."""
        return Counter({cell.to_node: cell.address for cell in self.cells}.values()).most_common(1)[0]

    @property
    def route(self) -> str:
        return next((f"ip route get {pasted(cell.address)}  # on {pasted(cell.from_host)}" for cell in self.cells[:1] if cell.address), "")


def _explain(cause: Cause, links: LinkMatrix, num_cells: int) -> DoctorFinding:
    """The finding of the first rule that applies."""
    case = _case(cause, links, cause.kind, cause.nodes)
    if num_cells > len(cause.cells):
        line = f"{len(cause.cells)} of {num_cells} directions between nodes fail for this reason"
        case = replace(case, evidence=(*case.evidence, line))
    if case.status not in ("stalled", "stranger", "silent") and not case.other_ports_work:
        case = _refined(case)
    if case.status == "stalled":
        return case.finding("mtu-mismatch")
    if case.status == "stranger":
        return _shared_address(case) if case.shared_address[1] > 1 else case.finding("wrong-address", confidence="likely")
    if case.status == "silent":
        return case.finding("process-unresponsive", confidence="likely")
    return _blocked_ports(case) if case.other_ports_work else _by_kind(case)


def _case(cause: Cause, links: LinkMatrix, kind: Kind, nodes: tuple[int, ...]) -> ObservedCause:
    cells = [links.cells[pair] for pair in sorted(cause.cells)]
    hosts = tuple(links.hosts[node] for node in nodes)
    ranks = links.ranks.get(nodes[0], ()) if kind in ("node", "inbound", "outbound") else ()
    pairs = (hosts, hosts[::-1]) if kind == "link" else (hosts,) if kind in ("direction", "packets") else ()
    where = _WHERE[kind].format(*hosts) + (f" ({named(ranks)})" if ranks else "")
    status = Counter(cell.status for cell in cells).most_common(1)[0][0]
    return ObservedCause(cause, links, cells, kind, nodes, status, where, ranks, hosts, pairs, tuple(links.lines(cause.cells)))


def _refined(case: ObservedCause) -> ObservedCause:
    """Uses datagrams to find which direction fails, where TCP, which needs both, fails in both."""
    links, nodes, kind = case.links, case.nodes, case.kind
    line = ""
    if kind == "node":
        (node,) = nodes
        others = {other for pair in case.cause.cells for other in pair if other != node and other in links.listened}
        if node in links.listened and others:
            sent = {other for other in others if (node, other) in links.heard}
            received = {other for other in others if (other, node) in links.heard}
            kind = "inbound" if sent == others and not received else "outbound" if received == others and not sent else kind
    elif kind == "link" and set(nodes) <= links.listened:
        one, other = nodes
        heard = [pair for pair in ((one, other), (other, one)) if pair in links.heard]
        if len(heard) == 1:
            ((sender, receiver),) = heard
            kind, nodes = "packets", (receiver, sender)
            line = f"datagrams from {links.hosts[sender]} arrive at {links.hosts[receiver]}, none arrive in the other direction"
        elif not heard:
            line = "no datagrams arrive either"
    elif kind == "direction" and ((back := links.cells.get((nodes[1], nodes[0]))) is None or back.status == "skipped"):
        kind = "link"
    case = replace(_case(case.cause, links, kind, nodes), evidence=case.evidence)
    return replace(case, evidence=(*case.evidence, line)) if line else case


def _shared_address(case: ObservedCause) -> DoctorFinding:
    address, times = case.shared_address
    name = case.links.interface
    return case.finding(
        "wrong-address/shared",
        ranks=[rank for node in {pair[1] for pair in case.cause.cells} for rank in case.links.ranks.get(node, ())],
        links=(),
        confidence="certain",
        count=times,
        address=address,
        name=name or "INTERFACE",
        export=f"export NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name}" if name else "",
    )


def _blocked_ports(case: ObservedCause) -> DoctorFinding:
    return case.finding("ephemeral-ports-blocked", confidence="likely" if case.kind == "everything" else "certain")


def _by_kind(case: ObservedCause) -> DoctorFinding:
    names, sides = case.links.hosts, ["{" + listed(case.links.hosts[node] for node in side) + "}" for side in case.cause.sides]
    match case.kind:
        case "everything":
            sure = len(case.nodes) > 3 and len({cell.status for cell in case.cells}) == 1
            return case.finding("network-blocked", confidence="likely" if sure else "possible", nodes=listed(names.values()))
        case "split":
            return case.finding("network-split", sides=" and ".join(sides))
        case "groups":
            links = case.links.names(case.cause.cells)
            return case.finding("links-failing/groups", links=links, one=sides[0], other=sides[1], count=len({frozenset(c) for c in links}))
        case "node":
            return case.finding("node-unreachable")
        case "inbound" | "outbound":
            return case.finding(f"node-{case.kind}-blocked")
        case "link":
            one, other = case.hosts
            which = "; which of the two is at fault is unknown" if len(names) == 2 else ""
            detail = ", but each reaches other nodes" if case.cause.confidence == "certain" else which
            return case.finding("link-broken", one=one, other=other, detail=detail, without_other=without(other))
        case "direction" | "packets":
            one, other = case.hosts
            what, why = "Connections", "a firewall that rejects new connections"
            if case.kind == "packets":  # if connections work in one direction, packets pass in both
                what, why = "Packets", "a firewall or a route"
            source, target = (_address_of(node, case.links) for node in case.nodes)
            words = {"one": one, "other": other, "pasted_one": pasted(one), "pasted_other": pasted(other), "what": what, "why": why}
            return case.finding("one-way-link", source=source, target=target, **words)


def _fresh_ports(links: LinkMatrix) -> Iterator[DoctorFinding]:
    """Links that work at one port but not at a freshly opened one."""
    attribution = attribute({pair: cell.works for pair, cell in links.cells.items() if cell.status == "ok" and cell.ephemeral})
    yield from (_blocked_ports(_case(cause, links, cause.kind, cause.nodes)) for cause in attribution.causes)
    if attribution.unexplained:
        pairs = links.names(attribution.unexplained)
        case = _case(Cause("everything", (), attribution.unexplained), links, "everything", ())
        yield _blocked_ports(replace(case, where="several links", pairs=pairs, hosts=tuple({host for pair in pairs for host in pair})))


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
