"""A folder with the operation at fault alone: its operands, made small, and a script in plain torch that shows the failure."""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numscope.detect.evidence import Evidence
from numscope.distributed.agree import has_group
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.naming import named_state
from numscope.records.faults import ours
from numscope.records.finding import Culprit, Finding, Numbers
from numscope.records.places import place
from numscope.records.site import Phase
from numscope.records.words import count, escape
from numscope.replay.call import do_again
from numscope.replay.capture import Call
from numscope.replay.fork import in_child
from numscope.replay.op import named_arguments, op_of, tensors_in
from numscope.replay.operation import MOST_BYTES, Operation, Unwritable, fails, has_failed, state_for
from numscope.replay.stages import Stages
from numscope.replay.tape import UNOBSERVED
from numscope.replay.update import failed_operation
from numscope.report.stderr import say
from numscope.summary.ledger import Ledger
from numscope.version import __version__

MOST_SECONDS = 10.0  # to make them small
_SCRIPT = '''"""{what}

Written by numscope {version} on torch {torch}. It ends well as long as the failure is there, to the bit.
"""

from pathlib import Path

import torch

t = torch.load(Path(__file__).with_name("operands.pt"), weights_only=True)
{draws}{call}
result = [r for r in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(r, torch.Tensor)][{at}]
torch.testing.assert_close(result, t["result"], rtol=0, atol=0, equal_nan=True)
num = int((~result.isfinite()).sum())
assert num, "all is finite"
print(f"reproduced: {{num}} of {{result.numel()}} elements are nan or inf")
'''


@dataclass(frozen=True, slots=True)
class _Packed:
    """The result that a child process hands back.

    Args:
        call: of it, as Python.
        random: the generator's state from which it draws.
        result: which one, and it.
        why_not: there is nothing in it; one sentence's part.
    """

    op: str = ""
    call: str = ""
    operands: dict[str, Tensor] | None = None
    random: Tensor | None = None
    result: tuple[int, Tensor] | None = None
    why_not: str = ""


def write(finding: Finding, evidence: Sequence[Evidence], log_dir: str | None) -> None:
    """Write a finding's capsule into the run's folder, else below the current one, and say where; or say why there is none."""
    try:
        packed = _packed(finding, evidence)
        if packed.operands is None or packed.result is None:
            return say(f"numscope: no capsule: {escape(packed.why_not)}.")
        base = Path(log_dir) if log_dir is not None and "://" not in log_dir else Path()
        folder = base / f"capsule-step{finding.step}-rank{finding.rank}"
        folder.mkdir(parents=True, exist_ok=True)
        random = {} if packed.random is None else {"random": packed.random}
        torch.save({"operands": packed.operands, "result": packed.result[1], **random}, folder / "operands.pt")
        (folder / "repro.py").write_text(_script(packed, finding), encoding="utf-8")
        size = sum(t.numel() * t.element_size() for t in packed.operands.values())
        name = escape(str(folder))
        say(
            f"numscope: capsule: {name}: {packed.op} on {count(size, 'byte')} of operands; python {name}/repro.py shows the failure "
            "without numscope. It holds numbers of your data or weights: look before you attach it to an issue."
        )
    except ours() as error:
        say(f"numscope: no capsule: {type(error).__name__}: {escape(str(error))}")
    return None


def _packed(finding: Finding, evidence: Sequence[Evidence]) -> _Packed:
    culprit, why = finding.culprit, "the call at fault can't be done again"
    if culprit is None:
        return _Packed(why_not=f"no operation was found: {finding.replay}")
    with optimizer_probe.paused():
        if culprit.phase is Phase.OPTIMIZER:
            return _of_update(evidence[0], culprit)
        if (kept := _outside(evidence[0], culprit)) is not None:
            return _apart(lambda: kept)
        for one in evidence:
            for call in reversed(one.calls) if one.replays else ():
                found = _apart(partial(_reached, one, call, culprit))
                if found.operands is not None:
                    return found
                why = found.why_not or why
    return _Packed(why_not=why)


def _of_update(evidence: Evidence, culprit: Culprit) -> _Packed:
    names = {id(t): f"{module}.{slot}".lstrip(".") for module, slot, t in named_state(evidence.names, buffers=False)}
    packed = [_apart(partial(failed_operation, optimizer, names, culprit)) for optimizer in evidence.steps.optimizers.living]
    return next((one for one in packed if one.operands is not None), packed[0] if packed else _Packed(why_not="its optimizer is gone"))


