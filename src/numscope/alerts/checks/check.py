"""The protocol of checks: asked on the occasions of a model's steps, they give alerts, with the script's line that is running."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar, NamedTuple, cast

from torch import nn

from numscope.alerts.board import question
from numscope.detect.journal import Journal
from numscope.distributed.agree import rank
from numscope.probe.inputs import Inputs
from numscope.probe.module import ModuleProbe
from numscope.probe.naming import named_state
from numscope.probe.optimizers import Optimizers
from numscope.probe.step import Step, StepReader
from numscope.records.alert import Alert
from numscope.records.weak import Weak
from numscope.records.words import few
from numscope.replay.stack import Stack, capture

FIRST = 4  # steps of a watch that are looked at thoroughly
EVERY = 100  # afterwards one of so many is
STRETCH = 16  # steps in a row, the first of each EVERY, in which rhythms are followed
OCCASIONS = (
    "enter",
    "leave",
    "before_backward",
    "after_backward",
    "before_step",
    "after_step",
    "skipped_step",
    "called",
    "returned",
    "end",
    "last",
)
MOST_NAMED = 64  # parameters in an alert's evidence


class ScriptLine(NamedTuple):
    """A line of the script's, or of a library other than torch."""

    file: str
    number: int
    code: str

    @property
    def short(self) -> str:
        """``train.py:12``, as texts name it; "" if it is not known."""
        return f"{os.path.basename(self.file)}:{self.number}" if self.file else ""

    @property
    def evidence(self) -> dict[str, Any]:
        """As an alert's evidence has it."""
        return {"line": f"{self.file}:{self.number}", "code": self.code} if self.file else {}

    def at(self, before: str = " at ") -> str:
        """``before`` and the line; nothing if it is not known."""
        return before + self.short if self.file else ""


UNKNOWN = ScriptLine("", 0, "")


def current_line() -> ScriptLine:
    """The script's line that is running now: the innermost one outside installed packages, else the innermost one.

    *Cost:* some microseconds; a thorough check may ask at each occasion, a cheap one only when it has found something.
    """
    return line_of(capture(sys._getframe(1)))


def line_of(stack: Stack) -> ScriptLine:
    """The script's line of a stack; ``UNKNOWN`` where it has none."""
    frame = stack.innermost()
    return UNKNOWN if frame is None else ScriptLine(frame[0], frame[1], frame[3])


def is_early(num: int) -> bool:
    """Whether ranks are compared at a step before the first of ``EVERY``: at the 8th, 16th, 32nd and 64th."""
    return FIRST < num < EVERY and num & (num - 1) == 0


def names_of(parameters: Sequence[str]) -> str:
    """``a.weight, a.bias and 3 more``."""
    return few(parameters, 3)


def peak_rate(group: dict[str, Any]) -> float:
    """The highest learning rate that a group's schedulers are known to lead to."""
    return max((float(top) for name in ("initial_lr", "max_lr") if isinstance(top := group.get(name), int | float)), default=0.0)


def _common(modules: Sequence[str]) -> str:
    """The innermost module that holds all of some modules; "": the model itself."""
    parts = [module.split(".") for module in modules]
    return ".".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*parts, strict=False)))


class Subject:
    """The watched model and its step at work, as checks know them.

    Args:
        wrapper: what the user gave: the model, or a DDP around it.
        probe: names the model's modules.
        journal: what detection has seen of the step at work. Its rows are read when an optimizer's step begins.

    Attributes:
        model: without the wrapper around it.
        num: of the step, counted from 0 at the watch's start, whatever number the run gives it.
        thorough: this step is one of those at which each parameter is looked at.
        log_dir: the run's folder, or None.
        inputs: the data of the model's steps, once a check tells of them.
        depends: what the model's results depend on, once an experiment has shown it; None before.
        said: rules that have spoken.
        is_over: the watch is about to end.
    """

    wrapper: Weak[nn.Module] = Weak()

    def __init__(self, wrapper: nn.Module, probe: ModuleProbe, steps: Step, journal: Journal, log_dir: str | None = None) -> None:
        self.wrapper, self.probe, self.steps, self.journal = wrapper, probe, steps, journal
        self.num, self.thorough, self.is_over = 0, True, False
        self.log_dir = None if log_dir is None else os.path.abspath(log_dir)
        self.rank, self.inputs = rank(), Inputs()
        self.depends: Any = None
        self.said: set[str] = set()

    @property
    def model(self) -> nn.Module:
        return self.probe.root

    @property
    def step(self) -> int:
        """Number of the step at work, as the run counts; at the end that of the last one that was made."""
        return self.steps.number - (self.is_over and self.steps.num_steps > 0 and not self.steps.has_stepped)

    def parameters(self) -> dict[str, nn.Parameter]:
        """Each parameter of the model, by its first name. *Cost:* 0.3 µs each."""
        places = named_state(self.probe.names, buffers=False)
        return {f"{module}.{slot}" if module else slot: cast(nn.Parameter, p) for module, slot, p in places}

    @property
    def optimizers(self) -> Optimizers:
        """Those of the model."""
        return self.steps.optimizers


