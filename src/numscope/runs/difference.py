"""What a comparison of two runs found, in plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numscope.records.finding import plain
from numscope.runs.align import Pair

# Grows by one when a reader of the version before would misread the document; a key that is added is no such change.
SCHEMA_VERSION = 1

Calibration = Literal["dtype", "tolerance", "noise", "earlier steps", "steps"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One statistic on both sides; ``divergence`` and ``tolerance`` as ``runs/divergence.py`` defines them, None where it has none."""

    statistic: str
    a: float | None
    b: float | None
    divergence: float | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class SiteDifference:
    """One site of both runs at one step.

    Args:
        severity: the largest divergence over its tolerance; above 1 the site diverges.
        worst: the statistic that has it.
        nonfinite_in: ``a`` or ``b`` where only that run has nan or inf; else "".
        factor: what the loss's scale had multiplied B's gradient by, already taken out; None: nothing.
        measures: each statistic.
    """

    step_a: int
    step_b: int
    layer_a: str
    layer_b: str
    cls: str
    tensor: str
    dtype_a: str
    dtype_b: str
    numel_a: int
    numel_b: int
    severity: float
    worst: str
    nonfinite_in: str
    factor: float | None
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class DivergenceOrigin:
    """How the first divergence came: severities of what its layer read, None where it was not observed.

    Args:
        verdict: ``module``: what it read agrees, so its own computation differs; ``weight``: its weight differs already; ``input``: what it
            read differs already, so the cause lies between ``after`` and it; ``unknown``: what it read was not observed.
        inputs: by tensor.
        after: the last site before it, in order of execution, that agrees; None: there is none.
        weights: layers whose weights differ at this step, the first ones: a weight is read at the step's end and used from its start.
    """

    verdict: Literal["module", "weight", "input", "unknown"]
    inputs: dict[str, float]
    after: str | None
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """By how much a module adds to what had diverged before it, at the step of the first divergence, else at the step where it adds most.

    Args:
        bits: log2 of (1 + severity of what it made) / (1 + severity of what it read): 0 for one that passes on what it gets.
        direction: ``forward`` (activation to output) or ``backward`` (gradient to dgrad and wgrad).
        read, weight, made: severities; weight None where it was not observed.
    """

    layer_a: str
    layer_b: str
    cls: str
    direction: Literal["forward", "backward"]
    step_a: int
    step_b: int
    bits: float
    read: float
    weight: float | None
    made: float


@dataclass(frozen=True, slots=True)
class StepCount:
    """How many sites of a step diverge."""

    step_a: int
    step_b: int
    num_sites: int
    num_diverging: int
    severity: float


@dataclass(frozen=True, slots=True)
class Diff:
    """What two runs' comparison found.

    Args:
        a, b: as they were given.
        dtypes: the coarsest dtype that a quarter of each run's activations have at least.
        calibration: where the tolerances come from.
        noise: the runs that calibrated, as they were given.
        tolerances: by statistic; beside noise the least that one may be.
        stats: statistics that were judged.
        pairs: layers under both names.
        only_a, only_b: sites of one run alone.
        steps_only_a, steps_only_b: steps of one run alone.
        steps: each compared step.
        factors: ``(step of A, factor)`` where the gradients of B's step carry another scale of the loss throughout.
        first_unequal: the first site whose stored numbers are not bit for bit the same; None: all are.
        nonfinite: sites of which one run alone has nan or inf, in order, the first ones.
        num_nonfinite: how many there are.
        first: the first site that diverges; None: none does.
        origin: of ``first``.
        modules: by drift, the largest first.
    """

    a: str
    b: str
    dtypes: tuple[str, str]
    calibration: Calibration
    noise: tuple[str, ...]
    tolerances: dict[str, float]
    stats: tuple[str, ...]
    pairs: tuple[Pair, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    steps_only_a: tuple[int, ...]
    steps_only_b: tuple[int, ...]
    steps: tuple[StepCount, ...]
    factors: tuple[tuple[int, float], ...]
    first_unequal: SiteDifference | None
    nonfinite: tuple[SiteDifference, ...]
    num_nonfinite: int
    first: SiteDifference | None
    origin: DivergenceOrigin | None
    modules: tuple[Drift, ...]

    @property
    def diverged(self) -> bool:
        """Whether any site is above its tolerance."""
        return self.first is not None

    def document(self) -> dict[str, Any]:
        """All of it as JSON-ready dicts; ``docs/diff.md`` describes the keys."""
        return {"schema_version": SCHEMA_VERSION, "diverged": self.diverged, **plain(self)}
