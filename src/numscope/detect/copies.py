"""Weights, and copies of them (averages, a teacher), that the script's own code between two steps has left bad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from numscope.detect.evidence import Evidence
from numscope.probe import walk
from numscope.probe.naming import class_name, has_identity, named_state, qualified_names
from numscope.probe.optimizers import gradient_of, living_optimizers
from numscope.records.faults import ours, suppress
from numscope.records.finding import Finding
from numscope.records.heap import instances_of
from numscope.records.site import Site
from numscope.replay.capture import is_foreign
from numscope.replay.culprit import find_culprit
from numscope.replay.glance import Region
from numscope.replay.op import COLLECTIVES
from numscope.replay.origin import Origins
from numscope.replay.tape import OpTape, State, StorageRecord
from numscope.summary.unseen import unseen

_MOST_WALKS = 2  # over all objects of a process, for what holds the bad tensor that a line has made
_COPIES = frozenset({"_to_copy", "clone", "copy"})
_walks: Counter[tuple[CodeType, int]] = Counter()  # by that line


class _Place(NamedTuple):
    """Where a kept tensor is: the module that has it, by name and class, and its name there."""

    module: str
    cls: str
    slot: str

    @property
    def name(self) -> str:
        return f"{self.module}.{self.slot}" if self.module else self.slot


def left_bad(evidence: Evidence, others: Iterable[Evidence]) -> Finding | None:
    """The finding of the first tensor that the recorded code has left bad in memory that is kept: a weight or buffer of any module, a
    tensor of an optimizer's state, or a copy of a watched weight.

    What other code writes (metrics, logs, the data) may be bad, and does not matter before a model gets it. Nor does what was bad before
    the model was watched: a mask may be made by log(0).

    *Cost:* a scan of the rows of the tape; where one is bad, a walk over the tape and, if a model's weight is not at fault, over all
    objects.
    """
    outside = evidence.outside
    if not outside.has_news():
        return None
    tape, rows, first = outside.tape, outside.ledger, evidence.first_record
    origins = Origins(tape, rows)
    suspects = [
        (key, storage, region, state)
        for key, storage in tape.storages.items()
        for region, (state, _, _) in storage.states.items()
        if state.writers and max(state.writers) >= first and origins.bad(state) and _is_fault(origins, state)
    ]
    if not suspects:
        return None
    models = (evidence, *others)
    held = {key: site for one in models for key, site in _places(one.names)}
    found = {key: (storage, state) for key, storage, region, state in suspects if _is_bad_still(storage, region, key in held)}
    if not found:
        return None
    parameters = (p for one in models for module in one.names for p in module._parameters.values() if p is not None)
    gradients = [_key(gradient) for p in parameters if (gradient := gradient_of(p)) is not None]
    kept = {key: site for key, site in held.items() if key in found}
    kept = kept or _copies(tape, origins, found, held, gradients)
    if not kept and _is_worth_a_walk(tape, origins, [state for _, state in found.values()]):
        kept = {key: site for key, site in _held_elsewhere() if key in found}
    if not kept:
        return None
    for key, state in _states(tape, held):
        state.name = state.name or held[key].name
    culprit = find_culprit(tape, (), rows, [found[key][1] for key in kept])
    if culprit is None:
        return None
    key, place = next(iter(kept.items()))
    site = Site(place.module, place.cls, culprit.phase, place.slot)
    return evidence.found(site, origins.numbers(found[key][1]), culprit)


def _is_fault(origins: Origins, state: State) -> bool:
    """Whether an operation on the tape made it bad, and not on purpose; what came from another rank is that rank's to tell."""
    origin = origins.of(state)
    if origin is None or origin.root is not None or origin.deliberate:
        return False
    return origins.tape[origin.index].op.partition(".")[0] not in COLLECTIVES


