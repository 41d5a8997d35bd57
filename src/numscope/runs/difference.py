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
    """One site of both runs at one step."""

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
    severity: float  # the largest divergence over its tolerance; above 1 the site diverges
    worst: str  # the statistic that has it
    nonfinite_in: str  # ``a`` or ``b`` where only that run has nan or inf; else ""
    factor: float | None  # what the loss's scale had multiplied B's gradient by, already taken out; None: nothing
    measures: tuple[Measure, ...]  # each statistic


@dataclass(frozen=True, slots=True)
class DivergenceOrigin:
    """How the first divergence came: severities of what its layer read, None where it was not observed."""

    # ``module``: what it read agrees, so its own computation differs; ``weight``: its weight differs already; ``input``: what it read
    # differs already, so the cause lies between ``after`` and it; ``unknown``: what it read was not observed
    verdict: Literal["module", "weight", "input", "unknown"]
    inputs: dict[str, float]  # by tensor
    after: str | None  # the last site before it, in order of execution, that agrees; None: there is none
    # layers whose weights differ at this step, the first ones: a weight is read at the step's end and used from its start
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """By how much a module adds to what had diverged before it, at the step of the first divergence, else where it adds most."""

    layer_a: str
    layer_b: str
    cls: str
    direction: Literal["forward", "backward"]  # ``forward`` (activation to output) or ``backward`` (gradient to dgrad and wgrad)
    step_a: int
    step_b: int
    bits: float  # log2 of (1 + severity of what it made) / (1 + severity of what it read): 0 for one that passes on what it gets
    read: float  # a severity
    weight: float | None  # likewise; None where it was not observed
    made: float  # likewise


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
    """What two runs' comparison found."""

    a: str  # as they were given
    b: str  # as they were given
    dtypes: tuple[str, str]  # the coarsest dtype that a quarter of each run's activations have at least
    calibration: Calibration  # where the tolerances come from
    noise: tuple[str, ...]  # the runs that calibrated, as they were given
    tolerances: dict[str, float]  # by statistic; beside noise the least that one may be
    stats: tuple[str, ...]  # statistics that were judged
    pairs: tuple[Pair, ...]  # layers under both names
    only_a: tuple[str, ...]  # sites of one run alone
    only_b: tuple[str, ...]  # sites of one run alone
    steps_only_a: tuple[int, ...]  # steps of one run alone
    steps_only_b: tuple[int, ...]  # steps of one run alone
    steps: tuple[StepCount, ...]  # each compared step
    # ``(step of A, factor)`` where the gradients of B's step carry another scale of the loss throughout
    factors: tuple[tuple[int, float], ...]
    first_unequal: SiteDifference | None  # the first site whose stored numbers are not bit for bit the same; None: all are
    nonfinite: tuple[SiteDifference, ...]  # sites of which one run alone has nan or inf, in order, the first ones
    num_nonfinite: int  # how many there are
    first: SiteDifference | None  # the first site that diverges; None: none does
    origin: DivergenceOrigin | None  # of ``first``
    modules: tuple[Drift, ...]  # by drift, the largest first

    @property
    def diverged(self) -> bool:
        """Whether any site is above its tolerance."""
        return self.first is not None

    def document(self) -> dict[str, Any]:
        """All of it as JSON-ready dicts; ``docs/diff.md`` describes the keys."""
        return {"schema_version": SCHEMA_VERSION, "diverged": self.diverged, **plain(self)}
