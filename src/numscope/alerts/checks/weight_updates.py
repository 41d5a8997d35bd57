"""Each trainable weight is in an optimizer, gets a gradient, and moves; a frozen one does not."""

from __future__ import annotations

import math
import weakref
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from numscope.alerts.checks.check import EVERY, FIRST, Check, Subject, names_of
from numscope.probe import optimizer as optimizer_probe
from numscope.probe.living import Beside
from numscope.probe.optimizers import gradient_of, ids_held, ids_known
from numscope.records.faults import ours
from numscope.records.site import Phase
from numscope.records.words import count
from numscope.summary.checksum import Checksums
from numscope.summary.ledger import UNOBSERVED, Ledger
from numscope.summary.unwrap import Unsummarizable, plain

WITHOUT_OPTIMIZER = "parameter without optimizer"
WITHOUT_GRADIENT = "parameter without gradient"
ZERO_RATE = "learning rate is 0"
FROZEN_MOVES = "frozen parameter moves"
FROZEN_ALL = "almost all is frozen"
FROZEN_ADAPTERS = "adapters are frozen"
EQUAL = "equal layers"
NOTHING = "nothing moves"
_ADAPTERS = ("lora_", "adapter")  # in parameters' names
NO_RATE = 1e-12  # less is as good as 0 for a weight that has not moved: a schedule that is stepped too often ends there
LEAST_STEPS = 2  # before the first verdict: one may be a warm-up's, at a rate of 0


@dataclass(slots=True, eq=False)
class _Weight:
    """Counts of looks at one parameter."""

    ref: weakref.ref[nn.Parameter]
    sum: int | None = None  # of its bits, as the window of steps began
    zeros: int = 0  # looks in all at which its gradient was exactly zero
    was_given: bool = False  # a gradient, at any look: a loop's steps may take turns, and a later window is one step
    was_nonzero: bool = False  # the same
    mark: tuple[int, int] | None = None  # of its gradient at the last look: which tensor, and how often it was written
    moved: bool = False  # while it was frozen, in an optimizer's step
    before: float = math.inf  # how far a step of SGD would have moved it as the window began
    # Since the window began:
    largest: float = 0.0  # element of its gradient at the last look; 0.0: it had none
    nonzero: int = 0  # looks at which its gradient was not zero
    steps: int = 0  # of its optimizer
    called: bool = False  # its module
    changed: bool = False  # its gradient, between two looks
    optimizer: str = ""
    rates: set[float | None] = field(default_factory=set)

    def begin(self) -> None:
        """A window begins."""
        self.before, self.largest = self.largest * self.rate, 0.0
        self.nonzero = self.steps = 0
        self.called, self.changed, self.optimizer, self.rates = False, False, "", set()

    def could_move(self, num: int) -> bool:
        """Whether a gradient had come before the last look, with which a window ends: an expert may get its first tokens there."""
        return num >= EVERY or self.nonzero > (self.largest > 0)

    @property
    def has_no_rate(self) -> bool:
        """Whether all rates of its steps were too small to move it."""
        return all(rate is not None and abs(rate) < NO_RATE for rate in self.rates)

    @property
    def rate(self) -> float:
        return max((rate for rate in self.rates if rate is not None), default=0.0)


# Of all models, at the last look: a matrix's shape, and sums before and after, by which one has moved; the step, the check, its names.
_moved: dict[tuple[Any, ...], tuple[int, weakref.ref[WeightUpdates], list[str]]] = {}


