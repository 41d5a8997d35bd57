"""What of the host path is in C: a wrong call raises, and what runs in between does not mix up rows."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

from numscope.detect.journal import Journal
from numscope.probe import walk
from numscope.probe.entry import Entry
from numscope.probe.witness import LEAVES, NO_ROWS, SITES, Witness
from numscope.records.site import Phase
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.noting import NotingProbe
from numscope.replay.tape import OpTape
from numscope.summary import native
from numscope.summary.ledger import Ledger
from numscope.summary.parameter_rows import Weights

needs_native = pytest.mark.skipif(native.module is None, reason="the kernel was not built")

WRONG = {
    "a ledger that was not made": "m.Ledger.__new__(m.Ledger).observe(torch.ones(2))",
    "a batch of it": "m.Ledger.__new__(m.Ledger)._observe_batch([torch.ones(2)], 1)",
    "a journal that was not made": "m.Journal.__new__(m.Journal).add(1, 2, {}, [])",
    "a journal of no ledgers": "m.Journal()._share(*[None] * 12)",
    "a journal whose call is deleted": "exec('del j.call', {'j': Journal()})",
    "leaves that are no pairs": "Journal().add(1, 2, {}, [3])",
    "leaves that are half pairs": "Journal().add(1, 2, {}, [('output',)])",
    "places that are no tuples": "Journal().add_gradients([1])",
    "places of no entries": "p.grad = p * 1\n    Journal().add_gradients([(1, 'weight', p)])",
    "weights that were not made": "m.Weights.__new__(m.Weights)._reread([p], True, 1)",
    "weights of no ledger": "m.Weights()._share(1, {}, {})",
    "a row that is none": "w.rows[id(p)].handle = 10**6\n    w._reread([p], True, 1)",
    "fields that are no number": "setattr(Ledger(), 'groups', 'x')",
    "a lock that was not taken": "Ledger().__exit__(None, None, None)",
    "fields of -1": "setattr(Ledger(), 'groups', -1)",
    "notes by name of no dict": "m.NotingProbe()._share(print, {}, 3, print, 1)",
}


@needs_native
@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_call_raises_an_error_of_its_own(call: str) -> None:
    script = f"""
import torch
from numscope.detect.journal import Journal
from numscope.summary.ledger import Ledger
from numscope.summary.native import module as m
from numscope.summary.parameter_rows import Weights
p, w = torch.nn.Parameter(torch.ones(2)), Weights()
w.observe(p)
try:
    {call}
except SystemError:
    raise
except Exception:
    print("raised")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "raised\n", (done.returncode, done.stderr[-500:])


class _Noting(NotingProbe):
    """Notes into a log of its own; with ``fault``, fails at the first operation."""

    def __init__(self, fault: BaseException | None = None) -> None:
        self.log, self.fault = Log(), fault
        super().__init__(OpTape(), Ledger(), self.log, phase=Phase.LOSS, names=Named(), flush=self.make, most=1, end=self.fail)

    def fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def make(self) -> None:
        while len(self.log):
            put, *given = self.log.popleft()
            put(*given)


@needs_native
def test_interrupt_within_a_note_is_the_scripts_and_an_error_the_tools() -> None:
    def run(fault: BaseException) -> _Noting:
        probe, given = _Noting(fault), torch.ones(2)
        with probe:
            made = given + given
        assert made.tolist() == [2.0, 2.0]
        return probe

    error = ValueError("planted")
    assert run(error).error is error
    with pytest.raises(KeyboardInterrupt):
        run(KeyboardInterrupt())


@pytest.mark.filterwarnings("ignore:.*prototype stage.*")
def test_nested_tensors_are_recorded_without_a_shape() -> None:
    nested, probe = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), _Noting()
    with probe:
        doubled = nested * 2.0
    probe.make()
    assert probe.error is None
    (record,) = probe.tape.records
    assert [operand.shape for operand in (*record.inputs, *record.outputs) if operand.state] == [(), ()], doubled


@needs_native
def test_what_the_collector_runs_may_observe_too() -> None:
    ledger, inner = Ledger(capacity=4096), []

    def observe(phase: str, _: Any) -> None:
        if phase == "start" and len(inner) < 500:
            tensor = torch.full((1,), 1000.0 + len(inner))
            inner.append((tensor, -1))
            inner[-1] = tensor, ledger.observe(tensor)

    threshold = gc.get_threshold()
    tensors = [torch.full((1,), float(i)) for i in range(500)]
    gc.callbacks.append(observe)
    gc.set_threshold(1)
    try:
        outer = [(tensor, ledger.observe(tensor)) for tensor in tensors]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(observe)
    assert inner, "the collector has not run"
    ledger.read()
    for tensor, handle in outer + inner:
        numbers = ledger.numbers(handle)
        assert (numbers.numel, numbers.max) == (1, tensor.item())