class Check(StepReader):
    """One thing that can go wrong in silence. It overrides the occasions that it needs; on each it may ``say`` alerts.

    It is asked at thorough steps only (the first ``FIRST``, then one of ``EVERY``), unless it follows a ``rhythm`` or an occasion is one of
    its ``cheap`` ones, and no more once all its rules have spoken. It must not sync with a device between a step's begin and its end, write
    to anything of the run's, or keep tensors of a step alive beyond it. An error that it raises switches it off.

    Attributes:
        name: of its rule, as configurations know it.
        also: further rules that it speaks of; it is made unless all of them are off.
        cheap: occasions on which it is asked at each step: it may take some microseconds, and walks over parameters only if
            ``subject.thorough``.
        rhythm: it is asked at the first ``STRETCH`` of each ``EVERY`` steps, which follow each other; it may take 50 µs.
        fused: it is also asked of optimizers that step within backward, mostly a parameter at a time.
        spoken: the rules that need speak no more.
        found: alerts that were said and not yet taken.
    """

    name: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    cheap: ClassVar[tuple[str, ...]] = ()
    rhythm: ClassVar[bool] = False
    fused: ClassVar[bool] = False

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.spoken: set[str] = set()
        self.found: list[Alert] = []

    @property
    def is_done(self) -> bool:
        """Whether none of its rules has anything more to say."""
        return self.spoken.issuperset((self.name, *self.also))

    def say(
        self,
        text: str,
        advice: str,
        *,
        rule: str = "",
        again: bool = False,
        line: ScriptLine = UNKNOWN,
        parameters: Sequence[str] = (),
        layer: str = "",
        tensor: str = "",
        value: float | None = None,
        limit: float | None = None,
        evidence: Mapping[str, Any] | None = None,
        asks: bool = False,
        step: int | None = None,
    ) -> None:
        """Say an alert of this rank, once a rule. One that asks gets the sentence that switches it off.

        Args:
            rule: the check's own if not given.
            again: it may be said again, of other parameters for example.
            line: the script's, for the evidence.
            parameters: those that it is about, by name: they give layer and tensor, and stand in the evidence.
            step: the one at work if not given.
        """
        rule = rule or self.name
        if rule in self.spoken:
            return
        if not again:
            self.spoken.add(rule)
        self.subject.said.add(rule)
        evidence = {**line.evidence, **(evidence or {})}
        if parameters:
            evidence |= {"parameters": list(parameters[:MOST_NAMED]), "num_parameters": len(parameters)}
            layer = _common([name.rpartition(".")[0] for name in parameters])
            slot = parameters[0].rpartition(".")[2]
            tensor = "" if len(parameters) > 1 else slot if slot == "weight" else f"weight[{slot}]"
        advice = question(rule, advice) if asks else advice
        step = self.subject.step if step is None else step
        self.found.append(Alert(step, rule, layer, tensor, value, limit, text, advice, evidence, self.subject.rank, asks))

    # ---- occasions, besides those of StepReader

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An outermost call begins."""

    def leave(self, module: nn.Module, output: Any) -> None:
        """The outermost call has returned."""

    def last(self) -> None:
        """The script closes the watch, or has come to its end without an error."""

    def close(self) -> None:
        """The watch is over, or the check is asked no more. Safe to call twice."""
