"""Copies of a model: averages and target networks have memory of their own, and follow the model."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from numscope.alerts.checks.check import EVERY, FIRST, Check, Subject
from numscope.alerts.checks.lost_updates import LOW
from numscope.probe.naming import peel
from numscope.probe.optimizers import ids_of, living_optimizers
from numscope.records.heap import instances_of
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen

SAME = "copy is the model"
UNMOVED = 10 * EVERY  # steps in which a copy that by its name follows the model has not moved: targets are renewed rarely
FEW = 64  # elements of each tensor that are looked at; fewer far from the model's say nothing
FAR = 0.5  # of an element's magnitude: any average in use moves by a part of that
LOST = 0.5  # of the elements so far away
MOST_COPIES = 8
_FOLLOWS = re.compile(r"(^|_)(ema|avg|averaged?|polyak|target|tgt)(_|$)", re.IGNORECASE)


class _CopyLook(NamedTuple):
    num: int  # of the step
    num_averaged: int
    model: Tensor  # a sample of its parameters' elements
    copy: Tensor
    buffers: dict[str, tuple[Tensor, Tensor]]  # by name, samples of the model's and the copy's

    def left(self, now: _CopyLook) -> str | None:
        """A buffer of the copy's that has not moved until ``now``, while the model's has."""
        pairs = [(name, pair, now.buffers[name]) for name, pair in self.buffers.items() if name in now.buffers]
        return next((name for name, a, b in pairs if torch.equal(a[1], b[1]) and not torch.equal(a[0], b[0])), None)


class _Copy:
    """A copy, the part of the model that it is of, and looks at both: the first one and the last two."""

    def __init__(self, module: nn.Module, part: nn.Module, average: AveragedModel | None) -> None:
        self.refs = weakref.ref(module), weakref.ref(part)
        self.average = None if average is None else weakref.ref(average)
        self.seen: list[tuple[int, list[str], list[int], HostCopy]] = []  # with the names of buffers, and samples' sizes

    @property
    def modules(self) -> tuple[nn.Module, nn.Module] | None:
        """The copy and the model's part."""
        module, part = (ref() for ref in self.refs)
        return None if module is None or part is None else (module, part)

    @cached_property
    def called(self) -> str:
        """The name by which an object or a module of the script's knows it, if that says that it follows a model. *Cost:* a walk over all
        objects."""
        module = self.refs[0]()
        for holder in gc.get_referrers(module):
            has_names = type(holder).__dictoffset__ and not isinstance(holder, type)  # asks no __getattr__
            held = holder if type(holder) is dict else vars(holder) if has_names else {}
            for name, value in list(held.items()):
                if value is module and isinstance(name, str) and _FOLLOWS.search(name):
                    return name
        return ""

    def see(self, num: int, module: nn.Module, part: nn.Module) -> None:
        average = None if self.average is None else self.average()
        with unseen():  # cat takes the widest dtype
            pairs: list[tuple[Tensor, Tensor]] = [*zip(part.parameters(), module.parameters(), strict=False)]
            mine = dict(_buffers(module))
            buffers = {name: (buffer, mine[name]) for name, buffer in _buffers(part) if name in mine}
            values = [torch.zeros(1) if average is None else average.n_averaged.reshape(1).float()]
            values += map(_sample, chain(*pairs, *buffers.values()))
            copy = HostCopy(torch.cat([value.to(values[1].device) for value in values]))
        self.seen = [*self.seen[:1], *self.seen[1:][-1:], (num, [*buffers], [*map(len, values)], copy)]

    def looks(self) -> list[_CopyLook]:
        found = []
        for num, names, sizes, copy in self.seen:
            averaged, *samples = copy.take().split_with_sizes(sizes)
            pairs = [*zip(samples[::2], samples[1::2], strict=True)]
            at = len(pairs) - len(names)
            model, mine = (torch.cat(each) for each in zip(*pairs[:at], strict=True))
            found.append(_CopyLook(num, int(averaged), model, mine, dict(zip(names, pairs[at:], strict=True))))
        return found


