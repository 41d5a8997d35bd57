"""Attribution: from a matrix of what works to the causes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numscope.doctor.diagnose.matrix import Attribution, attribute

Fault = tuple[str, tuple[int, ...]]


def matrix(num_nodes: int, faults: tuple[Fault, ...]) -> dict[tuple[int, int], bool]:
    """Who reaches whom, with these faults planted."""
    cells = {(one, other): True for one in range(num_nodes) for other in range(num_nodes) if one != other}
    for kind, nodes in faults:
        for cell in cells:
            hit = {
                "node": nodes[0] in cell,
                "link": set(cell) == set(nodes),
                "direction": cell == nodes,
                "inbound": cell[1] == nodes[0],
                "outbound": cell[0] == nodes[0],
            }[kind]
            cells[cell] = cells[cell] and not hit
    return cells


def all_faults(num_nodes: int) -> list[Fault]:
    nodes = range(num_nodes)
    return [
        *(("node", (node,)) for node in nodes),
        *(("link", pair) for pair in itertools.combinations(nodes, 2)),
        *(("direction", pair) for pair in itertools.permutations(nodes, 2)),
    ]


def found(attribution: Attribution) -> list[Fault]:
    return [(cause.kind, cause.nodes) for cause in attribution.causes]


@pytest.mark.parametrize("num_nodes", range(3, 9))
def test_each_single_fault_is_attributed_exactly(num_nodes: int) -> None:
    for fault in [*all_faults(num_nodes), *((way, (node,)) for way in ("inbound", "outbound") for node in range(num_nodes))]:
        told = attribute(matrix(num_nodes, (fault,)))
        assert found(told) == [fault]
        assert not told.unexplained
        assert told.causes[0].confidence == ("certain" if num_nodes > 3 or fault[0] in ("link", "direction") else "likely")


@pytest.mark.parametrize("num_nodes", range(3, 7))
def test_of_two_faults_none_is_wrong_and_certain(num_nodes: int) -> None:
    for one, other in itertools.combinations(all_faults(num_nodes), 2):
        told = attribute(matrix(num_nodes, (one, other)))
        both_ways = {"direction"} == {one[0], other[0]} and one[1] == other[1][::-1]  # which is the link
        link = ("link", tuple(sorted(one[1])))
        right = [cause in (one, other) or (both_ways and cause == link) for cause in found(told)]
        assert all(ok for ok, cause in zip(right, told.causes, strict=True) if cause.confidence == "certain"), (one, other, told)
        if num_nodes > 3:  # three nodes are too few to tell two faults from one
            assert all(right)
            assert not told.unexplained


@given(st.integers(4, 8), st.data())
def test_three_faults_are_attributed_or_left_open_never_wrong_and_certain(num_nodes: int, data: st.DataObject) -> None:
    faults = tuple(data.draw(st.lists(st.sampled_from(all_faults(num_nodes)), min_size=3, max_size=3, unique=True)))
    cells = matrix(num_nodes, faults)
    told = attribute(cells)
    failed = {cell for cell, works in cells.items() if not works}
    assert set().union(*(cause.cells for cause in told.causes)) | told.unexplained == failed
    for cause in told.causes:
        assert all(not cells[cell] for cell in cause.cells)


@given(st.integers(2, 8), st.data())
def test_any_matrix_is_explained_without_contradiction(num_nodes: int, data: st.DataObject) -> None:
    pairs = list(itertools.permutations(range(num_nodes), 2))
    examined = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=len(pairs)))
    cells = {pair: data.draw(st.booleans()) for pair in examined}
    told = attribute(cells)
    covered = set(told.unexplained).union(*(cause.cells for cause in told.causes))
    assert covered == {pair for pair, works in cells.items() if not works}


def test_healthy_matrix_has_no_cause() -> None:
    assert attribute(matrix(5, ())) == Attribution()


def test_node_that_does_not_report_is_found_by_its_column() -> None:
    cells = {cell: works for cell, works in matrix(5, (("node", (3,)),)).items() if cell[0] != 3}
    told = attribute(cells)
    assert found(told) == [("node", (3,))]
    assert told.causes[0].confidence == "certain"


def test_parts_of_a_network_are_a_split() -> None:
    cells = {(one, other): (one < 2) == (other < 2) for one, other in itertools.permutations(range(5), 2)}
    (cause,) = attribute(cells).causes
    assert (cause.kind, cause.sides) == ("split", ((0, 1), (2, 3, 4)))


def test_everything_failing_is_no_node() -> None:
    (cause,) = attribute(dict.fromkeys(itertools.permutations(range(4), 2), False)).causes
    assert (cause.kind, cause.confidence) == ("everything", "possible")


def test_between_two_nodes_the_link_is_all_that_can_be_said() -> None:
    (cause,) = attribute({(0, 1): False, (1, 0): False}).causes
    assert (cause.kind, cause.nodes, cause.confidence) == ("link", (0, 1), "likely")


def test_one_neighbor_is_too_few_to_be_certain_of_the_link() -> None:
    # As in the rounds of --quick: node 1 was examined with node 0 alone.
    told = attribute({(0, 1): False, (1, 0): False, (0, 2): True, (2, 0): True})
    assert found(told) == [("link", (0, 1))]
    assert told.causes[0].confidence == "likely"


def test_names_work_as_numbers_do() -> None:
    cells = {(f"node{one}", f"node{other}"): works for (one, other), works in matrix(4, (("link", (1, 2)),)).items()}
    assert attribute(cells).causes[0].nodes == ("node1", "node2")


def test_many_broken_links_of_a_large_network_are_each_found() -> None:
    links = tuple(("link", (node, node + 1)) for node in range(0, 60, 2))
    assert sorted(found(attribute(matrix(64, links)))) == sorted(links)
