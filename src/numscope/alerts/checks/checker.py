"""Asks the checks of one model on the occasions of its steps."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.alerts.checks.batches import Batches
from numscope.alerts.checks.between_steps import BetweenSteps
from numscope.alerts.checks.branches import Branches
from numscope.alerts.checks.check import EVERY, FIRST, OCCASIONS, STRETCH, Check, Subject
from numscope.alerts.checks.clearing import Clearing, Reaching
from numscope.alerts.checks.dead_units import DeadUnits
from numscope.alerts.checks.followers import Followers
from numscope.alerts.checks.gathers import Gathers
from numscope.alerts.checks.influence import Influence
from numscope.alerts.checks.labels import Labels
from numscope.alerts.checks.loading import Loading
from numscope.alerts.checks.loss_graph import LossGraph
from numscope.alerts.checks.losses import ConstantLoss
from numscope.alerts.checks.lost_updates import UpdatesLost
from numscope.alerts.checks.rank_data import SameDataOnRanks
from numscope.alerts.checks.rank_settings import RankSettings
from numscope.alerts.checks.recomputing import Recomputation
from numscope.alerts.checks.replicas import ReplicasDiffer
from numscope.alerts.checks.resuming import Resuming
from numscope.alerts.checks.scaling import ScalerUse
from numscope.alerts.checks.schedules import Schedules
from numscope.alerts.checks.states import LostState, Owners
from numscope.alerts.checks.tied import PiledHooks, Repeated, Tied
from numscope.alerts.checks.training_modes import Autocast, BatchNorms, DropoutInEvaluation, EvalMode
from numscope.alerts.checks.unread import Unread
from numscope.alerts.checks.weight_updates import WeightUpdates
from numscope.probe.calls import in_backward, unheard
from numscope.probe.loop_calls import LoopCall
from numscope.probe.step import StepReader
from numscope.records.alert import Alert
from numscope.records.faults import had_no_room, ours

# Those that a watch makes unless they are switched off. A check that stands behind another one is asked after it.
CHECKS: tuple[type[Check], ...] = (
    WeightUpdates,
    BetweenSteps,
    Followers,
    Tied,
    Repeated,
    PiledHooks,
    EvalMode,
    DropoutInEvaluation,
    Autocast,
    BatchNorms,
    Clearing,
    Reaching,
    LossGraph,
    Branches,
    Influence,
    Gathers,
    Labels,
    Loading,
    Resuming,
    Unread,
    ScalerUse,
    Schedules,
    ConstantLoss,
    LostState,
    Owners,
    Recomputation,
    ReplicasDiffer,
    SameDataOnRanks,
    RankSettings,
    Batches,
    UpdatesLost,
    DeadUnits,
)

MOST_SKIPS = 20  # of GradScaler's first ones; those that it leaves out show nothing, and are not counted

log = logging.getLogger("numscope")


class Checker(StepReader):
    """The checks of one model. An error in a check switches that check off; it is said once, and the run goes on.

    Args:
        subject: the model and its steps.
        post: gets the alerts, as ``Desk.post``.
        checks: their classes.
        settings: by a rule's name: False switches it off, a mapping gives its check's arguments.

    *Cost:* at most steps an occasion is a look at a list that is mostly empty, 0.2 µs.
    """

    def __init__(
        self,
        subject: Subject,
        post: Callable[[Iterable[Alert]], None],
        checks: Iterable[type[Check]],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._subject = subject
        self._post = post
        given = settings or {}
        off = {rule for rule, setting in given.items() if setting is False}
        self._checks: list[Check] = []
        self._asked: dict[str, list[tuple[Check, Callable[..., None]]]] = {}  # by occasion: the check and its method
        self._is_stretch = True
        self._skips = 0  # steps in a row
        for kind in checks:
            setting = given.get(kind.name)
            if not off.issuperset((kind.name, *kind.also)):
                self._make(kind, setting if isinstance(setting, Mapping) else {}, off)
        self._lock = threading.RLock()  # threads may train one model in turns, and one's step end where another's begins
        self._sort()
        subject.steps.add(self)

    def last(self) -> None:
        """The watch is about to end, as planned."""
        self._subject.thorough = self._subject.is_over = True
        self._sort()
        with unheard():
            self._ask("last")

    def detach(self) -> None:
        """Ask nothing more. Safe to call twice."""
        self._subject.steps.remove(self)
        for check in self._checks:
            self._close(check)
        self._checks.clear()
        self._sort()

    # ---- occasions

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""
        self._ask("enter", module, args, kwargs)

    def leave(self, module: nn.Module, output: Any) -> None:
        """The outermost call has returned."""
        self._ask("leave", module, output)

    def before_backward(self, roots: Sequence[Tensor]) -> None:
        if not in_backward():
            self._ask("before_backward", roots)

    def after_backward(self) -> None:
        if not in_backward():
            self._ask("after_backward")

    def before_step(self, optimizer: Optimizer) -> None:
        self._ask("before_step", optimizer, fused=in_backward())

    def after_step(self, optimizer: Optimizer) -> None:
        self._skips = 0
        self._ask("after_step", optimizer, fused=in_backward())

    def skipped_step(self, optimizer: Optimizer) -> None:
        self._skips += 1
        self._ask("skipped_step", optimizer)

    def called(self, call: LoopCall) -> None:
        """The script called a function of the loop."""
        self._ask("called", call)

    def returned(self, call: LoopCall) -> None:
        """It has run."""
        self._ask("returned", call)

    def end(self, closing: bool) -> None:
        self._ask("end", closing)
        subject = self._subject
        subject.num += not 0 < self._skips < MOST_SKIPS
        was, subject.thorough = subject.thorough, subject.num < FIRST or subject.num % EVERY == 0
        if was != subject.thorough or self._is_stretch != (subject.num % EVERY < STRETCH):
            self._sort()

    # ----

    def _make(self, kind: type[Check], arguments: Mapping[str, Any], off: Set[str]) -> None:
        try:
            check = kind(self._subject, **arguments)
            check.spoken |= off
            self._checks.append(check)
        except ours() as error:
            _say(kind.name, error)

    def _sort(self) -> None:
        """Which checks have something to do on an occasion of this step."""
        subject = self._subject
        self._is_stretch = subject.num % EVERY < STRETCH
        asked = [c for c in self._checks if not c.is_done]
        always = [c for c in asked if subject.thorough or (c.rhythm and self._is_stretch)]
        self._asked = {
            occasion: [
                (check, getattr(check, occasion))
                for check in asked
                if (check in always or occasion in check.cheap) and getattr(type(check), occasion) is not getattr(Check, occasion)
            ]
            for occasion in OCCASIONS
        }

    def _ask(self, occasion: str, *args: Any, fused: bool = False) -> None:
        for check, ask in self._asked[occasion]:
            if fused and not check.fused:
                continue
            with self._lock:
                try:
                    ask(*args)
                except ours() as error:
                    if not had_no_room(error):
                        self._fail(check, error)
                found, check.found = check.found, []
            if found:
                if check.is_done:
                    self._close(check)
                    self._sort()
                self._post(found)  # what it raises is meant for the script

    def _fail(self, check: Check, error: Exception) -> None:
        self._checks.remove(check)
        self._sort()
        _say(check.name, error)
        self._close(check)

    def _close(self, check: Check) -> None:
        try:
            check.close()
        except ours() as error:  # the others are closed all the same
            log.debug("as the check %r went: %s: %s", check.name, type(error).__name__, error)


def _say(name: str, error: Exception) -> None:
    text = "".join(traceback.format_exception(error))
    log.error("numscope: the check %r is off after an error of its own: %s: %s\n%s", name, type(error).__name__, error, text)
