"""Values that modules return, walked for their tensors."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from numscope.probe import walk


def test_values_that_refer_to_each_other_are_walked_once_each():
    """20 dataclasses, each of which knows all others: every path through them would be 20^8."""

    @dataclasses.dataclass
    class Node:
        tensor: Tensor
        others: list[Node]

    nodes = [Node(torch.ones(1) * i, []) for i in range(20)]
    for node in nodes:
        node.others = [other for other in nodes if other is not node]
    found = walk.tensors(nodes, "output")
    assert sorted(float(t) for _, t in found) == list(range(20))
    assert found[0][0] == "output[0][tensor]" and found[1][0] == "output[0][others][0][tensor]"


def test_a_tensor_that_is_returned_twice_has_two_slots():
    x = torch.ones(1)
    assert [slot for slot, _ in walk.tensors((x, {"again": x}), "output")] == ["output[0]", "output[1][again]"]