@needs_native
def test_interrupt_as_the_lock_is_taken_does_not_keep_it() -> None:
    def interrupt(_: object, event: str, function: Any) -> None:
        if event == "c_return" and function.__name__ == "acquire":
            raise KeyboardInterrupt

    ledger, taken = Ledger(), list[bool]()
    sys.setprofile(interrupt)
    try:
        with ledger:
            pass
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    thread = threading.Thread(target=lambda: taken.append(ledger.lock.acquire(timeout=1)))
    thread.start()
    thread.join()
    assert taken == [True]


def test_weights_are_read_while_another_thread_adds_some() -> None:
    weights = Weights()
    known = torch.nn.Parameter(torch.ones(1 << 20))
    weights.observe(known)
    begun, over = threading.Event(), threading.Event()
    was = weights._reread

    def reread(*args: Any) -> list[int | None]:
        begun.set()
        over.wait(0.5)
        return was(*args)

    def add() -> None:
        begun.wait(10)
        for _ in range(300):  # more than there is room for
            weights.ledger.observe_many([torch.ones(1)])
        over.set()

    setattr(weights, "_reread", reread)  # noqa: B010
    thread = threading.Thread(target=add)
    thread.start()
    weights.observe_many([known])
    assert not over.is_set(), "rows were moved while they were written"
    thread.join()


def test_replaced_parameters_and_changed_leaves_live_as_long_as_they_are_read() -> None:
    journal = Journal()
    weights = {"weight": torch.nn.Parameter(torch.ones(4))}
    leaves: list[Any] = [("output", torch.ones(1 << 17))]
    was = journal.ledger._observe_any

    def observe(tensor: torch.Tensor, shape: Any) -> int:
        leaves.clear()
        return was(tensor, shape)

    setattr(journal.ledger, "_observe_any", observe)  # noqa: B010
    from numscope.records.site import Phase

    journal.add(Entry("", ""), Phase.FORWARD, weights, leaves)
    journal.read()
    assert journal.numbers(0, "output").numel == 1 << 17  # type: ignore[union-attr]