def _outside(evidence: Evidence, culprit: Culprit) -> object:
    """The record of the operation at fault, if it ran outside of the models' calls."""
    same = culprit.op, culprit.phase, culprit.module, (culprit.file, culprit.line)
    for record in evidence.outside.tape.records:
        if record.operation is not None and (record.op, record.phase, record.module) == same[:3]:
            lines = record.stack.resolve()
            if not lines or lines[-1][:2] == same[3]:
                return record.operation
    return None


def _apart(operation: Callable[[], object]) -> _Packed:
    """Pack an operation, or the text that says why there is none."""

    def work(shrinks: bool) -> _Packed:
        try:
            found = operation()
            if not isinstance(found, Operation):
                raise Unwritable(str(found or "it does not fail again on what the update has left"))
            return _small(found, shrinks)
        except Unwritable as why:
            return _Packed(why_not=str(why))

    done = in_child(lambda: work(True), lambda why: _Packed(why_not=why))
    return work(False) if done is None else done  # one that gets half of its operands may read beyond them: not in the run's process


class _Here(BaseException):
    """The operation is about to run. Not an Exception, so that no model's ``except`` catches it."""


def _reached(evidence: Evidence, call: Call, culprit: Culprit) -> Operation:
    """The operation at fault within a call. Raises: Unwritable."""
    backward = culprit.phase is Phase.BACKWARD or call.had_backward
    first = Stages(call, evidence.names, has_group(), None)
    found = do_again(first, evidence.buffers, backward).culprit
    same = (culprit.op, culprit.phase, culprit.module)
    records = (r for r in first.tape.records if (r.op, r.phase, r.module) == same)
    at = next((record.index for record in records if has_failed(record, first.rows)), None)
    if found is None or at is None:
        on_device = "" if evidence.outside.ledger.on_host else ", as far as is kept of what runs on a device outside of the model's calls"
        raise Unwritable(f"{culprit.op} does not make it from finite operands{on_device}")
    kept: list[Operation] = []

    def stop(frame: object, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        kept.append(Operation.of(func, args, kwargs, state_for(func)))
        raise _Here

    try:
        do_again(Stages(call, evidence.names, has_group(), None, stop=(at, stop)), evidence.buffers, backward)
    except _Here:
        return kept[0]
    raise Unwritable(f"{culprit.op} did not run again")


# ---- made small


def _small(operation: Operation, shrinks: bool) -> _Packed:
    """Halve sizes as long as the operation still makes something bad from finite operands; write it down. Raises: Unwritable."""
    op = op_of(operation.func)
    leaves, spec = torch.utils._pytree.tree_flatten((operation.args, operation.kwargs))

    def given(tensors: Sequence[Any]) -> tuple[Any, Any]:
        return torch.utils._pytree.tree_unflatten(tensors, spec)  # type: ignore[no-any-return]

    def failure(tensors: Sequence[Any]) -> tuple[int, Tensor] | None:
        """The first result that is bad, and which one; None: it can't be done so, or none is."""
        runs: list[tuple[int, Tensor] | None] = []
        for fills in (False, True):  # what nobody has written holds other numbers each time
            try:
                args, kwargs = given([t.clone() if isinstance(t, Tensor) else t for t in tensors])
                with _unwritten_is_nan() if fills else contextlib.nullcontext(), torch.random.fork_rng(devices=()):
                    if operation.random is not None:
                        torch.set_rng_state(operation.random)
                    result = operation.func(*args, **kwargs)
            except ours():
                return None
            if result is None:  # it writes into its operands
                given_now = named_arguments(op, args, kwargs)
                result = tensors_in([value for name, value in given_now if name in op.written])
            found = [r for r in (result if isinstance(result, tuple | list) else [result]) if isinstance(r, Tensor)]
            runs.append(next(((at, r) for at, r in enumerate(found) if fails(_numbers(tensors), _numbers([r]))), None))
        one, other = runs
        return one if one is not None and other is not None and torch.equal(one[1].nan_to_num(), other[1].nan_to_num()) else None

    first = failure(leaves)
    if first is None:
        raise Unwritable(f"{operation.func} alone gives finite results")
    if op.elementwise_lists and (num := max((len(value) for value in operation.args if isinstance(value, list)), default=1)) > 1:
        return _small(operation.of_one(first[0] % num), shrinks)
    # Indices and lengths point into other operands, and not every operation looks whether beyond their end.
    shrinks = shrinks and all(t.is_floating_point() or t.is_complex() or t.dtype is torch.bool for t in leaves if isinstance(t, Tensor))
    whole = leaves
    end, goes_on = time.monotonic() + MOST_SECONDS, shrinks
    while goes_on and time.monotonic() < end:
        goes_on = False
        for smaller in _halves(leaves):
            if (found := failure(smaller)) is not None and found[0] == first[0] and _has_nan(found) == _has_nan(first):
                leaves, goes_on = smaller, True
                break
    tensors = [t.clone() if isinstance(t, Tensor) else t for t in leaves]
    made = failure(tensors)
    if made is None:  # it had read beyond them
        tensors = [t.clone() if isinstance(t, Tensor) else t for t in whole]
        made = failure(tensors)
    if made is None:
        raise Unwritable(f"{operation.func} alone gives other results each time")
    size = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, Tensor))
    if size > MOST_BYTES:
        raise Unwritable(f"its operands are {size >> 20} MiB, more than {MOST_BYTES >> 20}")
    names = [arg.name for arg in operation.func._schema.arguments]
    operands: dict[str, Tensor] = {}
    args, kwargs = given(tensors)
    written = {name: _written(value, name, operands) for name, value in (*zip(names, args, strict=False), *kwargs.items())}
    call = ", ".join([*itertools.islice(written.values(), len(args)), *(f"{name}={written[name]}" for name in kwargs)])
    call = f"result = torch.ops.{operation.func}({call})"
    if not operation.func._schema.returns:
        call += f"\nresult = [{', '.join(f'*{text}' for name, text in written.items() if name in op.written)}]"
    return _Packed(str(operation.func), call, operands, operation.random, (made[0], made[1].detach().clone()))


