"""Rows of a ledger: exact numbers, one read a tensor, bounded memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from numscope.summary import dispatch
from numscope.summary.ledger import UNOBSERVED, Ledger
from numscope.summary.parameter_rows import Weights
from numscope.summary.state import ROW_BYTES


@pytest.fixture(params=["native", "reference"])
def ledger(request: Any, monkeypatch: Any) -> Ledger:
    if request.param == "reference":
        from numscope.summary import native

        request.getfixturevalue("in_python")
        monkeypatch.setattr(native, "module", None)
        monkeypatch.setattr(native, "available", lambda: False)
        monkeypatch.setattr(dispatch, "_native", None)
    return Ledger(capacity=4)


def test_numbers_are_those_of_the_tensor(ledger: Ledger) -> None:
    handle = ledger.observe(torch.tensor([[1.0, -3.0, 0.0], [math.nan, math.inf, -math.inf]]))
    ledger.read()
    n = ledger.numbers(handle)
    assert (n.dtype, n.shape, n.numel, n.num_nan, n.num_pos_inf, n.num_neg_inf, n.num_zero) == ("float32", (2, 3), 6, 1, 1, 1, 1)
    assert (n.min, n.max, n.abs_min, n.abs_max) == (-3.0, 1.0, 1.0, 3.0)


def test_bad_rows_are_told_in_the_order_of_observation(ledger: Ledger) -> None:
    tensors = [torch.tensor([float(v)]) for v in (1, math.nan, 2, math.inf, -math.inf)]
    handles = [ledger.observe(t) for t in tensors]
    ledger.read()
    assert ledger.bad() == [handles[1], handles[3], handles[4]]


def test_rows_beyond_the_capacity_keep_what_was_there(ledger: Ledger) -> None:
    tensors = [torch.tensor([float(i)]) for i in range(1, 40)]
    handles = [ledger.observe(t) for t in tensors]
    ledger.read()
    assert [ledger.numbers(h).max for h in handles] == [float(i) for i in range(1, 40)]
    assert len(ledger) == 39 and ledger.nbytes == 64 * ROW_BYTES


class Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"the script has called no {func}")


class OnMeta(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{**(kwargs or {}), **({"device": "meta"} if func is torch.empty else {})})


@pytest.mark.parametrize("mode", [Refuses, OnMeta])
def test_a_mode_of_the_script_neither_sees_nor_moves_the_rows(ledger: Ledger, mode: Any) -> None:
    tensors = [torch.full((2,), float(i)) for i in range(6)]
    with mode():
        handles = [ledger.observe(tensor) for tensor in tensors]
    ledger.read()
    assert [ledger.numbers(handle).max for handle in handles] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_unchanged_tensor_is_read_once_and_a_changed_one_again(ledger: Ledger, monkeypatch: Any, in_python: None) -> None:
    reads = []
    original = dispatch.observe
    monkeypatch.setattr(dispatch, "observe", lambda *args: reads.append(1) or original(*args))
    x = torch.ones(3)
    first = ledger.observe(x)
    assert ledger.observe(x) == first and len(reads) == 1
    x.add_(1)
    second = ledger.observe(x)
    assert second != first and len(reads) == 2
    ledger.read()
    assert ledger.numbers(first).max == 1.0 and ledger.numbers(second).max == 2.0


def test_another_tensor_at_the_same_address_is_not_taken_for_the_first(ledger: Ledger) -> None:
    for i in range(50):
        x = torch.full((8,), float(i))  # dies each time: its id and memory are used again
        handle = ledger.observe(x)
        ledger.read()
        assert ledger.numbers(handle).max == float(i)
        del x


def test_inference_tensor_is_read_each_time(ledger: Ledger) -> None:
    with torch.inference_mode():
        x = torch.ones(2)
        first = ledger.observe(x)
        x.fill_(5)
        second = ledger.observe(x)
    ledger.read()
    assert (ledger.numbers(first).max, ledger.numbers(second).max) == (1.0, 5.0)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_observing_many_equals_observing_each(ledger: Ledger, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(i + 1, generator=generator) for i in range(count)]
    many = ledger.observe_many(tensors)
    each = [ledger.observe(t) for t in tensors]
    ledger.read()
    assert [ledger.numbers(h) for h in many] == [ledger.numbers(h) for h in each]


def test_unreadable_tensors_among_many_have_no_handle(ledger: Ledger) -> None:
    tensors = [torch.ones(2), torch.empty(2, device="meta"), torch.nn.parameter.UninitializedParameter(), torch.zeros(2)]
    handles = ledger.observe_many(tensors)
    ledger.read()
    assert [h == UNOBSERVED for h in handles] == [False, True, True, False]
    assert ledger.numbers(handles[3]).num_zero == 2


def test_rewriting_replaces_the_row(ledger: Ledger) -> None:
    first, second = ledger.observe(torch.tensor([math.nan])), ledger.observe(torch.tensor([2.0]))
    assert ledger.rewrite_many([first], [torch.tensor([7.0, 8.0])]) == [True]
    ledger.read()
    assert ledger.bad() == []
    assert (ledger.numbers(first).shape, ledger.numbers(first).max, ledger.numbers(second).max) == ((2,), 8.0, 2.0)
    ledger.rewrite_many([first, second], [torch.tensor([math.inf]), torch.tensor([3.0])])
    assert ledger.bad() == [first]


def test_rewriting_from_another_device_is_refused(ledger: Ledger) -> None:
    handle = ledger.observe(torch.ones(1))
    assert ledger.rewrite_many([handle], [torch.ones(1, device="meta")]) == [False]


def test_emptied_row_is_bad_no_more(ledger: Ledger) -> None:
    handle = ledger.observe(torch.tensor([math.nan]))
    ledger.empty(handle)
    ledger.read()
    assert ledger.bad() == [] and ledger.numbers(handle).numel == 0


def test_reset_forgets_everything_and_keeps_the_memory(ledger: Ledger) -> None:
    x = torch.tensor([math.nan])
    for _ in range(10):
        ledger.observe(x)
        ledger.observe(torch.ones(2))
    size = ledger.nbytes
    ledger.reset()
    assert len(ledger) == 0 and ledger.bad() == [] and ledger.nbytes == size
    handle = ledger.observe(x)  # the same tensor, unchanged: its row is gone, so it is read again
    ledger.read()
    assert ledger.numbers(handle).num_nan == 1


def test_tensors_die_while_a_ledger_knows_them(ledger: Ledger) -> None:
    import weakref

    x = torch.ones(2)
    gone = weakref.ref(x)
    ledger.observe(x)
    ledger.observe_many([x])
    del x
    assert gone() is None


@pytest.mark.parametrize("kind", ["grad", "no_grad", "inference"])
def test_observing_leaves_the_tensor_as_it_was(ledger: Ledger, kind: str) -> None:
    mode: Any = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[kind]
    with mode():
        leaf = torch.randn(3, 4, requires_grad=kind != "inference")
        x: Tensor = leaf * 2
        before = x.clone(), None if x.is_inference() else x._version, x.grad_fn, x.stride(), x.requires_grad
        ledger.observe(x.t())
        ledger.observe(x)
        after = x.clone(), None if x.is_inference() else x._version, x.grad_fn, x.stride(), x.requires_grad
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_fake_weights_are_not_asked_for_an_address(recwarn: pytest.WarningsRecorder) -> None:
    weights = Weights()
    with FakeTensorMode():
        parameter = torch.nn.Parameter(torch.empty(2))
    assert weights.observe(parameter) == weights.observe(parameter) == UNOBSERVED
    assert not recwarn.list
