"""The object that ``numscope.watch`` returns."""

from __future__ import annotations

from typing import Any

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.markup import BAD, Markup, element
from numscope.records.words import count
from numscope.scope.model_watch import ModelWatch

MOST_SHOWN = 3  # findings and alerts in a notebook


class Scope:
    """The watch on one model, until ``close``; also a context manager. Who holds the scope keeps the model too."""

    def __init__(self, watch: ModelWatch) -> None:
        self._watch = watch
        self._model = watch.model  # kept as long as somebody holds the scope: the watch itself keeps it only while it is trained

    @property
    def findings(self) -> list[Finding]:
        """Findings: bad numbers that escaped, in order; with ``on_nonfinite="raise"`` the same are raised."""
        return self._watch.findings

    @property
    def contained(self) -> list[Finding]:
        """Non-finite values that did not spread, one note per site."""
        return self._watch.contained

    @property
    def alerts(self) -> list[Alert]:
        """Alerts of this rank, in order: what is about to go wrong, and what goes wrong in silence."""
        return self._watch.alerts

    @property
    def events(self) -> list[tuple[int, str]]:
        """(step, text) of steps left out, by GradScaler or ``on_nonfinite="skip"``, and of remedies that stay on."""
        return self._watch.events

    @property
    def batch(self) -> int:
        """Outermost calls of the model so far."""
        return self._watch.batch

    @property
    def step_number(self) -> int:
        """Number of the current step, counted from ``first_step``."""
        return self._watch.step_number

    @property
    def num_steps(self) -> int:
        """Training steps that have ended."""
        return self._watch.num_steps

    @property
    def num_tensors(self) -> int:
        """Tensors that detection has observed."""
        return self._watch.num_tensors

    @property
    def fault(self) -> str:
        """The internal error that ended the watch early, or ""."""
        return self._watch.fault

    @property
    def closed(self) -> bool:
        """Whether nothing is watched any more."""
        return self._watch.closed

    def step(self) -> None:
        """The training step is over, for the scales of converted layers too.

        From the first call on, this alone ends steps; without it optimizers do.
        """
        self._watch.step()

    def begin_at(self, step: int) -> None:
        """Number the step at work: a run goes on from a checkpoint."""
        self._watch.steps.begin_at(step)

    def set_group(self, group: Any, layer: str | None = None) -> None:
        """Merge statistics over a process group instead of the one found: of all layers, or of one by name."""
        if self._watch.inspector is not None:
            self._watch.inspector.joint.set_group(group, layer)

    def close(self, error: BaseException | None = None) -> None:
        """Judge what is left, remove every hook and patch, write the files. Safe to call twice.

        Args:
            error: with which the script is ending; without it, the exception at work, if there is one.

        Raises: NonFiniteError or AlertError for what is found only now, as ``on_nonfinite`` and ``alerts`` say.
        """
        self._watch.close(error)

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._watch.close(error)

    def _repr_html_(self) -> str:
        state = "off after a fault" if self.fault else "closed" if self.closed else "open"
        told = [count(self.num_steps, "step"), count(self.num_tensors, "tensor observation"), count(len(self.findings), "finding")]
        told += [count(len(self.contained), "contained note")] if self.contained else []
        told += [count(len(self.alerts), "alert")] if self.alerts else []
        told += [count(len(self._watch.left_out), "skipped step")] if self._watch.left_out else []
        title = element("p", element("b", f"Scope of {self._watch.numbering.name}"), f" ({state}): {', '.join(told)}")
        fault = [element("p", self.fault, style=BAD)] if self.fault else []
        shown = [Markup(finding._repr_html_()) for finding in self.findings[:MOST_SHOWN]]
        shown += [Markup(element("p", element("b", "⚑ "), alert.line())) for alert in self.alerts[:MOST_SHOWN]]
        more = len(self.findings) - min(len(self.findings), MOST_SHOWN)
        return element("div", title, *fault, *shown, *([element("p", f"and {count(more, 'finding')} more")] if more else []))