def _is_bad_still(storage: StorageRecord, region: Region, is_held: bool) -> bool:
    """Whether this memory is bad as it is now: other code than operations may have filled it since, as torch.load does.

    Memory that is not torch's, and that no model has, is not read: the script may have taken it away.
    """
    memory, (offset, dtype, dims) = storage.reference(), region
    if memory is None or (is_foreign(memory) and not is_held):
        return False
    last = offset + sum((length - 1) * stride for stride, length in dims)
    if (last + 1) * dtype.itemsize > memory.nbytes():  # freed meanwhile
        return False
    with unseen(), suppress(NotImplementedError, RuntimeError):  # no such test for its dtype, or on its device
        tensor = torch.empty(0, dtype=dtype, device=memory.device)
        return not tensor.set_(memory, offset, [length for _, length in dims], [stride for stride, _ in dims]).isfinite().all()
    return True


def _places(names: Mapping[nn.Module, str]) -> Iterator[tuple[int, _Place]]:
    """Where weights and buffers of modules lie: the name and the class of the module that has them."""
    classes = {name: class_name(module) for module, name in names.items()}
    for module, slot, tensor in named_state(names):
        key = _key(tensor)
        if key:
            yield key, _Place(module, classes[module], slot)


def _key(tensor: Tensor) -> int:
    """Of a tensor's memory; 0 if it has none."""
    try:
        found: int = getattr(tensor, "_local_tensor", tensor).untyped_storage()._cdata
    except ours(RuntimeError, NotImplementedError, ValueError):
        return 0
    return found


def _is_worth_a_walk(tape: OpTape, origins: Origins, states: Iterable[State]) -> bool:
    """Whether a line has made a bad tensor that was seldom looked for: a script may log the like at every step."""
    records = [tape[origin.index] for state in states if (origin := origins.of(state)) is not None]
    lines = {record.stack.frames[0] for record in records if record.stack.frames}
    new = [line for line in lines if _walks[line] < _MOST_WALKS]
    _walks.update(new)
    return bool(new)


def _states(tape: OpTape, keys: Iterable[int]) -> Iterator[tuple[int, State]]:
    for key in keys:
        if key in tape.storages:
            yield from ((key, state) for state, _, _ in tape.storages[key].states.values())


def _copies(
    tape: OpTape, origins: Origins, found: dict[int, tuple[StorageRecord, State]], held: dict[int, _Place], gradients: Iterable[int]
) -> dict[int, _Place]:
    """The bad tensors that are computed from a weight and from another tensor of its shape that is older than the tape, or just copied.

    A gradient is no such tensor, so that a ratio which is only logged is no copy.
    """
    weights = {id(s): held[key].name for key, s in _states(tape, held)}
    given = {id(s) for _, s in _states(tape, gradients)}
    copies: dict[int, _Place] = {}
    for key, (_, state) in found.items():
        seen, older, of, only_copied = set(state.writers), False, "", True
        shape = next((o.shape for i in state.writers if i in tape for o in tape[i].outputs if o.state is state), None)
        todo = list(seen)
        while todo:
            index = todo.pop()
            if index not in tape:
                continue
            record = tape[index]
            only_copied = only_copied and record.name in _COPIES
            for operand in record.inputs:
                if operand.state is None or operand.shape != shape:
                    continue
                if id(operand.state) in weights:
                    of = weights[id(operand.state)]
                elif id(operand.state) not in given and not any(index in tape for index in operand.state.writers):
                    older = True
                new = set(operand.state.writers) - seen
                seen |= new
                todo += new
        if of and (older or only_copied):
            copies[key] = _Place("", "", f"copy of {of}")
    return copies


def _held_elsewhere() -> Iterator[tuple[int, _Place]]:
    """Tensors that are kept by modules that nobody watches, and by optimizers."""
    modules = [module for module in instances_of(nn.Module) if has_identity(module)]
    parts = {child for module in modules for child in module._modules.values() if child is not None and has_identity(child)}
    for module in modules:
        if module not in parts:
            yield from _places(qualified_names(module))
    for optimizer in living_optimizers():
        for state in optimizer.state.values():
            for name, tensor in walk.tensors(state, "state"):
                if key := _key(tensor):
                    yield key, _Place("", type(optimizer).__name__, name)
