"""What the watches of a process have seen, what they have not seen, and why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numscope.records.finding import Finding
    from numscope.scope.scope import Scope


@dataclass
class Watched:
    """What one process has watched, as plain data.

    Args:
        models: names of their classes.
        steps: training steps, of the model that made the most.
        tensors: observations of tensors by detection.
        findings: their headlines.
        contained: how many contained notes.
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
    skipped: int = 0
    detecting: bool = True
    gaps: list[str] = field(default_factory=list)
    rank: int = 0
    world_size: int = 1


class Coverage:
    """Collects a process's scopes, and the reasons why something has no scope.

    *Cost:* nothing while the run trains; the scopes' own counters are read at its end.
    """

    def __init__(self) -> None:
        self._scopes: list[Scope] = []
        self._gaps: dict[str, None] = {}
        self._place = (0, 1)  # rank, world size

    def add(self, scope: Scope) -> None:
        """Count a watch, also one that the script itself opened."""
        import torch.distributed as dist  # not with the file: a run without models need not have torch

        from numscope.distributed import agree

        if not any(scope is known for known in self._scopes):
            self._scopes.append(scope)
            self._place = agree.rank(), dist.get_world_size() if agree.spread() else 1

    def not_watched(self, what: str, why: str) -> None:
        """Say that something is not watched. The same words count once."""
        self._gaps.setdefault(f"{what}: {why}")

    @property
    def findings(self) -> list[Finding]:
        """Of all models, a model at a time."""
        return [finding for scope in self._scopes for finding in scope.findings]

    def watched(self) -> Watched:
        """The counts so far."""
        from numscope.probe.naming import class_name

        findings = [finding.headline() for finding in self.findings]
        found = Watched(findings=findings, gaps=list(self._gaps), rank=self._place[0], world_size=self._place[1])
        skipped: set[int] = set()
        for scope in self._scopes:
            name, steps, inspector = class_name(scope.model), scope.num_steps, scope.inspector
            detecting = scope.options.on_nonfinite is not None and not scope.options.trace
            found.models += [name] if name not in found.models else []
            found.steps = max(found.steps, steps)
            found.tensors += scope.num_tensors
            found.contained += len(scope.contained)
            found.detecting = found.detecting and detecting
            skipped.update(step for step, _ in scope.events)
            faults = [fault for fault in (scope.fault, "" if inspector is None else inspector.fault) if fault]
            found.gaps += [f"{name}: numscope failed and left it alone: {fault}" for fault in faults]
            if detecting and not (scope.has_trained or faults):
                found.gaps.append(f"backward of {name}: none was called on its outputs")
        found.skipped = len(skipped)
        return found
