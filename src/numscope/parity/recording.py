"""Records the first steps of a run as fingerprints: weights, the batch, each backward's own gradients, and those that optimizers get."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.distributed.agree import find_ddp, num_ranks, rank
from numscope.distributed.megatron import gradient_shards
from numscope.distributed.place import fully_sharded_groups
from numscope.parity.fingerprint import named_tensors
from numscope.parity.plain_shards import PlainShards, shares, sums
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.hook import Hook, can_be_hooked, hook_calls, hook_gradient, new_id, unhook_calls
from numscope.probe.loop_calls import LoopCall
from numscope.probe.naming import free_name
from numscope.probe.optimizer import guarded
from numscope.probe.optimizers import gradient_of, ids_known, ids_of
from numscope.probe.rehearsal import is_later_stage
from numscope.probe.zero import clipped_by, groups_of, is_spread, stretch_of
from numscope.records.faults import told
from numscope.records.files import read_json, write_atomically
from numscope.records.fingerprint import Fingerprint, TensorPrint
from numscope.summary.sketch import Piece, hashes, part_of, sketches
from numscope.summary.unseen import unseen
from numscope.summary.unwrap import Unsummarizable, plain

VERSION = 1
_MOST_ROWS = 4096  # of a batch's tensor, whose checksums are kept
_CALL = nn.Module._call_impl.__code__


@dataclass
class RecordedStep:
    """One step of one rank.

    Args:
        weights: before the step.
        gradients: as they were when clipping began, or as the optimizer got them where nothing was clipped.
        clipped: as the optimizer got them; empty where nothing was clipped.
        max_norm: of the clipping; None where the norm was not the Euclidean one.
        own: for each backward the gradients that it alone gave, before any rank reduced them.
        batch: for each call of a model and each tensor among its arguments, shape and checksums of its rows.
    """

    weights: Fingerprint = field(default_factory=Fingerprint)
    gradients: Fingerprint = field(default_factory=Fingerprint)
    clipped: Fingerprint = field(default_factory=Fingerprint)
    max_norm: float | None = None
    own: list[Fingerprint] = field(default_factory=list)
    batch: list[dict[str, tuple[list[int], list[str]]]] = field(default_factory=list)

    @property
    def num_batches(self) -> int:
        """From how many backwards a parameter got gradients, at most."""
        return max(Counter(name for one in self.own for name in one.tensors).values(), default=0)


@dataclass
class RecordedRank:
    """A rank's steps.

    Args:
        facts: sizes by which gradients may be wrong: ``world size``, ``dp`` and the other axes of meshes.
        order: parameters as backward reached them.
        dropout: layers that drop elements.
        unread: parameters whose gradient is no known part of the whole (``Partial``, Megatron's distributed optimizer); it is not compared.
        rounding: one unit in the last place of 1 in the dtype that autocast has the first call computed in; 0 without it.
        seed: of torch's generator at the first step.
        shares: of weights in one piece, the checksums of equal parts, by which other layouts' plain shards find their place.
        is_whole: whether all steps that were to be recorded are.
        error: why nothing more was recorded.
    """

    rank: int = 0
    facts: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    dropout: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    rounding: float = 0.0
    seed: int = 0
    steps: list[RecordedStep] = field(default_factory=list)
    shares: dict[str, dict[str, str]] = field(default_factory=dict)
    is_whole: bool = False
    error: str = ""

    def write(self, folder: str) -> None:
        told = {**asdict(replace(self, steps=[])), "parity": VERSION, "steps": [_step_document(step) for step in self.steps]}
        write_atomically(os.path.join(folder, f"rank{self.rank:05d}.json"), json.dumps(told))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RecordedRank:
        """Raises: OSError, ValueError, KeyError, TypeError or AttributeError where it is none."""
        fields = read_json(path)
        if fields.pop("parity") != VERSION:
            raise ValueError("another version's recording")
        return cls(**{**fields, "steps": [_step_of(step) for step in fields["steps"]]})


def _step_document(step: RecordedStep) -> dict[str, Any]:
    prints = {name: getattr(step, name).document() for name in ("weights", "gradients", "clipped")}
    return {**prints, "own": [one.document() for one in step.own], "max_norm": step.max_norm, "batch": step.batch}


def _step_of(fields: Mapping[str, Any]) -> RecordedStep:
    prints = {name: Fingerprint.of(fields[name]) for name in ("weights", "gradients", "clipped")}
    return RecordedStep(**prints, own=[Fingerprint.of(one) for one in fields["own"]], max_norm=fields["max_norm"], batch=fields["batch"])


class StepRecorder(optimizer_probe.StepListener):
    """Records a rank from ``open`` to ``close``, which writes the file.

    Args:
        folder: of the run, for a file of each rank.
        num_steps: after these, ``over`` is called.
        disturb: whether each weight is moved by one unit in its last place before the first forward: what that does to gradients is noise.
        reference: the folder of another run, by whose weights plain shards find their place.

    *Cost:* some passes over weights and gradients a step, and a sync for each parameter: meant for a few steps.
    """

    def __init__(
        self, folder: str, num_steps: int = 2, *, disturb: bool = False, reference: str = "", over: Callable[[], None] = lambda: None
    ) -> None:
        self._folder, self._num_steps, self._disturb, self._over = folder, num_steps, disturb, over
        self._found = RecordedRank()
        self._step = RecordedStep()
        self._models: list[nn.Module] = []
        self._places = PlainShards()
        self._shards: dict[int, Piece] = {}  # of gradients, by parameters' ids, under Megatron's distributed optimizer
        self._hooked: dict[int, tuple[Tensor, Callable[[], None]]] = {}
        self._undo: list[Callable[[], None]] = []
        self._stepped: set[int] = set()  # ids of parameters
        self._reference: RecordedRank | None = None
        self.closed = False
        if reference:
            first = min(entry.path for entry in os.scandir(reference) if entry.name.startswith("rank"))
            self._reference = RecordedRank.read(first)

    def open(self) -> None:
        optimizer_probe.listen(self)

    def close(self) -> None:
        """Write what was recorded, and take all hooks away."""
        optimizer_probe.unlisten(self)
        for undo in (*self._undo, *(remove for _, remove in self._hooked.values())):
            undo()
        self._undo.clear()
        self._hooked.clear()
        if not self.closed:
            self.closed = True
            self._found.is_whole = len(self._found.steps) == self._num_steps
            if self._step.gradients.tensors and len(self._found.steps) < self._num_steps:
                self._found.steps.append(self._step)
            self._found.rank = rank()
            if self._found.steps or self._found.error:  # else it is a process that starts others
                os.makedirs(self._folder, exist_ok=True)
                self._found.write(self._folder)

    def failed(self, error: Exception) -> None:
        """Note the tool's own error, and record nothing more."""
        self._found.error = told(error)
        self.close()

    @guarded()
    def add(self, model: nn.Module) -> None:
        """Record a model, from its next forward on, or from the one that is at work."""
        self._models.append(model)
        self._shards |= {id(parameter): part for parameter, part in gradient_shards(model)}
        self._found.rounding = max(self._found.rounding, _rounding_of_autocast(model))
        if self._disturb:
            with unseen():
                for _, parameter in self._parameters():
                    _disturb(part_of(parameter).tensor, self._found.rounding)
                    if (own := stretch_of(parameter)) is not None:  # the next step begins from what ZeRO has in float32
                        own.of(own.flat).tensor.copy_(own.part.tensor)
        self._found.seed = torch.initial_seed()
        self._found.facts |= _facts(model)
        drops = (name for name, one in model.named_modules() if type(one).__name__.startswith("Dropout") and one.p and one.training)
        self._found.dropout += drops
        for module in filter(can_be_hooked, model.modules()):
            key = new_id()
            hook_calls(module, key, Hook(self._before, module is model), Hook(_nothing), always=False, first=False)
            self._undo.append(partial(unhook_calls, module, key))
        if (given := call_at_work(model)) is not None:  # torch has listed its hooks
            self._called(model, given)

    # ---- told by hooks

    def _before(self, is_model: bool, module: nn.Module, *given: Any) -> None:
        if torch.is_grad_enabled() and not optimizer_probe.is_paused():
            self._called(module, given if is_model and not in_backward() else ())  # else checkpointing calls it again

    @guarded()
    def _called(self, module: nn.Module, given: tuple[Any, ...]) -> None:
        names = {id(tensor): name for name, tensor in self._parameters()}
        for parameter in module._parameters.values():  # FSDP2 has put the whole ones there
            if parameter is not None and parameter.requires_grad and id(parameter) not in self._hooked and id(parameter) in names:
                hook = Hook(self._own, names[id(parameter)])
                self._hooked[id(parameter)] = parameter, hook_gradient(parameter, hook)
        if given:
            self._found.rounding = max(self._found.rounding, _rounding_of_autocast(module))
            self._end_step()
            if new := [(name, one) for name, one in self._parameters() if name not in self._step.weights.tensors]:
                if not self._found.steps and self._reference is not None and self._reference.steps:
                    self._places.find(self._parameters(), self._reference.steps[0].weights.tensors, self._reference.shares)
                self._step.weights = self._step.weights.merge(self._prints(new))
                if not self._found.steps:
                    self._found.shares |= shares(new)
            with unseen():
                if is_later_stage() or any(tensor.grad_fn is not None for _, tensor in _leaves(given)):  # gets what another one made
                    return
                self._step.batch.append({name: rows for name, tensor in _leaves(given) if (rows := _rows(tensor)) is not None})

    @guarded()
    def before_backward(self, roots: Any) -> None:
        if optimizer_probe.accumulates():
            self._end_step()
            self._step.own.append(Fingerprint({}))

    def _own(self, name: str, gradient: Tensor | None) -> None:
        if gradient is not None and not optimizer_probe.is_paused():
            self._gave(name, gradient)

    @guarded()
    def _gave(self, name: str, gradient: Tensor) -> None:
        if not self._step.own:
            return
        if name not in self._found.order:
            self._found.order.append(name)
        found = self._prints([(name, gradient)]).tensors.get(name)
        known = dict(self._step.own[-1].tensors)
        if found is not None:
            before = known.get(name)
            known[name] = found if before is None else _added(before, found)
            self._step.own[-1] = Fingerprint(known)

    @guarded()
    def called(self, call: LoopCall) -> None:
        if call.kind == "clip" and not self._step.gradients.tensors:
            self._step.gradients = self._gradients()
            limit, kind = call.given(1, "max_norm"), call.given(2, "norm_type")
            is_euclidean = kind is None or isinstance(kind, Tensor) or float(kind) == 2.0  # the third may be the norm itself
            self._step.max_norm = float(limit) if limit is not None and is_euclidean else None

    @guarded()
    def before_step(self, optimizer: Optimizer) -> None:
        mine = ids_of(optimizer)
        names = [name for name, one in self._parameters() if not mine.isdisjoint(ids_known(one))]
        found = {name: one for name, one in self._gradients().tensors.items() if name in names}
        which = "clipped" if found.keys() & self._step.gradients.tensors.keys() else "gradients"
        setattr(self._step, which, getattr(self._step, which).merge(Fingerprint(found)))
        self._take_stretches(optimizer, mine)

    def _take_stretches(self, optimizer: Optimizer, mine: set[int]) -> None:
        """Gradients of which each rank has stretches, and that are clipped by now: those of DeepSpeed's ZeRO, which steps its groups of
        parameters one after the other, and of Megatron's distributed optimizer, which steps views of parameters or copies of them."""
        here = {name: one for name, p in self._parameters() if (one := stretch_of(p)) is not None and id(one.flat) in mine}
        addresses = {one.data_ptr() for group in optimizer.param_groups for one in group["params"]} if self._shards else set[int]()
        with unseen():
            clipped = {name: one.of(gradient) for name, one in here.items() if (gradient := one.flat.grad) is not None}
            if len(clipped) < len(here):
                raise Unsummarizable(f"a flat tensor of {len(here)} parameters, which ZeRO steps without a gradient")
            for name, parameter in self._parameters():
                part = self._shards.get(id(parameter))
                if part is not None and name not in self._places.found and part.tensor.numel():
                    if _address(parameter, part) in addresses or not mine.isdisjoint(ids_known(parameter)):
                        clipped[name] = part
            factor, limit = clipped_by() if clipped else (1.0, None)
            before = {name: replace(part, tensor=part.tensor * factor) for name, part in clipped.items()}
        self._step.gradients = self._step.gradients.merge(self._prints(before.items()))
        self._step.clipped = self._step.clipped.merge(self._prints(clipped.items() if factor > 1 else ()))
        self._step.max_norm = limit or self._step.max_norm

    def after_step(self, optimizer: Optimizer) -> None:
        own = ids_of(optimizer)
        parameters = [one for _, one in self._parameters()]
        spread = any(map(is_spread, parameters)) or bool(self._shards)
        if spread or any(not own.isdisjoint(ids_known(one)) for one in parameters):
            self._stepped |= own
        trained = [one for one in parameters if gradient_of(one) is not None]
        if not spread and all(not self._stepped.isdisjoint(ids_known(one)) for one in trained):
            self._end_step()  # that of ZeRO, which steps group by group, is over at the next forward

    # ---- what is recorded

    def _end_step(self) -> None:
        """Called at each point where an earlier step may be over."""
        if not self._stepped or self.closed:
            return
        self._found.steps.append(self._step)
        self._step, self._stepped = RecordedStep(), set()
        if len(self._found.steps) == self._num_steps:
            self.close()
            self._over()

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        seen, names = set[int](), set[str]()
        for model in self._models:
            for name, tensor in named_tensors(model, buffers=False):
                if id(tensor) not in seen and isinstance(tensor, nn.Parameter):
                    seen.add(id(tensor))
                    names.add(name := free_name(name, names))  # a rank may have several stages of a pipeline
                    yield name, tensor

    def _gradients(self) -> Fingerprint:
        parameters = list(self._parameters())
        unknown = {  # stretches of a model whose wrapper is not known, or of tensor-parallel shards
            name
            for name, one in parameters
            if (getattr(one, "main_param_sharded", False) and id(one) not in self._shards)
            or (id(one) in self._shards and name in self._places.found)
        }
        self._found.unread += [name for name in unknown if name not in self._found.unread]
        own = ((name, one) for name, one in parameters if name not in unknown and id(one) not in self._shards)
        return self._prints((name, gradient) for name, one in own if (gradient := gradient_of(one)) is not None)

    def _prints(self, named: Any) -> Fingerprint:
        parts = {}
        for name, tensor in named:
            try:
                part = tensor if isinstance(tensor, Piece) else part_of(tensor)
                parts[name] = self._places.placed(name, part), str(part.tensor.dtype).removeprefix("torch.")
            except Unsummarizable:  # summands, of which the optimizer gets the sum
                self._found.unread += [name] if name not in self._found.unread else []
        made = sketches([part for part, _ in parts.values()])
        found = zip(parts.items(), made, strict=True)
        return Fingerprint({name: TensorPrint(part.whole_shape, dtype, {part.place: one}) for (name, (part, dtype)), one in found})


def _address(parameter: nn.Parameter, part: Piece) -> int:
    """Where in memory a stretch of it begins."""
    return parameter.data_ptr() + part.stretches[0][0][1] * parameter.element_size()


def call_at_work(model: nn.Module) -> tuple[Any, ...] | None:
    """The arguments of the model's call that is at work, by position and by name; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL and frame.f_locals.get("self") is model:
            return frame.f_locals["args"], frame.f_locals["kwargs"]
        frame = frame.f_back
    return None


def _nothing(*given: Any) -> None:
    pass


def _added(a: TensorPrint, b: TensorPrint) -> TensorPrint:
    """The sum of two gradients of one parameter; norms and checksums of sums are not known."""
    parts = {
        place: replace(one, sums=tuple(x + y for x, y in zip(one.sums, b.parts[place].sums, strict=True))) for place, one in a.parts.items()
    }
    return replace(a, parts=parts)


def _rounding_of_autocast(model: nn.Module) -> float:
    device = next((p.device.type for p in model.parameters()), "cpu")
    is_low = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # a device without autocast raises
    return torch.finfo(torch.get_autocast_dtype(device)).eps if is_low else 0.0


def _disturb(weight: Tensor, rounding: float) -> None:
    """Move each element by one unit in its last place, up or down as the hash of its index says: alike in copies on other ranks.

    Args:
        rounding: one unit of a lower precision that it is cast to, a quarter of which it is moved by then; 0 without one.
    """
    up = (hashes(torch.arange(weight.numel(), device=weight.device)).view(weight.shape) & 1) == 1
    if not weight.is_floating_point() or not weight.numel():
        return
    if rounding > torch.finfo(weight.dtype).eps:
        weight.mul_(torch.where(up, 1 + rounding / 4, 1 - rounding / 4).to(weight.dtype))
    else:
        weight.copy_(torch.nextafter(weight, torch.where(up, torch.inf, -torch.inf).to(weight.dtype)))


def _facts(model: nn.Module) -> dict[str, int]:
    found = {"world size": num_ranks()}
    if num_ranks() > 1:
        ddp = find_ddp(model, model)
        groups = [ddp.process_group] if ddp is not None else fully_sharded_groups(model) or groups_of(model)
        size = 1
        for group in groups:
            size *= group.size()
        if size > 1:
            found["data-parallel size"] = size
        for mesh in (p.device_mesh for p in model.parameters() if hasattr(p, "device_mesh")):
            found |= {f"mesh axis {name}": n for name, n in zip(mesh.mesh_dim_names or range(mesh.ndim), mesh.shape, strict=True)}
    return found


def _leaves(given: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(given, Tensor):
        yield name, given
    elif isinstance(given, Mapping | list | tuple):
        for key, one in given.items() if isinstance(given, Mapping) else enumerate(given):
            yield from _leaves(one, f"{name}.{key}" if name else str(key))


def _rows(tensor: Tensor) -> tuple[list[int], list[str]] | None:
    """Shape, and a checksum for each index of the first dimension; None where there are none."""
    try:
        own = plain(tensor)
        if own.dim() and 0 < len(own) <= _MOST_ROWS and own.numel():
            return list(own.shape[1:]), sums(list(own.unbind()))
    except Unsummarizable:
        pass
    return None
