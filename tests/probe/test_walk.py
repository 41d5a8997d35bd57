"""Values that modules return, walked for their tensors."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
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


class Counted:
    """Notes what of it is used."""

    used: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name in ("items", "keys", "values", "get", "__iter__", "__getitem__", "__len__", "__bool__", "__contains__", "computed"):
            Counted.used.append(name)
        return super().__getattribute__(name)


def counted(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        Counted.used.append(name)
        return getattr(super(type(self), self), name)(*args)

    return method


METHODS = {name: counted(name) for name in ("__iter__", "__getitem__", "__len__", "__contains__")}


class Computing(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        Counted.used.append("computes")
        return torch.ones(2)

    def __iter__(self) -> Iterator[str]:
        Counted.used.append("iterates")
        return iter("ab")

    def __len__(self) -> int:
        return 2


@dataclasses.dataclass
class Given:
    x: Tensor
    y: Any = None

    @property
    def z(self) -> Tensor:
        Counted.used.append("z")
        return self.x


@dataclasses.dataclass(slots=True)
class Slotted:
    x: Tensor
    y: Any = None


@pytest.mark.parametrize(
    ("value", "slots"),
    [
        (type("Items", (Counted, dict), METHODS)(a=torch.ones(1), b=[torch.ones(1)]), ["[a]", "[b][0]"]),
        (type("Ordered", (Counted, OrderedDict), METHODS)(a=torch.ones(1)), ["[a]"]),
        (type("User", (Counted, UserDict), METHODS)(a=torch.ones(1)), ["[a]"]),
        (type("Listed", (Counted, list), METHODS)([torch.ones(1), torch.ones(1)]), ["[0]", "[1]"]),
        (type("Paired", (Counted, namedtuple("Pair", "x y")), METHODS)(torch.ones(1), 3), ["[0]"]),
        (Computing(), []),
        (Given(torch.ones(1)), ["[x]"]),
        (Slotted(torch.ones(1), torch.ones(1)), ["[x]", "[y]"]),
        (MappingProxyType({"a": torch.ones(1)}), ["[a]"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_method_of_a_users_container_runs(value: Any, slots: list[str]) -> None:
    Counted.used.clear()
    assert [slot for slot, _ in walk.tensors(value, "")] == slots
    assert Counted.used == []


@dataclasses.dataclass(slots=True)
class Unset:
    x: Tensor
    cache: Any = dataclasses.field(init=False)


@dataclasses.dataclass(init=False)
class Virtual:
    x: Tensor
    y: Tensor

    def __init__(self) -> None:
        self.y = torch.ones(1)

    def __getattr__(self, name: str) -> Any:
        Counted.used.append(name)
        return torch.ones(1)


def test_field_that_is_not_there_hides_no_other_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Counted.used.clear()
    assert [slot for slot, _ in walk.tensors(Unset(torch.ones(1)), "")] == ["[x]"]
    assert [slot for slot, _ in walk.tensors(Virtual(), "")] == ["[y]"]
    assert Counted.used == [] and "does not watch x of Virtual" in caplog.text