def _has_nan(failure: tuple[int, Tensor]) -> bool:
    return bool(failure[1].isnan().any())


@contextlib.contextmanager
def _unwritten_is_nan() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.use_deterministic_algorithms(True, warn_only=True)
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _numbers(values: Sequence[Any]) -> list[Numbers]:
    ledger = Ledger()
    rows = [row for value in values if isinstance(value, Tensor) and (row := ledger.observe(value)) != UNOBSERVED]
    ledger.read()
    return [ledger.numbers(row) for row in rows]


def _halves(leaves: Sequence[Any]) -> Iterator[list[Any]]:
    """The same operands, of which all dimensions of one size, or those at one place, have half of it, the first or the second."""
    shapes = [t.shape for t in leaves if isinstance(t, Tensor)]
    sizes = sorted({n for shape in shapes for n in shape if n > 1}, reverse=True)
    places = [(n, where) for where in range(-max(map(len, shapes), default=0), 0) for n in sizes]
    for (size, where), late in itertools.product([*((n, 0) for n in sizes), *places], (False, True)):
        if any(_dims(shape, size, where) for shape in shapes):
            yield [_half(t, size, where, late) if isinstance(t, Tensor) else t for t in leaves]


def _dims(shape: Sequence[int], size: int, where: int) -> list[int]:
    """Of one size; ``where``: at this one alone, counted from the end, as operands are broadcast; 0: at any."""
    return [dim for dim, n in enumerate(shape) if n == size and where in (0, dim - len(shape))]


def _half(tensor: Tensor, size: int, where: int, late: bool) -> Tensor:
    for dim in _dims(tensor.shape, size, where):
        tensor = tensor.narrow(dim, size // 2 if late else 0, size - size // 2 if late else size // 2)
    return tensor


# ---- written


def _script(packed: _Packed, finding: Finding) -> str:
    culprit = finding.culprit
    assert culprit is not None and packed.result is not None
    where = f" at {place(culprit.file, culprit.line)}" if culprit.file else ""
    what = f"{packed.op} makes what is not finite: in {culprit.module or finding.model}{where}, step {finding.step}."
    quoted = escape(what).replace("\\", "\\\\").replace('"', "'")
    draws = "" if packed.random is None else 'torch.set_rng_state(t["random"])\n'
    return _SCRIPT.format(
        draws=draws,
        what=quoted,
        version=__version__,
        torch=torch.__version__,
        call=packed.call,
        at=packed.result[0],
    )


def _written(value: Any, name: str, operands: dict[str, Tensor]) -> str:
    """An argument as Python; its tensors go to ``operands``. Raises: Unwritable."""
    if isinstance(value, Tensor):
        key = name if name not in operands else f"{name}[{len(operands)}]"
        operands[key] = value
        return f't["operands"]["{key}"]'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_written(one, name, operands) for one in value)}]"
    if isinstance(value, float | complex):
        return f'{type(value).__name__}("{value!r}")'
    if value is None or isinstance(value, bool | int | str | torch.dtype | torch.layout | torch.memory_format):
        return repr(value)
    if isinstance(value, torch.device):
        return 'torch.device("cpu")'
    raise Unwritable(f"{name} is a {type(value).__name__}, which a script can't make")
