"""Finds few causes that explain a matrix of who reaches whom.

First come the nodes, rows and columns of which every examined cell failed. One of which the others leave only a link is not named: what
only that explains stays unexplained. All other failed cells are links, or directions of them.

A cause is certain if what it alone explains takes at least two more causes otherwise. Before that, parts of a network that work internally
and do not reach each other are a split; after it, many broken links between two stretches of neighbors are one cause.
*Cost:* nearly linear in the cells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Literal

from numscope.doctor.records import Confidence

Kind = Literal["everything", "split", "groups", "node", "inbound", "outbound", "link", "direction", "packets"]  # packets: see network.py
Cell = tuple[Any, Any]  # from and to: all of them numbers, or all names

_FEWEST_BETWEEN = 4  # broken links between two groups
_GAP = 4  # nodes without a broken link between two of a group


@dataclass(frozen=True)
class CommonCause:
    """Something that makes all of its cells fail."""

    kind: Kind
    nodes: tuple[Any, ...]  # the node; both ends of a link, sorted; from and to of a direction; none for a split and for groups
    cells: frozenset[Cell]  # (from, to) that were examined; all of them failed
    confidence: Confidence = "likely"
    sides: tuple[tuple[Any, ...], ...] = ()  # of a split, those that reach only themselves, the smallest first; the two groups

    @property
    def one_node(self) -> bool:
        return self.kind in ("node", "inbound", "outbound")

    def where(self, name: Callable[[Any], str]) -> str:
        """``of a``, ``to a``, ``from a``, ``between a and b``, ``from a to b``; "" for a larger cause."""
        names = [name(node) for node in self.nodes]
        if self.one_node:
            return f"{ {'node': 'of', 'inbound': 'to', 'outbound': 'from'}[self.kind] } {names[0]}"
        return {"link": "between {} and {}", "direction": "from {} to {}"}.get(self.kind, "").format(*names)

    def links(self, name: Callable[[Any], str]) -> tuple[tuple[str, str], ...]:
        """The directions of a link, or the one direction; none for other causes."""
        if self.kind not in ("link", "direction", "packets"):
            return ()
        ends = (name(self.nodes[0]), name(self.nodes[1]))
        return (ends, ends[::-1]) if self.kind == "link" else (ends,)


@dataclass(frozen=True)
class Attribution:
    """The causes, and the failed cells without a single smallest explanation."""

    causes: tuple[CommonCause, ...] = ()
    unexplained: frozenset[Cell] = frozenset()

    @property
    def all_causes(self) -> tuple[CommonCause, ...]:
        """The causes, and one more, without nodes, for what they leave unexplained."""
        return (*self.causes, *([CommonCause("everything", (), self.unexplained, "possible")] if self.unexplained else []))


def attribute(cells: Mapping[Cell, bool]) -> Attribution:
    """Attributes the failed ones of the examined cells to causes."""
    failed = frozenset(cell for cell, works in cells.items() if not works)
    if not failed:
        return Attribution()
    nodes = sorted({node for cell in cells for node in cell})
    if len(failed) == len(cells) and len(nodes) > 2:
        return Attribution((CommonCause("everything", tuple(nodes), failed, "possible"),))
    sides = _sides(cells, nodes)
    side = {node: number for number, members in enumerate(sides) for node in members}
    between = frozenset(cell for cell in failed if -1 < side.get(cell[0], -1) != side.get(cell[1], -1) > -1)
    split = [CommonCause("split", (), between, "certain", sides)] if between else []
    rest = {cell: works for cell, works in cells.items() if cell not in between}
    possible = _wide(rest, nodes)
    times = Counter(cell for cause in possible for cell in cause.cells)
    owned = [(cause, _num_pairs(cell for cell in cause.cells if times[cell] == 1)) for cause in possible]
    wide = [replace(cause, confidence="certain" if num > 2 else "likely") for cause, num in owned if num > 1]
    explained = _spanned(wide)
    ambiguous = _spanned(cause for cause in possible if _num_pairs(cause.cells - explained) > 1)
    narrow = list(_narrow(rest, failed - between - explained - ambiguous, _spanned(possible)))
    return Attribution((*split, *_grouped([*wide, *narrow], cells, nodes)), failed - between - _spanned([*wide, *narrow]))


def _wide(cells: Mapping[Cell, bool], nodes: list[Any]) -> list[CommonCause]:
    """The nodes that failed as a whole, and of others the columns and rows that did."""
    into: dict[Any, list[Cell]] = defaultdict(list)
    out: dict[Any, list[Cell]] = defaultdict(list)
    for cell in cells:
        out[cell[0]].append(cell)
        into[cell[1]].append(cell)
    spans: list[tuple[Kind, dict[Any, list[Cell]]]] = [("node", {node: into[node] + out[node] for node in nodes})]
    spans += [("inbound", into), ("outbound", out)]
    found = []
    for node in nodes:
        # With a single neighbor, a node can't be distinguished from the link to it.
        whole = ((kind, of[node]) for kind, of in spans if _num_pairs(of[node]) > 1 and not any(map(cells.__getitem__, of[node])))
        found += [CommonCause(kind, (node,), frozenset(span)) for kind, span in islice(whole, 1)]
    return found


def _narrow(cells: Mapping[Cell, bool], failed: frozenset[Cell], doubtful: frozenset[Cell]) -> Iterator[CommonCause]:
    """The links, and directions of links, that failed. None is certain if it is ``doubtful``: a whole row or column there failed too."""
    working: dict[tuple[int, Any], set[Any]] = defaultdict(set)  # by end (0: from) and node, the nodes at the other end
    for cell, works in cells.items():
        if works:
            working[0, cell[0]].add(cell[1])
            working[1, cell[1]].add(cell[0])
    for cell in sorted(failed):
        one, other = cell
        both = frozenset({cell, (other, one)})
        is_link = both <= failed
        if is_link and other < one:
            continue
        # Each end must be known to work with another node; otherwise the node may be at fault.
        one_works = working[0, one] | (working[1, one] if is_link else set())
        other_works = working[1, other] | (working[0, other] if is_link else set())
        sure = one_works - {other} and other_works - {one} and not both & doubtful
        yield CommonCause("link" if is_link else "direction", cell, both & failed, "certain" if sure else "likely")


def _spanned(causes: Iterable[CommonCause]) -> frozenset[Cell]:
    return frozenset(cell for cause in causes for cell in cause.cells)


def _num_pairs(cells: Iterable[Cell]) -> int:
    """Of how many pairs of nodes these are directions."""
    return len(set(map(frozenset, cells)))


def _grouped(causes: Sequence[CommonCause], cells: Mapping[Cell, bool], nodes: list[Any]) -> list[CommonCause]:
    """The causes, of which many broken links between two groups of neighbors, and none that works, are one: what connects the groups.

    Neighbors are those with the next numbers or names: launchers number the hosts of a rack one after the other.
    """
    links = [cause for cause in causes if cause.kind in ("link", "direction")]
    if len(links) < _FEWEST_BETWEEN:
        return list(causes)
    place, ends = {node: at for at, node in enumerate(nodes)}, sorted({node for cause in links for node in cause.nodes})
    group = {ends[0]: 0}
    for before, node in pairwise(ends):
        group[node] = group[before] + (place[node] - place[before] > _GAP)
    between: dict[frozenset[int], list[CommonCause]] = defaultdict(list)
    for cause in links:
        between[frozenset(group[node] for node in cause.nodes)].append(cause)
    work = {frozenset(group.get(node, -1) for node in cell) for cell, works in cells.items() if works}
    found = list(causes)
    for both, own in between.items():
        sides = tuple(tuple(node for node in ends if group[node] == number) for number in sorted(both))
        if len(sides) == 2 and min(map(len, sides)) > 1 and len(own) >= _FEWEST_BETWEEN and both not in work:
            span = frozenset(cell for cause in own for cell in cause.cells)
            found = [CommonCause("groups", (), span, "likely", sides), *(cause for cause in found if cause not in own)]
    return found


def _sides(cells: Mapping[Cell, bool], nodes: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """The parts of a split network: nothing works between them, and each has two nodes or more."""
    side = {node: [node] for node in nodes}
    for (one, other), works in cells.items():
        if works and side[one] is not side[other]:
            less, more = sorted((side[one], side[other]), key=len)
            more += less
            side.update(dict.fromkeys(less, more))
    apart = {id(group): group for group in side.values() if len(group) > 1}  # each once, though all its nodes have it
    groups = sorted((tuple(sorted(group)) for group in apart.values()), key=lambda group: (len(group), group))
    return tuple(groups) if len(groups) > 1 else ()