class WeightUpdates(Check):
    """Looks at all parameters at thorough steps: checksums of their bits, whether gradients are there and zero, and who updates them.

    A verdict comes after the first steps, and then with each thorough one; of each parameter a rule speaks once. What lies on a device is
    on its way to the host when a thorough step ends, and is read as the next optimizer's step begins, where detection has waited anyway.

    *Cost:* at a thorough step one pass over the weights, one over the gradients, and about 5 µs a parameter.
    """

    name = "weight does not move"
    cheap = "before_step", "end"
    also = (WITHOUT_OPTIMIZER, WITHOUT_GRADIENT, ZERO_RATE, FROZEN_MOVES, FROZEN_ALL, FROZEN_ADAPTERS, EQUAL, NOTHING)

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self._ledger: Ledger | None = None  # of this step's gradients
        self._weights: dict[str, _Weight] = {}
        self._gradients: dict[str, int] = {}  # of this step, by parameter: handles of rows
        self._frozen: list[tuple[dict[str, nn.Parameter], Sums, Sums | None]] = []  # with gradients: before and after an optimizer's step
        self._now: Sums | None = None  # of all parameters, before the first optimizer's step: so what is put back after it is seen
        self._unread: tuple[int, Sums | None] | None = None  # a thorough step's number, and the sums of its window
        self._order: list[str] = []  # modules, as they were called last
        self._told: set[tuple[str, str]] = set()
        self._moved = False  # some weight, in any window
        self._stepping = _Stepping()
        optimizer_probe.listen(self._stepping)

    def after_backward(self) -> None:
        if self.subject.thorough and not self.subject.optimizers.any:  # a loop by hand may clear gradients before the step is over
            self._follow(self.subject.parameters())
            self._see_calls()
            self._see_gradients(self.subject.parameters())

    def before_step(self, optimizer: Optimizer) -> None:
        self._read()
        if not self.subject.thorough:
            return
        parameters = self.subject.parameters()
        self._follow(parameters)
        rates = {id(p): group.get("lr") for group in optimizer.param_groups for p in group["params"]}
        self._see_calls()
        for name, parameter in parameters.items():
            weight = self._weights[name]
            known = next((number for number in ids_known(parameter) if number in rates), None)
            if known is not None:
                weight.optimizer = type(optimizer).__name__
                weight.steps += 1
                weight.rates.add(_number(rates[known]))
        self._see_gradients(parameters)
        if self._now is None and self._is_wanted:
            self._now = Sums(parameters)
        frozen = {n: p for n, p in parameters.items() if not p.requires_grad and id(p) in rates and p.grad is not None}
        if frozen:
            self._frozen.append((frozen, Sums(frozen), None))

    def after_step(self, optimizer: Optimizer) -> None:
        if self.subject.thorough and self._frozen and self._frozen[-1][2] is None:
            frozen, before, _ = self._frozen[-1]
            self._frozen[-1] = frozen, before, Sums(frozen)

    def end(self, closing: bool) -> None:
        self._read()
        subject = self.subject
        if closing or not subject.thorough:
            return
        parameters = subject.parameters()
        self._follow(parameters)
        sums = (self._now or Sums(parameters)) if self._is_wanted else None
        self._now, self._unread = None, (subject.num, sums)
        if self._ledger is not None and not self._ledger.on_host:
            self._ledger.fetch()
        else:
            self._read()

    def close(self) -> None:
        self._weights.clear()
        self._gradients.clear()
        self._frozen.clear()
        self._ledger = None
        optimizer_probe.unlisten(self._stepping)

    # ---- looks

    def _follow(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Begin with parameters that are new, or others than before."""
        for name, parameter in parameters.items():
            known = self._weights.get(name)
            if known is None or known.ref() is not parameter:
                self._weights[name] = _Weight(weakref.ref(parameter))

    def _see_calls(self) -> None:
        order = [event.entry.name for event in self.subject.journal.events if event.phase is Phase.FORWARD]
        self._order, called = list(dict.fromkeys(order)), set(order)
        for name, weight in self._weights.items():
            weight.called = weight.called or name.rpartition(".")[0] in called

    def _see_gradients(self, parameters: Mapping[str, nn.Parameter]) -> None:
        found = {n: g for n, p in parameters.items() if p.requires_grad and (g := gradient_of(p)) is not None}
        for name, gradient in found.items():
            weight, mark = self._weights[name], (id(gradient), gradient._version)
            weight.changed = weight.changed or (weight.mark is not None and weight.mark != mark)
            weight.mark = mark
        self._ledger = self._ledger or Ledger(capacity=max(len(found), 1))
        self._ledger.look_again()
        for name, handle in zip(found, self._ledger.observe_many(list(found.values())), strict=True):
            if handle != UNOBSERVED:
                self._gradients.setdefault(name, handle)

    def _read(self) -> None:
        """Judge a thorough step, now that its numbers are on the host."""
        if self._unread is None:
            return
        (num, sums), self._unread = self._unread, None
        if self._ledger is not None:
            self._ledger.read()
            for name, amax in zip(self._gradients, self._ledger.amax([*self._gradients.values()]), strict=True):
                weight = self._weights[name]
                weight.was_given = True
                weight.largest = amax
                weight.nonzero += amax > 0
                weight.zeros += amax == 0
                weight.was_nonzero = weight.was_nonzero or amax > 0
        self._ledger = None
        self._gradients.clear()
        for _, before, after in self._frozen:
            if after is not None:
                was, now = before.read(), after.read()
                for name in was:
                    self._weights[name].moved = self._weights[name].moved or was[name] != now.get(name)
        self._frozen.clear()
        if sums is None:
            return
        parameters = self.subject.parameters()
        stays = self._compare(parameters, sums)
        if num:
            self._judge(parameters, stays, num)
            for weight in self._weights.values():
                weight.begin()

    @property
    def _is_wanted(self) -> bool:
        """Whether a window of steps begins or ends with this one."""
        return self.subject.num in (0, FIRST - 1) or self.subject.num % EVERY == 0

    def _compare(self, parameters: Mapping[str, nn.Parameter], sums: Sums) -> dict[str, nn.Parameter]:
        """The parameters that have the same bits as when the window began. Names those that are equal, and moved alike."""
        stays, alike = {}, defaultdict[tuple[Any, ...], list[str]](list)
        for name, total in sums.read().items():
            if name in parameters and self._weights[name].sum == total:
                stays[name] = parameters[name]
            elif name in parameters and parameters[name].dim() > 1 and parameters[name].requires_grad:
                alike[parameters[name].shape, self._weights[name].sum, total].append(name)
            self._weights[name].sum = total
        if any(num != self.subject.num for num, _, _ in _moved.values()):
            _moved.clear()
        for key, names in alike.items():
            if key[1] is None or not any(self._weights[name].nonzero for name in names):
                continue
            num, other, theirs = _moved.setdefault(key, (self.subject.num, weakref.ref(self), names))
            beside = None if (check := other()) is self or check is None or check.subject.num - num > 1 or not check._weights else check
            if len(names) > 1 or beside is not None:  # and not a model that was trained before
                also = "" if beside is None else f" as {names_of(theirs)} of another {type(beside.subject.model).__name__}"
                text = f"{names_of(names)} have the same values{also}, bit for bit, and move alike: they compute the same thing."
                advice = "Initialize each at random, from one random state for all; deepcopy copies weights too."
                self.say(text, advice, rule=EQUAL, parameters=names, asks=beside is not None)
        return stays

    # ---- the verdict

    def _judge(self, parameters: Mapping[str, nn.Parameter], stays: Mapping[str, nn.Parameter], num: int) -> None:
        moves = any(weight.sum is not None and name not in stays for name, weight in self._weights.items())
        self._moved = self._moved or moves
        least = LEAST_STEPS if num < EVERY else 1
        arrives = {n: p for n, p in stays.items() if p.requires_grad and self._weights[n].nonzero}
        if num >= EVERY and arrives and not (self._moved or self.subject.optimizers.any) and self.subject.model.training:
            text = f"Gradients arrive at {names_of(list(arrives))}, no optimizer is known, and no weight has changed in {num} steps."
            advice = "An update by hand writes in place, as p -= lr * p.grad does: p = p - … gives the name another tensor."
            self.say(text, advice, rule=NOTHING, parameters=list(arrives), asks=True)
        new = {n: p for n, p in arrives.items() if self._weights[n].called or self._weights[n].changed}  # not one from before
        self._without_optimizer({n: p for n, p in new.items() if not self._weights[n].optimizer}, moves)
        self._stuck({n: p for n, p in arrives.items() if self._weights[n].steps >= least and self._weights[n].could_move(num)})
        waits = {
            n: p
            for n, p in parameters.items()
            if p.requires_grad and p.numel() and self._weights[n].called and self._weights[n].steps >= least
        }  # where FSDP1 keeps the original parameters, other ranks have all of some
        if any(weight.nonzero for weight in self._weights.values()):
            self._without_gradient(waits)
        self._frozen_moves()
        self._frozen_all(parameters)

    def _news(self, rule: str, names: Iterable[str]) -> list[str]:
        news = [name for name in names if (rule, name) not in self._told]
        self._told.update((rule, name) for name in news)
        return news

    def _without_optimizer(self, left: Mapping[str, nn.Parameter], moves: bool) -> None:
        if not left:
            return
        held = ids_held()
        left = {n: p for n, p in left.items() if held.isdisjoint(ids_known(p))}  # an optimizer may step only now and then
        holder = _holds_others(list(self._stepping.seen), self.subject.parameters().values(), list(left.values()))
        if not (holder is not None or moves) or not (names := self._news(WITHOUT_OPTIMIZER, left)):
            return  # where no weight moves, gradients may be wanted for themselves, or for the inputs
        if holder is None:
            text = f"Gradients arrive at {names_of(names)}, but no optimizer uses them."
            advice = "Give all of model.parameters() to the optimizer, or freeze what is not to be trained with requires_grad_(False)."
            self.say(text, advice, rule=WITHOUT_OPTIMIZER, again=True, parameters=names, asks=True)
            return
        kind = type(holder).__name__
        text = f"Gradients arrive at {names_of(names)}, but {kind} holds other tensors of the same shapes, which get none."
        when = "when the model is complete, not before it is copied, wrapped or made anew"
        advice = f"Make the optimizer {when}: {kind}(model.parameters())."
        self.say(text, advice, rule=WITHOUT_OPTIMIZER, again=True, parameters=names, evidence={"optimizer": kind})

    def _without_gradient(self, waits: Mapping[str, nn.Parameter]) -> None:
        none = [n for n in waits if not self._weights[n].was_given]
        if names := self._news(WITHOUT_GRADIENT, none):
            edge = self._edge(none)
            kind = self._weights[names[0]].optimizer
            text = f"No gradient arrives at {names_of(names)}, though its module runs in the forward and {kind} is to update it."
            text += f" Gradients stop at {edge}." if edge else ""
            advice = "Look for detach(), .data, no_grad(), .item() or NumPy on the way to the loss."
            about = {"edge": edge} if edge else {}
            self.say(text, advice, rule=WITHOUT_GRADIENT, again=True, parameters=names, evidence=about, asks=True)
        zero = [n for n in waits if self._weights[n].zeros > FIRST and not self._weights[n].was_nonzero]
        zero = [n for n in zero if not hasattr(waits[n], "device_mesh")]  # of a shard it may be zero though the whole one's is not
        matrices = {n.rpartition(".")[0] for n in zero if waits[n].dim() > 1}
        zero = [n for n in zero if n.rpartition(".")[0] in matrices]  # a bias alone: that of a critic's scores cancels out, for example
        if names := self._news(WITHOUT_GRADIENT, zero):
            text = f"The gradient of {names_of(names)} was exactly zero at each of {count(self._weights[names[0]].zeros, 'look')}."
            advice = "Look for a mask, a clamp, or an activation behind it that never lets anything through."
            self.say(text, advice, rule=WITHOUT_GRADIENT, again=True, parameters=names, asks=True)

    def _edge(self, without: Collection[str]) -> str:
        """The first module, in the forward's order, that gets gradients, if none before it does."""
        lacking = {name.rpartition(".")[0] for name in without}
        given = {name.rpartition(".")[0] for name, weight in self._weights.items() if weight.was_given}
        order = [module for module in self._order if module in lacking or module in given]
        first = next((i for i, module in enumerate(order) if module in given), 0)
        return order[first] if first and not lacking.intersection(order[first:]) else ""

    def _stuck(self, stays: Mapping[str, nn.Parameter]) -> None:
        still = [n for n in stays if self._weights[n].rates and self._weights[n].has_no_rate]
        if names := self._news(ZERO_RATE, still):
            weight = self._weights[names[0]]
            rate = f"a learning rate of {weight.rate:g}, and has done so since the last look."
            text = f"{weight.optimizer} updates {names_of(names)} with {rate}"
            advice = "Look at the scheduler and its warm-up, which may count epochs where it should count steps."
            everything = all(w.has_no_rate for w in self._weights.values())
            self.say(text, advice, rule=ZERO_RATE, again=True, parameters=names, value=weight.rate, asks=not everything)
        if names := self._news(self.name, [n for n, p in stays.items() if n not in still and self._should_move(n, p)]):
            kind = self._weights[names[0]].optimizer
            text = f"Gradients arrive at {names_of(names)}, and {kind} steps, but no bit has changed since the last look."
            advice = "Look for code that puts old weights back, or for an optimizer that updates copies."
            clamped = all(_grows(stays[name]) for name in names)  # what is clamped after each step stays at its bounds
            self.say(text, advice, again=True, parameters=names, evidence={"optimizer": kind}, asks=clamped)

    def _should_move(self, name: str, parameter: nn.Parameter) -> bool:
        """Whether an update as large as its gradient would show in its bits, now and as the window began: it may have been frozen then.

        Smaller updates are lost in rounding, which is another matter. L-BFGS stays where it has arrived.
        """
        gradient = gradient_of(parameter)
        weight = self._weights[name]
        if gradient is None or not parameter.is_floating_point() or weight.optimizer == LBFGS.__name__:
            return False
        largest, step = (float(plain(tensor).abs().max()) for tensor in (parameter, gradient))
        return min(step * weight.rate, weight.before) > torch.finfo(parameter.dtype).eps * largest

    def _frozen_moves(self) -> None:
        if names := self._news(FROZEN_MOVES, [n for n, w in self._weights.items() if w.moved]):
            text = f"The optimizer moves {names_of(names)} in spite of requires_grad=False, since a gradient from before is still there."
            advice = "Set .grad to None when you freeze a parameter, or leave it out of the optimizer."
            self.say(text, advice, rule=FROZEN_MOVES, again=True, parameters=names)

    def _frozen_all(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """No matrix is trained, though there are some: what a selection by names, such as of "bn", easily does by mistake."""
        trained = {n: p for n, p in parameters.items() if p.requires_grad and self._weights[n].nonzero}
        frozen = {n: p for n, p in parameters.items() if not p.requires_grad and p.dim() > 1}
        adapters = [n for n in frozen if any(mark in n for mark in _ADAPTERS)]
        if adapters and trained and not any(mark in n for n, p in parameters.items() if p.requires_grad for mark in _ADAPTERS):
            text = f"{names_of(adapters)} are frozen, and {names_of(list(trained))} are trained: mostly it is the other way round."
            advice = "Look at what sets requires_grad (PEFT: from_pretrained(..., is_trainable=True))."
            self.say(text, advice, rule=FROZEN_ADAPTERS, parameters=adapters, asks=True)
        if not trained or not frozen or any(p.dim() > 1 for p in trained.values()):
            return
        share = sum(p.numel() for p in trained.values()) / sum(p.numel() for p in parameters.values())
        text = f"Only norms and biases are trained, {share:.2g} of all elements: {names_of(list(frozen))} are frozen, the last layer too."
        advice = "Look at the names by which requires_grad was set to False."
        self.say(text, advice, rule=FROZEN_ALL, parameters=list(frozen), value=share, asks=True)


class Sums:
    """Checksums of the parameters that can be read and have elements here; on devices they stay there until they are read."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        parts: dict[str, Tensor] = {}
        for name, parameter in parameters.items():
            try:
                part = plain(parameter)
            except ours(Unsummarizable, RuntimeError):
                continue
            if part.numel() and part.layout is torch.strided:
                parts[name] = part
        self._names = list(parts)
        self._sums = Checksums(list(parts.values()))

    def read(self) -> dict[str, int]:
        return dict(zip(self._names, self._sums.read(), strict=True))


def _grows(parameter: nn.Parameter) -> bool:
    """Whether its gradient moves nearly all elements away from zero, or not at all."""
    gradient = gradient_of(parameter)
    return gradient is not None and float((plain(parameter).detach() * plain(gradient) <= 0).float().mean()) > 0.9


def _number(rate: object) -> float | None:
    """A learning rate; None for one that lies on a device."""
    if isinstance(rate, Tensor):
        return float(rate.detach()) if rate.is_cpu else None
    return float(rate) if isinstance(rate, int | float) else None


class _Stepping(optimizer_probe.StepListener):
    """The optimizers that step in this process, the model's or others."""

    def __init__(self) -> None:
        self.seen: Beside[Optimizer, bool] = Beside()

    def after_step(self, optimizer: Optimizer) -> None:
        self.seen[optimizer] = True


def _holds_others(optimizers: Iterable[Optimizer], known: Iterable[nn.Parameter], left: Sequence[nn.Parameter]) -> Optimizer | None:
    """An optimizer of tensors that have the shapes of some parameters, are not the model's, and get no gradients."""
    shapes = Counter(tuple(p.shape) for p in left)
    ids = {id(p) for p in known}
    for optimizer in optimizers:
        held = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in ids]
        if shapes and all(p.grad is None for p in held) and not shapes - Counter(tuple(p.shape) for p in held):
            return optimizer
    return None
