"""A training step of one model: its number, its optimizers, and where it ends.

Detection and statistics share one ``Step`` for a model: it alone listens to optimizers and to backward, and calls its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.probe import optimizer as optimizer_probe
from numscope.probe.calls import in_backward
from numscope.probe.living import Living
from numscope.probe.loop_calls import LoopCall
from numscope.probe.optimizer import guarded
from numscope.probe.optimizers import Optimizers
from numscope.records.errors import STOPS, UsageError


class StepReader(optimizer_probe.StepListener):
    """An observer of one model's steps: it hears of that model's optimizers alone, and of ``before_step`` once a closure has run.

    It handles its own errors; exceptions that it raises are meant for the training script.
    """

    def begin(self) -> None:
        """A step begins; the first one before any call."""

    def round(self) -> None:
        """The optimizers have stepped and go on, within a step that only ``Scope.step`` ends."""

    def end(self, closing: bool) -> None:
        """The step is over; ``closing``: and the watch with it, other ranks may be elsewhere."""

    def give_up(self) -> None:
        """The step no longer keeps the model alive: judge what there is."""


MOST_AT_WORK = 16  # steps that keep their models; of these it matters to models alone that a script drops before they are judged

MOST_TRAINED = 16  # models with optimizers that their watches keep until the collector finds both: more may be copies, made for some steps

MOST_IDLE = 8  # steps of other models' optimizers, after which a model that nobody calls is told of optimizers' steps alone

_steps: Living[Step] = Living()  # that are read
_trained: Living[Step] = Living()  # that keep their models
_at_work: dict[Step, None] = {}  # kept alive, though the script may have dropped the model; the earliest first


class Step(optimizer_probe.StepListener):
    """The steps of one model, one after the other.

    A step ends when each optimizer of the model has stepped; when one has and the next forward or backward begins; where no torch optimizer
    updates the model, when a forward begins after a backward; and with ``step``, which alone ends steps from its first call on.

    Args:
        model: the watched model.
        first: number of the first step.
        failed: is called with an internal error of the tool; it must not raise.
        optimizer: one that is already known.
        explicit: ``step`` alone ends steps from the start.

    Attributes:
        number: of the step at work.
        num_steps: how many have ended.
        had_backward: a backward of this model has run in this step; ``ever_had_backward``: in one that is over.
        thread: number of the one that called the model or updated it last.
        kept: the model, while the watch keeps it, in a cycle that the collector can free: the end of a training may come after a script
            has dropped it. A copy that no optimizer trains goes with its last use.
    """

    def __init__(
        self,
        model: nn.Module,
        first: int,
        failed: Callable[[Exception], None],
        *,
        optimizer: Optimizer | None = None,
        explicit: bool = False,
    ) -> None:
        self.failed = failed
        self.number = first
        self.num_steps = 0
        self.explicit = explicit
        self.optimizers = Optimizers(model, optimizer)
        self.kept: nn.Module | None = None
        self.had_backward = False
        self.ever_had_backward = False
        self._heard_forward = False
        self.thread: int | None = None
        self._readers: list[StepReader] = []
        self._stepped: list[Optimizer] = []  # in this step, or this round of it
        # by id of the optimizers that are at their step, or have raised in it: what their closure does
        self._stepping: dict[int, str] = {}
        self._ended_by_optimizer = False  # the last step, and nothing has begun since
        self._idle = 0  # steps of other models' optimizers since this one was heard of

    def add(self, reader: StepReader) -> None:
        """Call a reader from now on, before readers that were added earlier."""
        if not self._readers:
            optimizer_probe.listen(self)
            _steps.add(self)
        self._readers.insert(0, reader)

    def remove(self, reader: StepReader) -> None:
        """Stop calling a reader. Safe to call twice."""
        if reader in self._readers:
            self._readers.remove(reader)
            if not self._readers:
                optimizer_probe.unlisten(self)
                _steps.discard(self)
                _at_work.pop(self, None)

    @property
    def closed(self) -> bool:
        """Whether nobody reads the steps."""
        return not self._readers

    @property
    def has_stepped(self) -> bool:
        return bool(self._stepped)

    # ---- what ends a step

    def forward_begins(self) -> None:
        """The model or a part of it is called. Calls in an optimizer's closure belong to the optimizer's step and don't end one."""
        if self._is_stepping() or in_backward():
            return
        self.thread, self._idle = get_ident(), 0
        if self._stepped:
            self._over()
        elif self.had_backward and not self.explicit:
            self.optimizers.search()
            if not self.optimizers.any:
                self.end()
        self._heard_forward = True  # of the step that is at work now

    def keep(self) -> None:
        """A call has begun that may have to be replayed: keep the model alive until the call is judged."""
        _at_work[self] = None
        if len(_at_work) > MOST_AT_WORK:
            first = next(iter(_at_work))
            del _at_work[first]
            for reader in tuple(first._readers):
                reader.give_up()

    @property
    def keeps(self) -> bool:
        """Whether it keeps the model alive."""
        return self in _at_work

    @property
    def awaits_optimizer(self) -> bool:
        """Whether gradients are there, and an optimizer that may use them."""
        return self.had_backward and bool(self.optimizers.living)

    def _keep_trained(self) -> None:
        if self.kept is None and self.optimizers.any:
            self.kept = self.optimizers.model
            _trained.add(self)
            if len(_trained) > MOST_TRAINED:
                least = min(_trained, key=lambda step: step.num_steps)
                least.kept = None
                _trained.discard(least)

    def rest(self) -> None:
        """No call so far has to be replayed: the model may be dropped."""
        if not self.awaits_optimizer:
            _at_work.pop(self, None)

    @property
    def sleeps(self) -> bool:
        """Whether the model is idle: a script may have dropped it, which the collector has not found yet."""
        is_at_work = self.keeps or self.has_stepped or self.had_backward or self._heard_forward or self.explicit or self._stepping
        return self._idle > MOST_IDLE and not is_at_work

    def step(self) -> None:
        """The user says that the step is over."""
        was_explicit, self.explicit = self.explicit, True
        if was_explicit or not self._ended_by_optimizer:  # else the optimizer has just ended this very step
            self.end()
        self._ended_by_optimizer = False

    def end(self, closing: bool = False) -> None:
        try:
            for reader in tuple(self._readers):
                reader.end(closing)
        finally:
            self.number += 1
            self.num_steps += not closing or self.has_stepped or (self.had_backward and not self.optimizers.any)
            self.ever_had_backward = self.ever_had_backward or self.had_backward
            self.had_backward = self._heard_forward = False
            self._stepped.clear()
            _at_work.pop(self, None)
        if not closing:
            self._begin()

    def begin_at(self, number: int) -> None:
        """Set the current step's number, for a run that resumes from a checkpoint."""
        self.number = number
        self._begin()

    def _begin(self) -> None:
        for reader in tuple(self._readers):
            reader.begin()

    def _is_stepping(self) -> bool:
        """Whether an optimizer is at its step: with a closure, or with a backward of its own, as methods of second order have."""
        return any(self._stepping.values()) or (bool(self._stepping) and optimizer_probe.in_step())

    def _over(self) -> None:
        if not self.explicit:
            self.end()
            return
        for reader in tuple(self._readers):
            reader.round()
        self._stepped.clear()
        self.had_backward = False

    # ---- called by the optimizer probe

    @guarded(*STOPS, UsageError)
    def before_backward(self, roots: Sequence[Tensor]) -> None:
        thread = get_ident()
        if thread != self.thread and any(step.thread == thread for step in _steps):
            return  # another thread trains another model
        self.optimizers.search()
        self._keep_trained()
        if self._stepped and not self._is_stepping() and not in_backward():
            self._over()
        elif self.had_backward and not (self._heard_forward or self.explicit or self.optimizers.any or in_backward()):
            self.end()  # the model runs bare: nobody hears its forwards
        for reader in tuple(self._readers):
            reader.before_backward(roots)

    @guarded(*STOPS, UsageError)
    def after_backward(self) -> None:
        if self.thread in (None, get_ident()):
            for reader in tuple(self._readers):
                reader.after_backward()

    @guarded(*STOPS, UsageError)
    def before_step(self, optimizer: Optimizer) -> None:
        if not self.optimizers.owns(optimizer):
            if self.thread in (None, get_ident()):  # else another thread's model, and this one's may be at its next call
                self._idle += 1
            return
        self.thread = get_ident()
        if any(o is optimizer for o in self._stepped) and not in_backward():
            self._over()
        self._take_in(optimizer)
        self._stepping[id(optimizer)] = "is to run" if optimizer_probe.has_closure() else ""
        if not self._stepping[id(optimizer)]:
            self._tell(optimizer)

    def _take_in(self, optimizer: Optimizer) -> None:
        self._idle = 0
        self._stepped.append(optimizer)  # before anything can fail: a step that failed still counts
        self._ended_by_optimizer = False
        self.optimizers.search()
        self.optimizers.meet(optimizer)
        self._keep_trained()

    @guarded(*STOPS, UsageError)
    def after_closure(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self._stepping and self.optimizers.owns(optimizer):  # the watch began within the closure
            self._take_in(optimizer)
            self._stepping[id(optimizer)] = "is to run"
        if self._stepping.get(id(optimizer)) == "is to run":
            self._stepping[id(optimizer)] = "has run"
            self._tell(optimizer)
        elif self._stepping.get(id(optimizer)) == "has run":
            for reader in tuple(self._readers):
                reader.after_closure(optimizer)

    def _tell(self, optimizer: Optimizer) -> None:
        try:
            for reader in tuple(self._readers):
                reader.before_step(optimizer)
        except BaseException:
            self._stepping.pop(id(optimizer), None)  # the step never happened
            self._stepped = [o for o in self._stepped if o is not optimizer]
            raise

    @guarded(*STOPS, UsageError)
    def after_step(self, optimizer: Optimizer) -> None:
        if any(o is optimizer for o in self._stepped):
            if self._stepping.pop(id(optimizer), "") == "is to run":  # an optimizer that did not call its closure
                self._tell(optimizer)
            for reader in tuple(self._readers):
                reader.after_step(optimizer)
            self._end_if_all_in()

    @guarded(*STOPS, UsageError)
    def skipped_step(self, optimizer: Optimizer) -> None:
        if not self.optimizers.owns(optimizer):
            self.optimizers.search()
            if (
                self.had_backward and not self.optimizers.any and self.thread in (None, get_ident())
            ):  # of a frozen model behind the trained one
                for reader in tuple(self._readers):
                    reader.skipped_step(optimizer)
            return
        if any(o is optimizer for o in self._stepped):
            self._over()
        self._take_in(optimizer)
        for reader in tuple(self._readers):
            reader.skipped_step(optimizer)
        self._end_if_all_in()

    @guarded(*STOPS, UsageError)
    def called(self, call: LoopCall) -> None:
        for reader in tuple(self._readers):
            reader.called(call)

    @guarded(*STOPS, UsageError)
    def returned(self, call: LoopCall) -> None:
        for reader in tuple(self._readers):
            reader.returned(call)

    def _end_if_all_in(self) -> None:
        if not self.explicit and not in_backward() and self.optimizers.are_all_in(self._stepped):
            self.end()
            self._ended_by_optimizer = True
