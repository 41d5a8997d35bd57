"""What a check is: it is asked on the occasions of a model's steps, and answers with alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.optim import Optimizer

from numscope.alerts.checks.inputs import Inputs
from numscope.distributed.agree import Ranks, rank
from numscope.probe.loop_calls import LoopCall
from numscope.probe.module import ModuleProbe
from numscope.probe.optimizers import Optimizers
from numscope.probe.step import Step
from numscope.records.alert import Alert

FIRST = 4  # steps of a watch that are looked at thoroughly
EVERY = 100  # afterwards one of so many is

NONE: tuple[Alert, ...] = ()


def off_by(rule: str) -> str:
    """How to switch a check off, for the advice of one that asks."""
    return f'If this is intended, switch it off: watch(alerts={{"{rule}": False}}).'


@dataclass(slots=True, eq=False)
class Subject:
    """The watched model and its step at work, as checks know them.

    Args:
        model: the watched module, without the wrapper around it.
        wrapper: what the user gave: the model, or a DDP around it.
        probe: names the model's modules.
        steps: the model's steps: their number, and its optimizers.
        ranks: the ranks that train the model together. What is asked must be asked by all, at the same occasion of the same step.
        num: of the step, counted from 0 at the watch's start, whatever number the run gives it.
        thorough: this step is one of those at which each parameter is looked at.
        inputs: the data of the model's steps, once a check tells of them.
    """

    model: nn.Module
    wrapper: nn.Module
    probe: ModuleProbe
    steps: Step
    ranks: Ranks
    num: int = 0
    thorough: bool = True
    rank: int = field(default_factory=rank)
    inputs: Inputs = field(default_factory=Inputs)

    @property
    def step(self) -> int:
        """Number of the step at work, as the run counts."""
        return self.steps.number

    @property
    def optimizers(self) -> Optimizers:
        """Those of the model."""
        return self.steps.optimizers

    def alert(
        self,
        rule: str,
        text: str,
        advice: str = "",
        *,
        layer: str = "",
        tensor: str = "",
        value: float | None = None,
        limit: float | None = None,
        evidence: Mapping[str, Any] | None = None,
        asks: bool = False,
    ) -> Alert:
        """An alert of this step and rank. One that asks gets the sentence that switches it off."""
        if asks:
            advice = f"{advice} {off_by(rule)}".lstrip()
        return Alert(self.step, rule, layer, tensor, value, limit, text, advice, evidence or {}, self.rank, asks)


class Check:
    """One thing that can go wrong in silence. It overrides the occasions that it needs; each answers with alerts, mostly none.

    It is asked at thorough steps only (the first ``FIRST``, then one of ``EVERY``), unless it is ``cheap``. It must not sync with a device
    between a step's begin and its end, write to anything of the run's, or keep tensors of a step alive beyond it. An error that it raises
    switches it off.

    Args:
        subject: the model and its step at work.

    Attributes:
        name: of its rule, as configurations know it.
        cheap: it is asked at each step; then it may take some microseconds, and walks over parameters only if ``subject.thorough``.
    """

    name: ClassVar[str]
    cheap: ClassVar[bool] = False

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def begin(self) -> Iterable[Alert]:
        """A step begins; the first one before any call, and perhaps before the model has an optimizer or lies on its device."""
        return NONE

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[Alert]:
        """An outermost call begins."""
        return NONE

    def leave(self, module: nn.Module, output: Any) -> Iterable[Alert]:
        """The outermost call has returned."""
        return NONE

    def before_backward(self, roots: Sequence[Tensor]) -> Iterable[Alert]:
        """``backward`` is about to run from these tensors. They may be another model's."""
        return NONE

    def before_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        """An optimizer of the model is about to update it; gradients are final."""
        return NONE

    def after_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        """The optimizer has updated the weights."""
        return NONE

    def skipped_step(self, optimizer: Optimizer) -> Iterable[Alert]:
        """GradScaler left the optimizer's step out."""
        return NONE

    def called(self, call: LoopCall) -> Iterable[Alert]:
        """The script called a function of the loop: it clipped gradients, stepped a scheduler, unscaled."""
        return NONE

    def end(self, closing: bool) -> Iterable[Alert]:
        """The step is over; ``closing``: and the watch with it, other ranks may be elsewhere."""
        return NONE

    def close(self) -> None:
        """The watch is over, or the check is switched off."""
