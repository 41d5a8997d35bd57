"""Any tensor goes through the hooks: summarized, or recorded as what it is; never an exception, never a changed run."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from transformers.modeling_outputs import BaseModelOutput

import numscope
from numscope.records.site import Phase


def inference() -> Tensor:
    with torch.inference_mode():
        return torch.randn(2, 3)


def fake() -> Tensor:
    with FakeTensorMode():
        return torch.empty(2, 3)


def quantized() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.randn(2, 3), 0.1, 0, torch.qint8)


def sparse(layout: str) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(torch.eye(4), layout)() if layout != "to_sparse_bsr" else torch.eye(4).to_sparse_bsr((2, 2))


def jagged() -> Tensor:
    return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)], layout=torch.jagged)


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(1, 3)])


TENSORS: dict[str, tuple[Callable[[], Tensor], bool]] = {  # how to make it, whether it has numbers to see
    **{str(d): (lambda d=d: torch.ones(2, 3).to(d), True) for d in (
        torch.bool, torch.uint8, torch.uint16, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.complex64, torch.complex128,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
    )},
    "scalar": (lambda: torch.tensor(2.0), True),
    "empty": (lambda: torch.empty(0, 3), True),
    "transposed": (lambda: torch.randn(3, 4).t(), True),
    "strided": (lambda: torch.randn(4, 6)[::2, ::3], True),
    "expanded": (lambda: torch.randn(1, 3).expand(4, 3), True),
    "overlapping": (lambda: torch.randn(5).as_strided((3, 3), (1, 1)), True),
    "channels last": (lambda: torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last), True),
    "sparse coo": (lambda: sparse("to_sparse"), True),
    "sparse csr": (lambda: sparse("to_sparse_csr"), True),
    "sparse bsr": (lambda: sparse("to_sparse_bsr"), True),
    "jagged": (jagged, True),
    "nested": (nested, False),
    "quantized": (quantized, False),
    "meta": (lambda: torch.empty(2, 3, device="meta"), False),
    "fake": (fake, False),
    "two tensors": (lambda: TwoTensor(torch.randn(2), torch.randn(2)), False),
    "conjugated": (lambda: torch.randn(3, dtype=torch.complex64).conj(), True),
    "negated": (lambda: torch.randn(3, dtype=torch.complex64).conj().imag, True),
    "zero": (lambda: torch._efficientzerotensor((2, 3)), True),
    "inference": (inference, True),
    "mkldnn": (lambda: torch.randn(2, 3).to_mkldnn(), None),
    "parameter": (lambda: nn.Parameter(torch.randn(3)), True),
    "view of an input": (lambda: torch.randn(4, 3)[1], True),
}  # fmt: skip


class Passing(nn.Module):
    def forward(self, x: Any, *, key: Any = None) -> Any:
        return x


class Model(nn.Module):
    """Hands anything through a module of its own, beside work that trains."""

    def __init__(self, through: Any) -> None:
        super().__init__()
        self.through = through
        self.layer = nn.Linear(3, 3)
        self.passing = Passing()

    def forward(self, x: Tensor, anything: Any) -> tuple[Tensor, Any]:
        self.passing(anything, key=self.through)
        return self.layer(x), anything


def events(scope: Any) -> list[Any]:
    return list(scope._watch._detection.evidence.journal.events)


@pytest.mark.parametrize("level", ["modules", "sentinel"])
@pytest.mark.parametrize("name", TENSORS)
def test_tensor_goes_through_as_input_and_output(name: str, level: str, caplog: Any) -> None:
    torch.manual_seed(0)
    make, numbers = TENSORS[name]
    tensor = make()
    model = Model(tensor)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model, level=level, on_nonfinite="warn") as scope:
        for _ in range(2):
            out, same = model(torch.randn(2, 3), tensor)
            assert same is tensor
            out.sum().backward()
            if level == "modules":
                event = next(e for e in events(scope) if e.entry.name == "passing")
                assert [slot for slot, _, _ in event.items] == ["input[0]", "input[key]", "output"]
                for _, book, handle in event.items:
                    assert numbers is None or (book is not None) is numbers, handle
                    assert book is not None or any(str(n) in str(handle) for n in ("tensor", "Tensor")), handle
            optimizer.step()
            optimizer.zero_grad()
        assert not scope.closed and not scope.findings and scope.step_number == 2
        scope.step()
    assert not caplog.records


class Odd(nn.Module):
    """A gradient of some other kind flows through the output of ``first``."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64, "complex": torch.complex64}.get(kind, torch.float32)
        self.weight = nn.Parameter(torch.ones(3, 3, dtype=dtype))
        self.first = Passing()
        self.table = nn.Embedding(5, 3, sparse=kind == "sparse")

    def forward(self, ids: Tensor) -> Tensor:
        x = self.first(self.weight * 2)
        if self.kind == "expanded":
            return x.sum() + self.table(ids).sum()
        if self.kind == "empty":
            return x[:0].sum() + self.table(ids).sum()
        if self.kind == "two":
            return self.first(TwoTensor(x, x)).sum().a + self.table(ids).sum()
        if self.kind == "jagged":
            made = torch.nested.as_nested_tensor([x[:2], x[2:]], layout=torch.jagged)
            return self.first(made).values().sum() + self.table(ids).sum()
        if self.kind == "zero":
            return (x * torch._efficientzerotensor(x.shape)).sum() + self.table(ids).sum()
        x = x.real if self.kind == "complex" else x
        return x.float().pow(2).sum() + self.table(ids).sum()


