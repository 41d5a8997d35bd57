"""Copies of a model: averages and target networks have memory of their own, and follow the model."""

from __future__ import annotations

import gc
import re
import weakref
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from numscope.alerts.checks.check import EVERY, Check, Subject
from numscope.probe.naming import peel
from numscope.probe.optimizers import ids_of, living_optimizers
from numscope.records.heap import instances_of
from numscope.summary.host_copy import HostCopy
from numscope.summary.unseen import unseen

SAME = "copy is the model"
UNMOVED = 10 * EVERY  # steps in which a copy that by its name follows the model has not moved: targets are renewed rarely
AWAY = 2.0  # times the model's largest norm: an average's is never larger
MOST_COPIES = 8
_FOLLOWS = re.compile(r"(^|_)(ema|avg|averaged?|polyak|target|tgt)(_|$)", re.IGNORECASE)


class _CopyLook(NamedTuple):
    num_averaged: int
    model: list[float]  # norms of its parameters
    copy: list[float]


class _Copy:
    """A copy, the part of the model that it is of, and looks at both: the first one and the last three."""

    def __init__(self, module: nn.Module, part: nn.Module, average: AveragedModel | None) -> None:
        self.refs = weakref.ref(module), weakref.ref(part)
        self.average = None if average is None else weakref.ref(average)
        self._seen: list[HostCopy] = []

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

    def see(self, module: nn.Module, part: nn.Module) -> None:
        average = None if self.average is None else self.average()
        with unseen():
            found = [_norm(p) for each in (part, module) for p in each.parameters()]
            values = [torch.zeros(()) if average is None else average.n_averaged, *found]
            self._seen = [
                *self._seen[:1],
                *self._seen[1:][-2:],
                HostCopy(torch.stack([value.float().to(found[0].device) for value in values])),
            ]

    @property
    def is_seen(self) -> bool:
        return bool(self._seen)

    def looks(self) -> list[_CopyLook]:
        read: list[list[float]] = [copy.take().tolist() for copy in self._seen]
        return [_CopyLook(int(one[0]), one[1 : (len(one) + 1) // 2], one[(len(one) + 1) // 2 :]) for one in read]


class Followers(Check):
    """Follows averaged models and copies of the model by their weights' norms: one that is to follow the model and has not moved, one that
    has grown as no average can, one that the model's optimizer trains; and one that shares the model's memory.

    *Cost:* at the first step and the hundredth a walk over all objects, 100 ms for a million; at thorough steps a pass over the model and
    each of at most 8 copies.
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
            if copy.is_seen:
                self._judge(copy, module, part)
            copy.see(module, part)
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
            self.say(
                text, "Copy them: copy.deepcopy(model), or load_state_dict without assign=True.", rule=SAME, parameters=shared, asks=True
            )
        return True

    def _judge(self, copy: _Copy, module: nn.Module, part: nn.Module) -> None:
        looks = copy.looks()
        # An AveragedModel begins with what it is first given.
        first, now, kind = next((look for look in looks if look.num_averaged), looks[0]), looks[-1], type(module).__name__
        moves, stays = first.model != now.model, first.copy == now.copy
        trainers = [o for o in living_optimizers() if not ids_of(o).isdisjoint(map(id, module.parameters()))]
        if trainers:
            both = any(not ids_of(o).isdisjoint(map(id, part.parameters())) for o in trainers)
            if both and first.model == first.copy and moves and not stays and copy.called:
                text = f"{type(trainers[0]).__name__} trains the model and {copy.called} ({kind}), which began as its copy."
                advice = "Give the optimizer the parameters of the model alone, and compute targets within no_grad()."
                self.say(text, advice, evidence={"name": copy.called}, asks=True)
            return
        sizes = [(sum(x * x for x in look.copy) ** 0.5, sum(x * x for x in look.model) ** 0.5) for look in looks]
        grows = len(sizes) > 3 and all(one < then for (one, _), (then, _) in pairwise(sizes))
        if grows and not stays and sizes[-1][0] > AWAY * (most := max(size for _, size in sizes)) > 0:
            text = f"The norm of a copy's weights ({kind}) has grown to {sizes[-1][0]:.3g}, and the model's was {most:.3g} at most: no "
            advice = "An average's parts sum to 1: ema = decay * ema + (1 - decay) * model."
            self.say(f"{text}average of it can have that.", advice, value=sizes[-1][0], limit=most, asks=copy.average is None)
        elif copy.average is not None and moves and stays and now.num_averaged > first.num_averaged > 0 and now.copy != now.model:
            text = f"An AveragedModel of {kind} has averaged {now.num_averaged - first.num_averaged} times, and its weights have not moved."
            advice = "Look for a decay of 1, or for updates that 16 bits round away: average in float32."
            self.say(text, advice, value=float(now.num_averaged))
        elif copy.average is not None and moves and not now.num_averaged and self.subject.is_over and self.subject.num >= EVERY:
            text = f"An AveragedModel of {kind} was never updated in {self.subject.num} steps: it has the first weights."
            self.say(text, "Call averaged.update_parameters(model) after the optimizer's step.", asks=True)
        elif moves and stays and self.subject.num >= UNMOVED and copy.called:
            text = f"The weights of {copy.called} ({kind}) have not moved in {self.subject.num} steps, and the model's have."
            advice = "Write them in place: p.lerp_(q, 1 - decay) within no_grad(); p = decay * p + … gives the name another tensor."
            self.say(text, advice, evidence={"name": copy.called}, asks=True)


def _norm(parameter: nn.Parameter) -> torch.Tensor:
    wide = torch.float64 if parameter.dtype is torch.float64 else torch.float32
    norm: torch.Tensor = torch.linalg.vector_norm(parameter, dtype=wide)
    return norm.float()


def _memory_of(parameter: nn.Parameter) -> tuple[int, int]:
    """Its storage, and where it begins in it: an address alone may be one of memory that is no longer its own."""
    return parameter.untyped_storage()._cdata, parameter.data_ptr()


def _shapes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    """None for a module that is being made, or has parameters whose norm takes a collective, or none at all."""
    found = [*module.named_parameters()] if "_parameters" in vars(module) else []
    is_plain = all(type(p) is nn.Parameter and p.is_floating_point() and not p.is_meta for _, p in found)
    return [(name, p.shape) for name, p in found] if is_plain else []