def test_threads_observe_small_and_large_tensors_in_one_ledger() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            ledger, found = Ledger(capacity=4), []

            def work(number: int, count: int, size: int, ledger: Ledger = ledger, found: list[Any] = found) -> None:
                for k in range(count):
                    tensor = torch.full((size,), 1000.0 * number + k)
                    found.append((tensor, ledger.observe(tensor)))

            threads = [threading.Thread(target=work, args=given) for given in ((1, 20, 1 << 17), (2, 300, 3), (3, 300, 5))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 620
            for tensor, handle in found:
                numbers = ledger.numbers(handle)
                assert (numbers.numel, numbers.max, numbers.shape) == (tensor.numel(), tensor[0].item(), tuple(tensor.shape))
    finally:
        sys.setswitchinterval(interval)


def test_a_hook_that_fails_gives_the_error_to_the_tool_and_the_tools_own_to_the_script() -> None:
    caught: list[Exception] = []

    def fails(*_: Any) -> None:
        raise ValueError("planted")

    def catch(error: Exception) -> None:
        caught.append(error)
        if len(caught) > 1:
            raise LookupError("meant for the script")

    entry, x = Entry("fc", "Linear"), torch.ones(2, requires_grad=True)
    witness = Witness(catch, catch)
    witness.listen(lambda *_: None, fails)
    outputs = [x * 2, x * 3]
    left = 0 if native.module is not None else LEAVES
    assert [witness.saw(entry, None, True, (x,), {}, output) for output in outputs] == [left] * 2
    if native.module is None:
        return
    outputs[0].sum().backward()
    assert [str(error) for error in caught] == ["planted"] and x.grad is not None
    with pytest.raises(LookupError, match="meant for the script"):
        outputs[1].sum().backward()
    pending = x * 4
    assert witness.saw(entry, None, True, (x,), {}, pending) == 0
    witness.listen(None, None)
    late = x * 5
    assert witness.saw(entry, None, True, (x,), {}, late) == LEAVES
    (late + pending).sum().backward()
    assert len(caught) == 2


@needs_native
def test_listener_and_reader_get_one_call_each_by_its_own_way() -> None:
    heard: list[Any] = []
    caught: list[str] = []
    shown: list[tuple[int, Any]] = []
    ledger, parts = Ledger(), list[int]()
    entry, x = Entry("fc", "Linear"), torch.ones(2, requires_grad=True)
    witness = Witness(lambda error: caught.append(f"listener: {error}"), lambda error: caught.append(f"reader: {error}"))
    witness.listen(
        lambda _, leaves: heard.append([slot for slot, _ in leaves]), lambda _, slot, gradient, __: heard.append((slot, gradient[0].item()))
    )
    witness.read(ledger, parts, bytes([1, 0, 1]), lambda site, tensor, _: shown.append((site, tensor[0].item())), lambda: None)
    output = x * 3
    assert witness.saw(entry, (0, 1, 2), True, (x,), {}, output) == 0
    (output * 7).sum().backward()
    assert heard == [["input[0]", "output"], ("grad output", 7.0)]
    assert shown == [(1, 3.0)]  # the site that wants more than a row
    ledger.read()
    assert [(site, ledger.numbers(handle).max) for site, handle in zip(parts[::2], parts[1::2], strict=True)] == [(0, 1.0), (2, 7.0)]
    assert len(output._backward_hooks or ()) == 1
    assert witness.saw(entry, (0, 1, 2), True, (x,), {}, (x * 3,)) == SITES  # of a tuple Python takes the first
    assert witness.saw(entry, (None, None, 2), True, ([x],), {}, torch.ones(2, requires_grad=True)) == SITES  # a leaf's hook would stay
    # What one of them raises is its own, and the other gets the call all the same.
    witness.listen(lambda *_: 1 // 0, None)
    assert witness.saw(entry, (0, None, None), True, (x,), {}, x * 3) == 0
    witness.read(ledger, parts, bytes(3), lambda *_: {}["none"], lambda: None)
    assert witness.saw(entry, (0, None, None), True, (x,), {}, x * 3) == 0
    assert [line.split(":")[0] for line in caught] == ["listener", "listener", "reader"]
    num = len(parts)
    pending = x * 3
    witness.listen(None, None)
    witness.read(ledger, parts, bytes([1, 1, 1]), lambda *_: None, lambda: None)
    assert witness.saw(entry, (None, None, 2), False, (x,), {}, pending) == LEAVES
    witness.read(*NO_ROWS)
    pending.sum().backward()
    assert len(parts) == num


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "a tensor": ((torch.ones(1),), {}, torch.ones(2)),
    "numbers and nothing": ((torch.ones(1), 3, None, "x", True), {"flag": True, "scale": 2.0, "mask": None}, torch.ones(2)),
    "tensors by name": ((), {"hidden": torch.ones(1), "mask": torch.ones(1, dtype=torch.bool)}, torch.ones(2)),
    "a pair": ((torch.ones(1),), {}, (torch.ones(2), None)),
    "nested arguments": (([torch.ones(1), {"a": torch.ones(1)}],), {"pair": (torch.ones(1), 2)}, torch.ones(2)),
    "no containers": ((object(),), {"kind": torch.float32}, torch.ones(2)),
    "nested results": ((torch.ones(1),), {}, (torch.ones(2), (torch.ones(1), torch.ones(1)))),
    "a mapping": ((torch.ones(1),), {}, {"logits": torch.ones(2)}),
    "nothing": ((torch.ones(1),), {}, None),
    "an empty tuple": ((torch.ones(1),), {}, ()),
}


def raised(error: Exception) -> None:
    raise error


@needs_native
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_c_finds_the_leaves_that_python_finds_or_leaves_them_to_it(call: tuple[tuple[Any, ...], dict[str, Any], Any]) -> None:
    told: list[Any] = []
    witness = Witness(raised, raised)
    witness.listen(lambda entry, leaves: told.extend(leaves), None)
    args, kwargs, output = call
    if not witness.saw(Entry("", ""), None, True, args, kwargs, output):
        expected = walk.leaves(args, kwargs, output)
        assert [slot for slot, _ in told] == [slot for slot, _ in expected]
        assert all(leaf is other for (_, leaf), (_, other) in zip(told, expected, strict=True))
    else:
        assert not told and not isinstance(output, torch.Tensor)