@pytest.mark.parametrize("kind", ["plain", "fp16", "bf16", "fp64", "complex", "expanded", "empty", "sparse", "two", "jagged", "zero"])
def test_gradient_of_any_kind_goes_through(kind: str, caplog: Any) -> None:
    def run(watched: bool) -> list[Tensor | None]:
        torch.manual_seed(0)
        model = Odd(kind)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scope = numscope.watch(model) if watched else None
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 2])).backward()
            optimizer.step()
        if scope is not None:
            assert not scope.closed
            scope.close()
        return [*[p.detach().clone() for p in model.parameters()], *[p.grad for p in model.parameters()]]

    for a, b in zip(run(True), run(False), strict=True):
        assert (a is None) == (b is None)
        assert a is None or (torch.equal(a.to_dense(), b.to_dense()) and a.layout == b.layout)
    assert not caplog.records


Pair = namedtuple("Pair", "left right")


@dataclass
class Both:
    left: Tensor
    right: Any = None


class Box:
    def __init__(self, value: Tensor) -> None:
        self.value = value


X = torch.ones(2)


@pytest.mark.parametrize(
    ("output", "slots"),
    [
        (X, ["output"]),
        (None, ["output"]),
        ((X, (X, X)), ["output[0]", "output[1][0]", "output[1][1]"]),
        ([X, None, 3], ["output[0]", "output[1]", "output[2]"]),
        ({"a": X, 1: [X]}, ["output[a]", "output[1][0]"]),
        (Pair(X, (X,)), ["output[0]", "output[1][0]"]),
        (Both(X), ["output[left]"]),
        (Both(X, {"k": X}), ["output[left]", "output[right][k]"]),
        (
            BaseModelOutput(last_hidden_state=X, hidden_states=(X, X)),
            ["output[last_hidden_state]", "output[hidden_states][0]", "output[hidden_states][1]"],
        ),
        (Box(X), ["output"]),
        ((i for i in ()), ["output"]),
        ((), ["output"]),
        ({}, ["output"]),
        ("text", ["output"]),
        (torch.Size([2]), ["output[0]"]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_nested_output_is_walked_and_named_as_the_guide_names_it(output: Any, slots: list[str]) -> None:
    class Giving(nn.Module):
        def forward(self) -> Any:
            return output

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.giving = Giving()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            assert self.giving() is output
            return self.layer(x)

    model = Outer()
    with numscope.watch(model) as scope:
        model(X)
        event = next(e for e in events(scope) if e.entry.name == "giving" and e.phase is Phase.FORWARD)
        assert [slot for slot, _, _ in event.items] == slots
        assert not scope.closed


def test_output_that_contains_itself_ends_the_walk() -> None:
    loop: list[Any] = [X]
    loop.append(loop)
    model = Model(None)
    with numscope.watch(model) as scope:
        model(torch.randn(2, 3), loop)
        assert not scope.closed and scope.batch == 1


def test_object_that_refuses_to_be_walked_is_no_reason_to_give_up() -> None:
    class Refusing(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("no")

    model = Model(None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        out, _ = model(torch.randn(2, 3), Refusing(a=X))
        out.sum().backward()
        optimizer.step()
        assert not scope.closed


def test_dtensor_goes_through(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].weight = nn.Parameter(distribute_tensor(model[0].weight.detach(), mesh, [Replicate()]))
    model[0].bias = nn.Parameter(distribute_tensor(model[0].bias.detach(), mesh, [Replicate()]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with numscope.watch(model) as scope:
        for _ in range(2):
            model(distribute_tensor(torch.ones(2, 3), mesh, [Replicate()])).sum().backward()
            assert all(book is not None for e in events(scope) for _, book, _ in e.items)
            optimizer.step()
            optimizer.zero_grad()
        assert not scope.closed
