"""Which node, link or direction does not carry packets (phase 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.diagnose.matrix import Attribution, Cause, attribute
from numscope.doctor.findings.telling import finding, listed, named
from numscope.doctor.records import Examined, Finding

Cell = tuple[int, int]
_VANISH = ("dropped", "unreachable", "refused")


@dataclass(frozen=True, slots=True)
class Links:
    """What phase 3 measured, by (from node, to node).

    Args:
        hosts: name of each node.
        ranks: of each node.
        heard: (from, to) of which a datagram came, though nothing is known of those that are absent.
        listened: nodes that told what they heard.
        interface: by which most ranks are reached; "" if that is not known.
    """

    cells: Mapping[Cell, Mapping[str, Any]]
    hosts: Mapping[int, str]
    ranks: Mapping[int, tuple[int, ...]]
    heard: frozenset[Cell]
    listened: frozenset[int]
    interface: str = ""

    @property
    def examined(self) -> dict[Cell, Mapping[str, Any]]:
        return {pair: cell for pair, cell in self.cells.items() if cell["status"] != "skipped"}

    def lines(self, pairs: Iterable[Cell]) -> list[str]:
        """What was seen in these cells, a line each."""
        told = []
        for one, other in sorted(pairs):
            cell = self.cells[one, other]
            known = f"; the hub's port number there: {cell['known']}" if cell.get("known") else ""
            told.append(
                f"{self.hosts[one]} to {self.hosts[other]} ({cell.get('address', '')}): {cell['status']}, {cell.get('error', '')}{known}"
            )
        return told


def links_of(examined: Examined, blame: Blame) -> Links:
    """The cells of all nodes."""
    cells: dict[Cell, Mapping[str, Any]] = {}
    node_of = {rank: int(entry.get("identity", {}).get("node", 0)) for rank, entry in examined.roster.items()}
    hosts: dict[int, str] = {}
    ranks: dict[int, list[int]] = {}
    for rank, node in sorted(node_of.items()):
        hosts.setdefault(node, blame.hosts[rank])
        ranks.setdefault(node, []).append(rank)
    heard, listened = set(), set()
    for rank, result in examined.of(3).items():
        for cell in result.data.get("cells", ()):
            one, other = int(cell["from"]), int(cell["to"])
            cells[one, other] = cell
            hosts.setdefault(one, str(cell.get("from_host", one)))
            hosts.setdefault(other, str(cell.get("to_host", other)))
        if "heard" in result.data and result.data.get("representative") == rank:
            listened.add(node_of.get(rank, -1))
            heard |= {
                (node_of[int(sender)], node_of[rank]) for sender in result.data["heard"] if int(sender) in node_of and rank in node_of
            }
    of_node = {node: tuple(each) for node, each in ranks.items()}
    return Links(cells, hosts, of_node, frozenset(heard), frozenset(listened), _interface(examined))


def _interface(examined: Examined) -> str:
    """By which interface the hub saw most ranks."""
    names: Counter[str] = Counter()
    for result in examined.of(2).values():
        names[str(result.data.get("interface", {}).get("name", ""))] += 1
    del names[""], names["lo"]
    return names.most_common(1)[0][0] if names else ""


def broken_links(examined: Examined, blame: Blame) -> tuple[list[Finding], dict[int, list[str]]]:
    """Findings about packets that do not arrive; and lines of evidence about ranks that are lost already."""
    links = links_of(examined, blame)
    reached = links.examined
    found: list[Finding] = []
    about_lost: dict[int, list[str]] = {}
    lost = {node for node, ranks in links.ranks.items() if ranks and set(ranks) & blame.ranks}
    told = attribute({pair: cell["status"] == "ok" for pair, cell in reached.items()})
    for cause in told.causes:
        around = {pair for pair in cause.cells if lost & set(pair)}
        if cause.kind not in ("split", "everything") and around == cause.cells and not _reached_by_others(cause, lost, links):
            # The rank is gone: that nobody reaches it any more says nothing new.
            for node in lost & set(cause.nodes):
                about_lost.setdefault(node, []).extend(links.lines(cause.cells)[:4])
            continue
        if around == cause.cells and cause.kind == "everything":
            continue
        found.append(_cause(cause, links, len(reached)))
    rest = {pair for pair in told.unexplained if not lost & set(pair)}
    if rest:
        found.append(_unexplained(rest, links))
    found += _fresh_ports(links)
    found += _loopbacks(examined, blame)
    return found, about_lost


def _reached_by_others(cause: Cause, lost: set[int], links: Links) -> bool:
    """Whether a link that failed leads to a lost rank that third nodes still reach: then the link is at fault."""
    if cause.kind not in ("link", "direction"):
        return False
    return any(
        cell["status"] == "ok" and other in lost & set(cause.nodes) and one not in cause.nodes for (one, other), cell in links.cells.items()
    )


def _cause(cause: Cause, links: Links, num_cells: int) -> Finding:
    cells = [links.cells[pair] for pair in sorted(cause.cells)]
    statuses = Counter(str(cell["status"]) for cell in cells)
    status = statuses.most_common(1)[0][0]
    evidence = links.lines(cause.cells)
    if num_cells > len(cause.cells):
        evidence.append(f"{len(cause.cells)} of {num_cells} directions between nodes fail for this reason")
    where, ranks, hosts, pairs = _where(cause, links)
    if status == "stalled":
        return finding(
            "mtu-mismatch",
            f"Small packets pass, large ones do not: {where}. An MTU on the way is smaller than both ends believe.",
            ranks=ranks,
            hosts=hosts,
            links=pairs,
            evidence=evidence,
            confidence=cause.confidence,
            remedy=(
                "sudo ip link set dev INTERFACE mtu 1500  # the same on all hosts and switches",
                "sudo sysctl -w net.ipv4.tcp_mtu_probing=1",
            ),
        )
    if status == "stranger":
        same = Counter(str(cell.get("address", "")) for cell in {cell["to"]: cell for cell in cells}.values())
        address, times = same.most_common(1)[0]
        if times > 1:
            ifname = f"--ifname {links.interface}" if links.interface else "--ifname INTERFACE"
            return finding(
                "wrong-address",
                f"{times} hosts were told to others as {address}: an address that each host has for itself, as container bridges do.",
                ranks=[rank for node in {pair[1] for pair in cause.cells} for rank in links.ranks.get(node, ())],
                hosts=hosts,
                evidence=evidence,
                confidence="certain",
                remedy=(f"numscope doctor {ifname}  # or leave --ifname out", *(_export(links.interface))),
            )
        summary = f"Something else answers at the address that others were told: {where}."
        return finding("wrong-address", summary, ranks=ranks, hosts=hosts, links=pairs, evidence=evidence, remedy=_routes(cells))
    if status == "silent":
        summary = f"The kernel takes connections, the process says nothing: {where}. It is stopped or starved."
        return finding("process-silent", summary, ranks=ranks, hosts=hosts, links=pairs, evidence=evidence, remedy=_exclude(hosts))
    known = [cell.get("known") for cell in cells if cell["status"] in _VANISH]
    if known and all(word in ("ok", "refused") for word in known):
        return _ports(cause, where, ranks, hosts, pairs, evidence)
    if cause.kind == "everything":
        return finding(
            "network-blocked",
            f"No node reaches any other ({listed(links.hosts.values())}), though all reach the hub: "
            "a firewall, or the addresses they were told.",
            hosts=hosts,
            evidence=evidence,
            confidence="likely" if len(cause.nodes) > 3 and len(statuses) == 1 else "possible",
            remedy=("numscope doctor --ifname INTERFACE  # if they were told addresses of the wrong network", *_open_ports()),
        )
    if cause.kind == "split":
        sides = " and ".join("{" + listed(links.hosts[node] for node in side) + "}" for side in cause.sides)
        return finding(
            "network-split",
            f"The network fell apart into {sides}: all works within each, nothing between them.",
            evidence=evidence,
            confidence=cause.confidence,
            remedy=_routes(cells),
        )
    if cause.kind == "node":
        one_way = _heard_one_way(cause, links)
        if one_way:
            return _one_way_of_node(cause.nodes[0], one_way, links, evidence, cause)
        return finding(
            "node-unreachable",
            f"{where} reaches no other node and none reaches it.",
            ranks=ranks,
            hosts=hosts,
            evidence=evidence,
            confidence=cause.confidence,
            remedy=(*_exclude(hosts), *_routes(cells)),
        )
    if cause.kind in ("inbound", "outbound"):
        return _one_way_of_node(cause.nodes[0], cause.kind, links, evidence, cause)
    return _link(cause, links, evidence, cells, pairs)


def _link(cause: Cause, links: Links, evidence: list[str], cells: list[Mapping[str, Any]], pairs: tuple[tuple[str, str], ...]) -> Finding:
    one, other = cause.nodes
    told = {pair for pair in ((one, other), (other, one)) if pair in links.heard}
    both_listened = {one, other} <= links.listened
    if cause.kind == "link" and len(told) == 1 and both_listened:
        ((arrives_from, arrives_to),) = told
        bad = (arrives_to, arrives_from)
        evidence.append(f"datagrams of {links.hosts[arrives_from]} come to {links.hosts[arrives_to]}, none comes the other way")
        return _direction(bad, links, evidence, cause)
    if cause.kind == "direction" and (other, one) in links.examined:
        return _direction((one, other), links, evidence, cause)
    if both_listened and len(told) == 0:
        evidence.append("no datagram came through either")
    return finding(
        "link-broken",
        f"{links.hosts[one]} and {links.hosts[other]} do not reach each other"
        + (
            ", while each works with others."
            if cause.confidence == "certain"
            else "; which of the two is at fault can't be told."
            if len(links.hosts) == 2
            else "."
        ),
        hosts=(links.hosts[one], links.hosts[other]),
        links=pairs,
        evidence=evidence,
        confidence=cause.confidence,
        remedy=(*_routes(cells), f"srun --exclude={links.hosts[other]} …  # until the link is repaired"),
    )


def _direction(pair: Cell, links: Links, evidence: list[str], cause: Cause) -> Finding:
    one, other = links.hosts[pair[0]], links.hosts[pair[1]]
    if cause.kind == "direction":  # packets pass both ways, or the other direction's connection would not work either
        summary = f"Connections from {one} to {other} do not come about, those the other way do: a firewall that lets no new ones in."
    else:
        summary = f"Packets from {one} to {other} do not arrive, the other direction works: a firewall or a route."
    address = _address_of(pair[0], links)
    return finding(
        "one-way-link",
        summary,
        hosts=(one, other),
        links=((one, other),),
        evidence=evidence,
        confidence=cause.confidence,
        remedy=(f"sudo iptables -I INPUT -s {address} -j ACCEPT  # on {other}", f"ip route get {_address_of(pair[1], links)}  # on {one}"),
    )


def _one_way_of_node(node: int, way: str, links: Links, evidence: list[str], cause: Cause) -> Finding:
    host = links.hosts[node]
    what = "takes packets from no other node, though its own arrive" if way == "inbound" else "takes packets, but its own arrive nowhere"
    return finding(
        "node-inbound-blocked" if way == "inbound" else "node-outbound-blocked",
        f"{host} {what}: a firewall or a route of {host}.",
        ranks=links.ranks.get(node, ()),
        hosts=(host,),
        evidence=evidence,
        confidence=cause.confidence,
        remedy=(f"sudo iptables -L {'INPUT' if way == 'inbound' else 'OUTPUT'} -n -v  # on {host}", *_exclude((host,))),
    )


def _heard_one_way(cause: Cause, links: Links) -> str:
    """``inbound`` if datagrams of a node arrive though nothing comes to it, ``outbound`` the other way; "" if that is not so."""
    (node,) = cause.nodes
    others = {other for pair in cause.cells for other in pair if other != node and other in links.listened}
    if node not in links.listened or not others:
        return ""
    arrive = {other for other in others if (node, other) in links.heard}
    come = {other for other in others if (other, node) in links.heard}
    if arrive == others and not come:
        return "inbound"
    return "outbound" if come == others and not arrive else ""


def _ports(
    cause: Cause, where: str, ranks: Iterable[int], hosts: Iterable[str], pairs: tuple[tuple[str, str], ...], evidence: list[str]
) -> Finding:
    return finding(
        "ephemeral-ports-blocked",
        f"A firewall lets some ports pass and not those that gloo and NCCL open: {where}.",
        ranks=ranks,
        hosts=hosts,
        links=pairs,
        evidence=evidence,
        confidence="certain" if cause.kind != "everything" else "likely",
        remedy=_open_ports(),
    )


def _fresh_ports(links: Links) -> list[Finding]:
    """Links that work at one port and not at a freshly opened one."""
    cells = {pair: cell["ephemeral"] == "ok" for pair, cell in links.cells.items() if cell["status"] == "ok" and cell.get("ephemeral")}
    told: Attribution = attribute(cells)
    found = []
    for cause in told.causes:
        where, ranks, hosts, pairs = _where(cause, links)
        found.append(_ports(cause, where, ranks, hosts, pairs, links.lines(cause.cells)))
    if told.unexplained:
        pairs = tuple((links.hosts[one], links.hosts[other]) for one, other in sorted(told.unexplained))
        cause = Cause("everything", (), told.unexplained)
        found.append(_ports(cause, "several links", (), {host for pair in pairs for host in pair}, pairs, links.lines(told.unexplained)))
    return found


def _loopbacks(examined: Examined, blame: Blame) -> list[Finding]:
    """Ranks that do not reach the listener of their own host."""
    found = []
    for rank, result in sorted(examined.of(3).items()):
        cell = result.data.get("loopback") or {}
        if cell and cell["status"] not in ("ok", "skipped") and not {rank, int(cell["to_rank"])} & blame.ranks:
            host = blame.hosts.get(rank, "")
            found.append(
                finding(
                    "host-talks-not-to-itself",
                    f"Rank {rank} does not reach rank {cell['to_rank']} on its own host {host}: {cell['error']}.",
                    ranks=(rank,),
                    hosts=(host,),
                    evidence=(f"{cell['address']}:{cell['port']}: {cell['status']}, {cell['error']}",),
                    remedy=("sudo iptables -I INPUT -i lo -j ACCEPT",),
                )
            )
    return found


def _unexplained(pairs: set[Cell], links: Links) -> Finding:
    return finding(
        "links-failing",
        f"{len(pairs)} directions between nodes fail, and no single explanation is simpler than all others.",
        links=[(links.hosts[one], links.hosts[other]) for one, other in sorted(pairs)],
        hosts={links.hosts[node] for pair in pairs for node in pair},
        evidence=links.lines(pairs),
        confidence="possible",
    )


def _where(cause: Cause, links: Links) -> tuple[str, tuple[int, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Words, ranks, hosts and links of a cause."""
    hosts = tuple(links.hosts[node] for node in cause.nodes)
    if cause.kind in ("node", "inbound", "outbound"):
        ranks = links.ranks.get(cause.nodes[0], ())
        way = {"node": "", "inbound": "into ", "outbound": "out of "}[cause.kind]
        return f"{way}{hosts[0]}" + (f" ({named(ranks)})" if ranks else ""), ranks, hosts, ()
    if cause.kind == "link":
        return f"between {hosts[0]} and {hosts[1]}", (), hosts, ((hosts[0], hosts[1]), (hosts[1], hosts[0]))
    if cause.kind == "direction":
        return f"from {hosts[0]} to {hosts[1]}", (), hosts, ((hosts[0], hosts[1]),)
    return "between all nodes" if cause.kind == "everything" else "between the parts of the network", (), hosts, ()


def _address_of(node: int, links: Links) -> str:
    for (_, other), cell in sorted(links.cells.items()):
        if other == node and cell.get("address"):
            return str(cell["address"])
    return links.hosts[node]


def _export(interface: str) -> tuple[str, ...]:
    return (f"export NCCL_SOCKET_IFNAME={interface} GLOO_SOCKET_IFNAME={interface}",) if interface else ()


def _routes(cells: list[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"ip route get {cell['address']}  # on {cell['from_host']}" for cell in cells[:1] if cell.get("address"))


def _exclude(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"srun --exclude={host} …" for host in list(hosts)[:1] if host)


def _open_ports() -> tuple[str, ...]:
    return (
        "sudo iptables -I INPUT -p tcp --dport 32768:60999 -s NETWORK/24 -j ACCEPT  # on all hosts; sysctl net.ipv4.ip_local_port_range",
        "sudo ufw allow from NETWORK/24  # where ufw is the firewall",
    )
