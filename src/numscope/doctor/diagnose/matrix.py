"""Finds the fewest causes that explain a matrix of who reaches whom.

A cause is a row or a column of the matrix, or both (a node), or a link or one direction of it. It is possible only if every examined cell
of it failed. The cause that explains most of the failed cells comes first, then the one that explains most of the rest, and so on. Where
two explain equally many, some of them the same, neither is named, and these cells stay unexplained.

A cause is certain if what it alone explains takes at least two more causes otherwise.
*Cost:* causes times possible causes; linear in the cells for a single fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from numscope.doctor.records import Confidence

# Of two causes that span the same cells, the first in this order is reported.
Kind = Literal["everything", "split", "node", "inbound", "outbound", "link", "direction"]
Cell = tuple[Any, Any]  # from and to: all of them numbers, or all names

_KINDS = get_args(Kind)


@dataclass(frozen=True)
class Cause:
    """Something that makes all of its cells fail."""

    kind: Kind
    nodes: tuple[Any, ...]  # the node; both ends of a link, sorted; from and to of a direction; none for a split
    cells: frozenset[Cell]  # (from, to) that were examined; all of them failed
    confidence: Confidence = "likely"
    sides: tuple[tuple[Any, ...], ...] = ()  # for a split, the groups that reach only themselves

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
        if self.kind not in ("link", "direction"):
            return ()
        ends = (name(self.nodes[0]), name(self.nodes[1]))
        return (ends, ends[::-1]) if self.kind == "link" else (ends,)


@dataclass(frozen=True)
class Attribution:
    """The causes, and the failed cells without a single smallest explanation."""

    causes: tuple[Cause, ...] = ()
    unexplained: frozenset[Cell] = frozenset()

    @property
    def all_causes(self) -> tuple[Cause, ...]:
        """The causes, and one more, without nodes, for what they leave unexplained."""
        return (*self.causes, *([Cause("everything", (), self.unexplained, "possible")] if self.unexplained else []))


def attribute(cells: Mapping[Cell, bool]) -> Attribution:
    """Attributes the failed ones of the examined cells to causes."""
    failed = frozenset(cell for cell, works in cells.items() if not works)
    if not failed:
        return Attribution()
    nodes = sorted({node for cell in cells for node in cell})
    if len(failed) == len(cells) and len(nodes) > 2:
        return Attribution((Cause("everything", tuple(nodes), failed, "possible"),))
    sides = _sides(cells, nodes)
    if sides:
        return Attribution((Cause("split", (), failed, "certain" if min(map(len, sides)) > 1 else "likely", sides),))
    return _explain(cells, failed)


def _explain(cells: Mapping[Cell, bool], failed: frozenset[Cell]) -> Attribution:
    possible = sorted(_possible(cells, failed), key=_place)
    found = sorted(_cover(failed, possible), key=_place)
    as_few = {cause.cells for cause in _cover(failed, possible[::-1])}

    def alone(cause: Cause) -> frozenset[Cell]:
        return cause.cells.difference(*(other.cells for other in found if other is not cause))

    def rivaled(cause: Cause) -> bool:
        own = alone(cause)
        return any(own <= other.cells and not other.cells <= cause.cells for other in possible if other not in found)

    common = [cause for cause in found if not rivaled(cause) and (cause.cells in as_few or len(as_few) > len(found))]
    if len(common) < len(found):
        covered = frozenset[Cell]().union(*(cause.cells for cause in common))
        if not covered:
            return Attribution((), failed)
        # The rest is explained as if the cells of the common causes had not been examined.
        rest = _explain({cell: works for cell, works in cells.items() if cell not in covered}, failed - covered)
        return Attribution((*common, *(replace(cause, confidence="likely") for cause in rest.causes)), rest.unexplained)
    for at, cause in enumerate(found):
        # Reduced to what it must explain: of a node whose cells others explain too, only its own cells. Widest first.
        own = alone(cause)
        least = min((other for other in possible if own <= other.cells), key=lambda other: (len(other.cells), _KINDS.index(other.kind)))
        found[at] = replace(least, confidence=_confidence(least, own, cells, possible) if least == cause else "likely")
    return Attribution(tuple(found))


def _cover(failed: frozenset[Cell], possible: list[Cause]) -> list[Cause]:
    """Causes of all failed cells, each time the first of those that explain most of what is left."""
    found: list[Cause] = []
    while left := failed.difference(*(cause.cells for cause in found)):
        found.append(max(possible, key=lambda cause: (len(cause.cells & left), len(cause.cells))))
    return found


def _possible(cells: Mapping[Cell, bool], failed: Iterable[Cell]) -> list[Cause]:
    """All causes that no working cell contradicts."""
    into: dict[Any, list[Cell]] = defaultdict(list)
    out: dict[Any, list[Cell]] = defaultdict(list)
    for cell in cells:
        out[cell[0]].append(cell)
        into[cell[1]].append(cell)
    found: list[Cause] = []

    def add(kind: Kind, nodes: tuple[Any, ...], spanned: Iterable[Cell], fewest: int) -> None:
        span = frozenset(spanned)
        if len({frozenset(cell) for cell in span}) >= fewest and not any(cells[cell] for cell in span):
            found.append(Cause(kind, nodes, span))

    for node in sorted({node for cell in failed for node in cell}):
        # With a single neighbor, a node can't be distinguished from the link to it.
        add("node", (node,), (*into[node], *out[node]), 2)
        add("inbound", (node,), into[node], 2)
        add("outbound", (node,), out[node], 2)
    for cell in sorted(failed):
        back = (cell[1], cell[0])
        if cell[0] < cell[1] or back not in cells:
            add("link", (min(cell), max(cell)), [each for each in (cell, back) if each in cells], 1)
        add("direction", cell, [cell], 1)
    return [cause for cause in found if not (cause.kind == "link" and len(cause.cells) < 2)]


def _confidence(cause: Cause, own: frozenset[Cell], cells: Mapping[Cell, bool], possible: list[Cause]) -> Confidence:
    if cause.one_node:
        return "certain" if len({frozenset(cell) for cell in own}) > 2 else "likely"
    # Each end must be known to work with another node; otherwise the node may be at fault.
    working = [cell for cell, works in cells.items() if works and set(cell) != set(cause.nodes)]
    ends = {node for cell in working for node in cell}
    if cause.kind == "direction":
        ends = {cell[0] for cell in working} & {cause.nodes[0]} | {cell[1] for cell in working} & {cause.nodes[1]}
    others = (other for other in possible if not _same_place(cause, other))
    sure = own == cause.cells and set(cause.nodes) <= ends and not any(own & other.cells for other in others)
    return "certain" if sure else "likely"


def _same_place(cause: Cause, other: Cause) -> bool:
    """Whether two causes concern the same node or link, so that neither contradicts the other."""
    if cause.kind in ("link", "direction"):
        return other.kind in ("link", "direction") and set(cause.nodes) == set(other.nodes)
    return cause.nodes == other.nodes


def _place(cause: Cause) -> tuple[int, str]:
    return _KINDS.index(cause.kind), str(cause.nodes)


def _sides(cells: Mapping[Cell, bool], nodes: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """The parts of a split network: everything works within each, nothing between them, and each has two nodes or more."""
    side = {node: {node} for node in nodes}
    for (one, other), works in cells.items():
        if works and side[one] is not side[other]:
            side[one] |= side[other]
            side.update(dict.fromkeys(side[other], side[one]))
    groups = {id(group): group for group in side.values()}.values()
    if len(groups) < 2 or min(map(len, groups)) < 2 or any(works != (side[one] is side[other]) for (one, other), works in cells.items()):
        return ()
    return tuple(tuple(sorted(group)) for group in groups)
