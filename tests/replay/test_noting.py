"""What is noted in C and made into records later is what the op probe records at once, for any program."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn

from numscope.records.site import Phase
from numscope.replay.log import Log
from numscope.replay.named import Named
from numscope.replay.noting import FunctionProbe, NotingProbe
from numscope.replay.op import OpProbe
from numscope.replay.tape import UNOBSERVED, OperandRecord, OpRecord, OpTape
from numscope.summary import native
from numscope.summary.ledger import Ledger

needs_native = pytest.mark.skipif(native.module is None, reason="the kernel was not built")

Values = list[Tensor]

# Each takes the values so far, of which it reads or writes some, and may add one.
OPERATIONS: dict[str, Callable[[Values, int, int], Any]] = {
    "add": lambda v, i, j: v.append(v[i] + v[j]),
    "scale": lambda v, i, j: v.append(v[i] * 0.5),
    "divide": lambda v, i, j: v.append(v[i] / v[j]),
    "root": lambda v, i, j: v.append(v[i].sqrt()),
    "transpose": lambda v, i, j: v.append(v[i].t()),
    "row": lambda v, i, j: v.append(v[i][j % 2].expand(2, 2).clone()),
    "reshape": lambda v, i, j: v.append(v[i].reshape(-1).view(2, 2)),
    "detach": lambda v, i, j: v.append(v[i].detach()),
    "double": lambda v, i, j: v.append(v[i].double().float()),
    "in place": lambda v, i, j: v[i].mul_(2.0),
    "part in place": lambda v, i, j: v[i][0].add_(v[j][1]),
    "assign": lambda v, i, j: v[i].__setitem__((slice(None), 0), v[j][:, 1]),
    "fill": lambda v, i, j: v[i].zero_(),
    "fill inf": lambda v, i, j: v[i][0].fill_(float("-inf")),
    "out": lambda v, i, j: torch.mul(v[i], 3.0, out=v[j]),
    "cat": lambda v, i, j: v.append(torch.cat([v[i], v[j]])[1:3]),
    "stack": lambda v, i, j: v.append(torch.stack([v[i], v[j]], dim=-1)[..., 1]),
    "chunks": lambda v, i, j: v.append(torch.mm(*(torch.cat([c, c]) for c in v[i].chunk(2)))),
    "foreach": lambda v, i, j: v.extend(torch._foreach_add([v[i], v[j]], 1.0)),
    "foreach in place": lambda v, i, j: torch._foreach_mul_([v[i]], [v[j]]),
    "where": lambda v, i, j: v.append(torch.where(v[i] > 0, v[i], v[j])),
    "mask": lambda v, i, j: v.append(v[i].masked_fill(v[j] > 0, 0.0)),
    "index": lambda v, i, j: v.append(v[i][torch.tensor([1, 0])]),
    "gather": lambda v, i, j: v.append(v[i][:, v[j].argmax(1)]),
    "softmax": lambda v, i, j: v.append(v[i].log_softmax(-1)),
    "loss": lambda v, i, j: v.append(nn.functional.cross_entropy(v[i], torch.tensor([0, 1])) + v[j]),
    "empty": lambda v, i, j: v.append(torch.empty_like(v[i]).copy_(v[j])),
    "norm": lambda v, i, j: v.append(v[i] / v[j].norm()),
    "drop": lambda v, i, j: v.pop(i) if len(v) > 4 else None,
    "complex": lambda v, i, j: v.append(torch.fft.ifft(torch.fft.fft(v[i])).real),
    "sparse": lambda v, i, j: v.append((v[i].to_sparse() * 2.0).to_dense()),
}

# Where an operation raises, the op probe has made its node's record before, of which a note is never made.
MAY_FAIL = ("aten.mul", "aten.copy_", "aten.mul_", "aten.add_", "aten.zero_", "aten.fill_", "aten._foreach_mul_")

PROGRAMS = st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=14)


def run(
    program: list[tuple[str, int, int]], probe: OpProbe | FunctionProbe, names: Named, *, grad: bool, after: Callable[[int], object] = id
) -> None:
    torch.manual_seed(0)
    values: Values = [nn.Parameter(torch.rand(2, 2) + 0.1), torch.rand(2, 2), torch.tensor([[1.0, -1.0], [0.0, 2.0]])]
    names.add(values[1], "input")
    with torch.set_grad_enabled(grad), probe:
        for number, (operation, i, j) in enumerate(program):
            with contextlib.suppress(RuntimeError):  # a leaf that requires a gradient is written, for example: as without a probe
                OPERATIONS[operation](values, i % len(values), j % len(values))
            after(number)


def operand(one: OperandRecord, tape: OpTape, rows: Ledger) -> tuple[object, ...]:
    state = one.state
    numbers = None if state is None or state.row < 0 else str(rows.numbers(state.row))
    held = None if state is None else (numbers, state.writers, state.name)
    return one.name, held, str(one.value), one.dtype, one.shape, one.position, one.parameter, one.ignored


def told(tape: OpTape, rows: Ledger) -> list[object]:
    rows.read()

    def record(one: OpRecord) -> tuple[object, ...]:
        operands = [[operand(each, tape, rows) for each in part] for part in (one.inputs, one.outputs, one.parts)]
        lines = [(file, line) for file, line, _, _ in one.stack.resolve()[-2:]]
        return one.index, one.op, one.phase, operands, one.differentiable, one.bears, lines

    first = min(tape._nodes, default=0)
    nodes = {
        seq - first: [(one.index, one.op) for one in records if one.index >= 0 or one.op not in MAY_FAIL]
        for seq, records in tape._nodes.items()
    }
    return [*map(record, tape.records), {seq: records for seq, records in nodes.items() if records}]


@needs_native
@given(PROGRAMS, st.booleans(), st.integers(0, 14))
def test_notes_become_the_records_of_the_op_probe(program: list[tuple[str, int, int]], grad: bool, flushed_after: int) -> None:
    names, at_once = Named(), Ledger()
    direct = OpProbe(OpTape(), at_once, phase=Phase.LOSS, names=names)
    run(program, direct, names, grad=grad)

    log = Log()

    def flush() -> None:
        probe_was_on, noting.is_on = noting.is_on, False
        while len(log):
            put, *given = log.popleft()
            put(*given)
        noting.is_on = probe_was_on

    names, later = Named(), Ledger()
    noting = NotingProbe(OpTape(), later, log, phase=Phase.LOSS, names=names, flush=flush, most=9999, end=flush)
    run(program, noting, names, grad=grad, after=lambda number: flush() if number == flushed_after else None)
    flush()
    assert direct.error is None and noting.error is None
    assert told(noting.tape, later) == told(direct.tape, at_once)


# Of these a function has another result than the last of its operations: all of a tensor, of which a part was written.
OF_ONE_RESULT = sorted(OPERATIONS.keys() - {"assign"})


@needs_native
@example([("cat", 1, 1), ("foreach in place", 3, 0), ("foreach in place", 3, 0)], True)
@given(st.lists(st.tuples(st.sampled_from(OF_ONE_RESULT), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=14), st.booleans())
def test_numbers_of_functions_are_those_that_their_operations_made(program: list[tuple[str, int, int]], grad: bool) -> None:
    def made(tape: OpTape, rows: Ledger) -> Counter[str]:
        rows.read()
        states = [one.state for record in tape.records for one in record.outputs if one.state is not None and one.state.row >= 0]
        return Counter(str(rows.numbers(state.row)) for state in states)

    names, at_once = Named(), Ledger()
    direct = OpProbe(OpTape(), at_once, phase=Phase.LOSS, names=names)
    run(program, direct, names, grad=grad)

    log = Log()

    def flush() -> None:
        while len(log):
            put, *given = log.popleft()
            put(*given)

    names, later = Named(), Ledger()
    maker = NotingProbe(OpTape(), later, log, phase=Phase.LOSS, names=names, flush=flush, most=9999, end=flush)
    probe = FunctionProbe(maker, most=9999, end=flush)
    run(program, probe, names, grad=grad)
    vars(probe).pop("__torch_function__")
    flush()
    assert probe.error is None
    assert made(maker.tape, later).keys() <= made(direct.tape, at_once).keys()


@needs_native
def test_log_that_is_cleared_within_an_operation_tells_no_numbers_of_other_tensors() -> None:
    """A watch may end, or a step, while an operation is at work: a finalizer, another thread."""
    log, rows = Log(), Ledger()
    probe = NotingProbe(OpTape(), rows, log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)

    @torch.library.custom_op("numscope_tests::clears", mutates_args=())
    def clears(x: Tensor) -> Tensor:
        log.clear()
        return x + 1.0

    with probe:
        clears(torch.full((3,), 7.0))
        torch.full((3,), 5.0) * 1.0
    while len(log):
        put, *given = log.popleft()
        put(*given)
    rows.read()
    assert probe.error is None
    (cleared,) = [record for record in probe.tape.records if record.op == "numscope_tests.clears"]
    (x,), (result,) = cleared.inputs, cleared.outputs
    assert x.state is not None and x.state.row == UNOBSERVED
    assert result.state is not None and rows.numbers(result.state.row).max == 8.0


@needs_native
@pytest.mark.parametrize("kept", [0, 1, 3, 9])
def test_newest_notes_that_are_kept_become_their_records_and_older_ones_none(kept: int) -> None:
    log, rows = Log(), Ledger()
    probe = NotingProbe(OpTape(), rows, log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)
    x = torch.ones(2)
    with probe:
        for _ in range(5):
            x = x + 1.0
    log.keep(kept)
    assert len(log) == log.num_noted == min(kept, 5) and len(rows) == 0
    while len(log):
        put, *given = log.popleft()
        put(*given)
    rows.read()
    made = [
        [rows.numbers(one.state.row).max for one in (*record.inputs, *record.outputs) if one.state is not None]
        for record in probe.tape.records
    ]
    assert made == [[6.0 - n, 7.0 - n] for n in range(min(kept, 5), 0, -1)]


@needs_native
def test_what_is_bad_is_known_of_the_log_until_its_records_are_made() -> None:
    log = Log()
    probe = NotingProbe(OpTape(), Ledger(), log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)
    with probe:
        torch.zeros(2).log()
    assert log.has_bad
    while len(log):
        log.popleft()
    assert not log.has_bad


@needs_native
def test_notes_keep_nothing_alive() -> None:
    log = Log()
    probe = NotingProbe(OpTape(), Ledger(), log, phase=Phase.LOSS, names=Named(), flush=log.clear, most=9999, end=log.clear)
    with probe:
        given = torch.rand(3)
        made = (given * 2).exp()
        storages = [weakref.ref(t.untyped_storage()) for t in (given, made)]
        tensors = [weakref.ref(t) for t in (given, made)]
        del given, made
        gc.collect()
        assert len(log) == 3 and not any(ref() for ref in (*storages, *tensors))


@needs_native
def test_function_that_c_cannot_note_names_the_line_that_called_it() -> None:
    """A list among the indices: its record is made at once, by Python, which C calls without a frame between."""

    def chosen(x: Tensor) -> Tensor:
        return x[:, [1]]

    log = Log()

    def flush() -> None:
        while len(log):
            put, *given = log.popleft()
            put(*given)

    maker = NotingProbe(OpTape(), Ledger(), log, phase=Phase.LOSS, names=Named(), flush=flush, most=9999, end=flush)
    probe = FunctionProbe(maker, most=9999, end=flush)
    with probe:
        chosen(torch.ones(2, 3))
    vars(probe).pop("__torch_function__")
    flush()
    assert probe.error is None
    (record,) = [record for record in maker.tape.records if record.op == "aten.index"]
    *_, innermost = record.stack.resolve()
    assert innermost[2].endswith("chosen") and innermost[3] == "return x[:, [1]]"


def test_watch_at_a_scripts_top_level_goes_on(tmp_path: Path) -> None:
    """There is one frame on the stack."""
    (tmp_path / "s.py").write_text(
        "import torch, numscope\n"
        "model = torch.nn.Linear(4, 4)\n"
        "scope = numscope.watch(model)\n"
        "for _ in range(10):\n"
        "    with torch.no_grad():\n"
        "        model(torch.ones(1, 4))[:, [-1]]\n"
        "print(scope.closed)\n"
    )
    run = subprocess.run([sys.executable, "s.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("False\n", "")
