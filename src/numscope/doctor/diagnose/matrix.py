"""From a matrix of who reaches whom to the smallest set of causes that explains it.

A cause (a node, everything into or out of a node, a link, one direction of a link) explains the cells that it spans, and is possible only
if every examined cell among them failed. The smallest sets of causes that cover all failed cells are found exactly: a cell that only one
cause explains settles that cause; the rest is searched to a bounded depth. If several sets are equally small, only what they have in common
is attributed, and the other cells stay unexplained.

A cause is certain if every explanation without it needs at least two more causes.
*Cost:* linear in the cells for a single fault; a bounded search for the rest.
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
_MOST_CAUSES = 4  # besides the settled ones
_MOST_TRIES = 20_000


@dataclass(frozen=True)
class Cause:
    """Something that makes all of its cells fail."""

    kind: Kind
    nodes: tuple[Any, ...]  # the node; both ends of a link, sorted; from and to of a direction; none for a split
    cells: frozenset[Cell]  # (from, to) that were examined; all of them failed
    confidence: Confidence = "likely"
    sides: tuple[tuple[Any, ...], ...] = ()  # of a split, the groups that reach only themselves

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
    """What explains the failed ones of the examined cells."""
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
    possible = _possible(cells, failed)
    covers = _smallest(failed, _widest(possible), _MOST_CAUSES)
    if not covers:
        return Attribution((), failed)
    common = frozenset.intersection(*covers)
    size = len(next(iter(covers)))
    found = sorted(common, key=_place)
    if len(covers) == 1:
        # Each is reduced to what it must explain: of a node whose cells others explain too, only its own cells. Widest first.
        for at, cause in enumerate(found):
            own = cause.cells.difference(*(other.cells for other in found if other is not cause))
            found[at] = min((c for c in possible if own <= c.cells), key=lambda c: (len(c.cells), _KINDS.index(c.kind)))
        shared = {cell for one in common for other in common if one is not other for cell in one.cells & other.cells}
        for at, cause in enumerate(found):
            touched = cause not in common or (cause.kind in ("link", "direction") and shared & cause.cells)
            found[at] = replace(cause, confidence="likely" if touched else _confidence(cause, cells, failed, possible, size))
    if len(covers) == 1:
        return Attribution(tuple(found))
    covered = frozenset[Cell]().union(*(cause.cells for cause in common))
    if not covered:
        return Attribution((), failed)
    # The rest is explained as if the cells of the common causes had not been examined.
    more = _explain({cell: works for cell, works in cells.items() if cell not in covered}, failed - covered)
    return Attribution((*found, *(replace(cause, confidence="likely") for cause in more.causes)), more.unexplained)


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
        # With a single neighbor, a node can't be told from the link to it.
        add("node", (node,), (*into[node], *out[node]), 2)
        add("inbound", (node,), into[node], 2)
        add("outbound", (node,), out[node], 2)
    for cell in sorted(failed):
        back = (cell[1], cell[0])
        if cell[0] < cell[1] or back not in cells:
            add("link", (min(cell), max(cell)), [each for each in (cell, back) if each in cells], 1)
        add("direction", cell, [cell], 1)
    return [cause for cause in found if not (cause.kind == "link" and len(cause.cells) < 2)]


def _widest(possible: list[Cause]) -> list[Cause]:
    """The causes whose cells are not all spanned by another one."""
    by_cell: dict[Cell, list[Cause]] = defaultdict(list)
    for cause in possible:
        for cell in cause.cells:
            by_cell[cell].append(cause)

    def lesser(cause: Cause) -> bool:
        rivals = by_cell[next(iter(cause.cells))]
        return any(
            cause.cells < rival.cells or (cause.cells == rival.cells and _KINDS.index(rival.kind) < _KINDS.index(cause.kind))
            for rival in rivals
        )

    return [cause for cause in possible if not lesser(cause)]


def _smallest(failed: frozenset[Cell], causes: list[Cause], most: int) -> list[frozenset[Cause]]:
    """All smallest sets of causes that cover the failed cells, with at most ``most`` causes besides the settled ones."""
    settled: set[Cause] = set()
    by_cell: dict[Cell, list[Cause]] = {cell: [] for cell in failed}
    for cause in causes:
        for cell in cause.cells:
            by_cell[cell].append(cause)
    for cell in failed:
        if not by_cell[cell]:
            return []
        if len(by_cell[cell]) == 1:
            settled.add(by_cell[cell][0])
    left = failed.difference(*(cause.cells for cause in settled))
    tries = 0

    def search(left: frozenset[Cell], depth: int) -> list[frozenset[Cause]]:
        nonlocal tries
        tries += 1
        if not left:
            return [frozenset()]
        if depth == 0 or tries > _MOST_TRIES:
            return []
        cell = min(left, key=lambda cell: (len(by_cell[cell]), cell))
        return [rest | {cause} for cause in by_cell[cell] for rest in search(left - cause.cells, depth - 1)]

    for depth in range(most + 1):
        found = search(left, depth)
        if tries > _MOST_TRIES:
            return []
        if found:
            return [cover | settled for cover in dict.fromkeys(found)]
    return []


def _confidence(cause: Cause, cells: Mapping[Cell, bool], failed: frozenset[Cell], possible: list[Cause], size: int) -> Confidence:
    if cause.kind in ("link", "direction"):
        # Each end must be known to work with another node; otherwise the node may be at fault.
        working = [cell for cell, works in cells.items() if works and set(cell) != set(cause.nodes)]
        ends = {node for cell in working for node in cell}
        if cause.kind == "direction":
            ends = {cell[0] for cell in working} & {cause.nodes[0]} | {cell[1] for cell in working} & {cause.nodes[1]}
        if not set(cause.nodes) <= ends:
            return "likely"
    others = [other for other in possible if not _same_place(cause, other)]
    found = _smallest(failed, _widest(others), size + 1)
    return "certain" if not found or len(found[0]) >= size + 2 else "likely"


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
