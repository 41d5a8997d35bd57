"""Coverage: what the watches of a process have seen, what they have not seen, and why not."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numscope.probe.living import Living
from numscope.records.places import place
from numscope.records.words import escape

if TYPE_CHECKING:
    from numscope.records.finding import Finding
    from numscope.scope.model_watch import ModelWatch


@dataclass
class Watched:
    """One process's coverage, as plain data.

    Args:
        models: names of their classes.
        steps: training steps, of the model that made the most.
        steps_of: training steps by model; of models that had the same name one after the other, of the one that made the most.
        without_gradients: where calls without gradients gave bad results.
        tensors: observations of tensors by detection.
        findings: their headlines.
        contained: how many contained notes.
        alerts: steps, rules and layers of those that were kept here, or told here for other ranks.
        more_alerts: how many came after those.
        skipped: steps that GradScaler skipped.
        detecting: detection was on.
        gaps: what was not watched and why.
        rank, world_size: of this process when the last model was met.
    """

    models: list[str] = field(default_factory=list)
    steps: int = 0
    tensors: int = 0
    findings: list[str] = field(default_factory=list)
    contained: int = 0
    alerts: list[str] = field(default_factory=list)
    more_alerts: int = 0
    skipped: int = 0
    detecting: bool = True
    gaps: list[str] = field(default_factory=list)
    rank: int = 0
    world_size: int = 1
    steps_of: dict[str, int] = field(default_factory=dict)
    without_gradients: list[str] = field(default_factory=list)


class Coverage:
    """Counts what a process's scopes have seen, and collects the reasons why something has no scope.

    *Cost:* nothing while the run trains; a scope's own counters are read at its end.
    """

    def __init__(self) -> None:
        self._scopes: Living[ModelWatch] = Living()
        self._gone = Watched()  # of those that have gone with their models
        self._findings: list[Finding] = []  # theirs
        self._gone_steps = 0  # theirs together
        self._skipped: set[int] = set()
        self._gaps: dict[str, None] = {}
        self._place = (0, 1)  # rank, world size

    def add(self, scope: ModelWatch) -> None:
        """Count a watch, also one that the script itself opened."""
        from numscope.distributed import agree

        if not any(scope is known for known in self._scopes):
            self._scopes.add(scope)
            scope.heirs.append(self._inherit)
            self._place = agree.rank(), agree.num_ranks()

    def not_watched(self, what: str, why: str) -> None:
        """Say that something is not watched. The same words count once."""
        self._gaps.setdefault(f"{what}: {why}")

    @property
    def findings(self) -> list[Finding]:
        """Of all models, a model at a time."""
        return [*self._findings, *(finding for scope in self._scopes for finding in scope.findings)]

    @property
    def num_steps(self) -> int:
        """Training steps that have ended, of all models together."""
        return self._gone_steps + sum(scope.num_steps for scope in self._scopes)

    def watched(self) -> Watched:
        """The counts so far."""
        found, skipped = copy.deepcopy(self._gone), set(self._skipped)
        for scope in self._scopes:
            _count(scope, found, skipped)
        found.findings = [finding.headline() for finding in self.findings]
        found.gaps = [*self._gaps, *found.gaps]
        found.skipped = len(skipped)
        found.rank, found.world_size = self._place
        return found

    def _inherit(self, scope: ModelWatch) -> None:
        _count(scope, self._gone, self._skipped)
        self._findings += scope.findings
        self._gone_steps += scope.num_steps


def _count(scope: ModelWatch, into: Watched, skipped: set[int]) -> None:
    name, inspector = scope.numbering.name, scope.inspector
    detecting = scope.options.on_nonfinite is not None and not scope.options.trace
    into.models += [name] if name not in into.models else []
    into.steps_of[name] = max(into.steps_of.get(name, 0), scope.num_steps)
    into.steps = max(into.steps_of.values())
    into.without_gradients += [where for note in scope.without_gradients if (where := _where(note)) not in into.without_gradients]
    into.tensors += scope.num_tensors
    into.contained += len(scope.contained)
    into.alerts += [one for one in scope.alerting.words if one not in into.alerts]
    into.more_alerts += scope.alerting.desk.num_left_out
    into.detecting = into.detecting and detecting
    skipped.update(scope.left_out)
    faults = [fault for fault in (scope.fault, "" if inspector is None else inspector.fault) if fault]
    gaps = [f"{name}: numscope failed and left it alone: {fault}" for fault in faults]
    if detecting and scope.could_train and not (scope.has_trained or faults):
        gaps.append(f"backward of {name}: none was called on its outputs")
    gaps += scope.gaps
    into.gaps += [gap for gap in gaps if gap not in into.gaps]


def _where(note: Finding) -> str:
    culprit = note.culprit
    if culprit is None:
        return escape(f"{note.kind.value} in {note.model or note.site} without gradients")
    return escape(f"{note.kind.value} without gradients: {culprit.op} at {place(culprit.file, culprit.line)}")