class Followers(Check):
    """Follows averaged models and copies of the model by samples of their elements: one that is to follow the model and has not moved, in
    all or in part; and one that shares the model's memory.

    *Cost:* at the first step and the hundredth a walk over all objects, 100 ms for a million; at thorough steps 64 elements of each tensor
    of the model and of at most 8 copies.
    """

    name = "copy does not follow"
    also = (SAME,)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._copies: list[_Copy] = []
        self._num = -1  # of the step that was looked at

    def before_step(self, optimizer: Optimizer) -> None:
        num = self.subject.num
        if num == self._num:
            return
        if num in (0, EVERY):
            self._find()
        self._num = num
        self._look()

    def last(self) -> None:
        self._look(is_last=True)

    def close(self) -> None:
        self._copies.clear()

    def _find(self) -> None:
        own = [*self.subject.model.modules()]
        if type(self.subject.model).forward is nn.Module.forward:  # an optimizer's tensors, which are nobody's copy
            return
        found: list[nn.Module] = instances_of(AveragedModel, type(self.subject.model))
        known = {id(module) for module in own} | {id(copy.refs[0]()) for copy in self._copies}
        for one in sorted(found, key=lambda one: not isinstance(one, AveragedModel)):  # its own module is found too
            average = one if isinstance(one, AveragedModel) and "module" in vars(one).get("_modules", ()) else None
            module = one if average is None else peel(average.module)
            part = next((each for each in own if type(each) is type(module) and _shapes(each) == _shapes(module) != []), None)
            if part is not None and id(module) not in known and len(self._copies) < MOST_COPIES:
                known.add(id(module))
                copy = _Copy(module, part, average)
                if not self._shares(copy, module, part) and (average is not None or copy.called):  # others are models of their own
                    self._copies.append(copy)

    def _look(self, is_last: bool = False) -> None:
        """Judge by earlier looks, which have come to the host by now, and look again."""
        for copy in [copy for copy in self._copies if copy.modules is not None]:
            module, part = copy.modules or (self.subject.model, self.subject.model)
            if self._shares(copy, module, part):
                continue
            if copy.seen:
                self._judge(copy, module, part)
            copy.see(self.subject.num, module, part)
            if is_last:
                self._judge(copy, module, part)

    def _shares(self, copy: _Copy, module: nn.Module, part: nn.Module) -> bool:
        names = [name for name, p in part.named_parameters() if p.numel() and p.data_ptr()]
        pairs = [(part.get_parameter(name), module.get_parameter(name)) for name in names]
        shared = [name for name, (p, q) in zip(names, pairs, strict=True) if _memory_of(p) == _memory_of(q)]
        if not shared:
            return False
        if all(p is not q for p, q in pairs) or copy.called:
            what = copy.called or f"another {type(module).__name__}"
            text = f"{len(shared)} of {len(pairs)} weights of {what} lie in the model's memory, {shared[0]} for one: each step moves both."
            advice = "Copy them: copy.deepcopy(model), or load_state_dict without assign=True."
            self.say(text, advice, rule=SAME, parameters=shared, asks=True)
        return True

    def _judge(self, copy: _Copy, module: nn.Module, part: nn.Module) -> None:
        looks = copy.looks()
        # An AveragedModel begins with what it is first given.
        first, now, kind = next((look for look in looks if look.num_averaged), looks[0]), looks[-1], type(module).__name__
        moves, stays = not torch.equal(first.model, now.model), torch.equal(first.copy, now.copy)
        began = torch.equal(first.model, first.copy)
        if any(not ids_of(o).isdisjoint(map(id, module.parameters())) for o in living_optimizers()):
            return
        what = f"{copy.called} ({kind})" if copy.called else f"an AveragedModel of {kind}"
        num, num_averaged = self.subject.num, now.num_averaged - first.num_averaged if first.num_averaged else 0
        never = self.subject.is_over and num >= EVERY and (began if copy.average is None else not now.num_averaged)
        if moves and stays and (num_averaged or never or (copy.called and num >= UNMOVED)):
            averaged = f", averaged {num_averaged} times," if num_averaged else ""
            text = f"The weights of {what}{averaged} have not moved in {num} steps, and the model's have."
            advice = "Look for a decay of 1, or updates that 16 bits round away, that are never made, or that write other tensors: "
            advice += "p.lerp_(q, 1 - decay) within no_grad() writes in place."
            self.say(text, advice, asks=not num_averaged)
        elif moves and (share := _lost(looks, module)) > LOST:
            text = (
                f"{share:.0%} of the elements of {what} that are far from the model's have kept their bits for {now.num - looks[-2].num} "
            )
            self.say(
                f"{text}steps, in which others moved: updates are rounded away.", "Keep the average in float32.", value=share, asks=True
            )
        elif moves and not stays and copy.called and now.num - first.num >= EVERY - FIRST and (buffer := first.left(now)) is not None:
            text = f"{what} follows the model's weights, and its {buffer} is what it was {now.num - first.num} steps ago."
            advice = "Copy the model's buffers to it too: a batch norm's statistics are no parameters."
            self.say(text, advice, evidence={"buffer": buffer}, asks=True)


def _sample(tensor: Tensor) -> Tensor:
    """Some ``FEW`` of its elements."""
    return tensor.detach().reshape(-1)[:: tensor.numel() // FEW | 1]


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())


def _lost(looks: Sequence[_CopyLook], module: nn.Module) -> float:
    """Of a 16-bit copy's elements far from the model's the share that has kept its bits between the last two looks, while others moved."""
    then, now = looks[-2:] if len(looks) > 1 else (looks[0], looks[0])
    if now.num - then.num < EVERY - FIRST or then.copy.shape != now.copy.shape or any(p.dtype not in LOW for p in module.parameters()):
        return 0.0
    before, far = ((look.model - look.copy) / look.copy.abs() for look in (then, now))
    is_far = (before.abs().minimum(far.abs()) > FAR) & (before * far > 0)
    stays, num = then.copy == now.copy, int(is_far.sum())
    return 0.0 if num < FEW or stays.all() else int((stays & is_far).sum()) / num


def _memory_of(parameter: nn.Parameter) -> tuple[int, int]:
    """Its storage, and where it begins in it: an address alone may be one of memory that is no longer its own."""
    return parameter.untyped_storage()._cdata, parameter.data_ptr()


def _shapes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    """None for a module that is being made, or has parameters whose norm takes a collective, or none at all."""
    found = [*module.named_parameters()] if "_parameters" in vars(module) else []
    is_plain = all(type(p) is nn.Parameter and p.is_floating_point() and not p.is_meta for _, p in found)
    return [(name, p.shape) for name, p in found] if is_plain else []
