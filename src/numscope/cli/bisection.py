"""The work of ``numscope precision bisect``: the reference runs, the search, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numscope.precision.search.bisect import OutOfBudget, SmallestSet, Unit, search
from numscope.precision.search.sections import SECTION, section, sections, text_of
from numscope.precision.search.trials import AUTOCAST, STATE, Book, Script, Spec, TrialFailed, TrialOutcome, drift, noise, run_trial
from numscope.records.errors import UsageError
from numscope.records.files import write_atomically

NOISE_MARGIN = 3  # a drift of up to this many times the reference's noise is tolerated


@dataclass(frozen=True)
class BisectionTask:
    """A search to make."""

    script: Script
    recipe: str
    base: Mapping[str, Any]  # the configuration of the low-precision run, sections by name; empty without one
    features: tuple[str, ...]
    steps: int  # optimizer steps of each run
    runs: int = 40  # the most runs to make, including those of an interrupted search
    tolerance: float = 0.01  # the largest harmless drift of the loss, relative to the reference's loss
    repeats: int = 2  # how often the reference is run; the differences between its runs are noise
    seed: int | None = 0

    def about(self) -> dict[str, Any]:
        """The settings that runs must share to be comparable."""
        return {
            "command": [self.script.target, *self.script.args],
            "launch": list(self.script.launcher),
            "recipe": self.recipe,
            "config": dict(self.base),
            "steps": self.steps,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class BisectionVerdict:
    # the search's; ``reference``: even the run in high precision has a loss that is not finite; ``nothing``: no layer is in low
    # precision; ``reference budget``: the runs were used up before the search could begin
    outcome: str
    units: tuple[Unit, ...] = ()
    minimal: bool = False
    num_gemms: int = 0
    num_layers: int = 0
    num_runs: int = 0
    reference_loss: float = math.nan
    reference_noise: float = 0.0
    tolerance: float = 0.0
    drift: float = math.nan  # the low-precision run's
    drift_with_high_precision: float = math.nan  # the drift of the run with ``units`` kept high
    trials: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)

    def document(self) -> dict[str, Any]:
        told = {name: _number(value) if isinstance(value, float) else value for name, value in vars(self).items() if name != "units"}
        return {"high_precision": [{"layer": layer, "gemm": gemm or None} for layer, gemm in self.units], **told}


@dataclass
class Bisection:
    """Runs the trials that the search asks for, and prints a line for each finished run and each new stage."""

    task: BisectionTask
    book: Book
    say: Callable[[str], None]
    _now: str = ""
    _reference: tuple[float, ...] = ()
    _low: TrialOutcome = field(default_factory=lambda: TrialOutcome(()))
    _tolerance: float = 0.0
    _drifts: dict[frozenset[Unit], float] = field(default_factory=dict)
    _told: list[Mapping[str, Any]] = field(default_factory=list)
    _num_units: int = 0
    _used: set[str] = field(default_factory=set)  # trials of this search, including those taken from an earlier one

    def run(self) -> BisectionVerdict:
        """
        Raises:
            TrialFailed: the script computes no loss in the reference or in the low-precision run.
        """
        task = self.task
        self._tolerance = task.tolerance
        references: list[tuple[float, ...]] = []
        try:
            for number in range(task.repeats):
                self._stage("the run in high precision")
                outcome = self._trial(f"reference {number}", self._reference_spec)
                references.append(outcome.losses)
                told = f"loss {_last(outcome.losses):.5g} after {outcome.length(task.steps)}"
                self.say(f"high precision, run {number + 1} of {task.repeats}: {told}")
                if not all(map(math.isfinite, outcome.losses)):
                    return self._verdict("reference")
            self._reference = references[0]
            spread = noise(references)
            self._tolerance = max(task.tolerance, NOISE_MARGIN * spread)
            self._stage("the run as it is")
            self._low = self._trial(_key(()), lambda place: self._kept_spec(place, ()))
        except OutOfBudget:
            return self._verdict("reference budget", references=references)
        if not self._low.layers:
            return self._verdict("nothing", references=references)
        self._num_units = sum(map(len, self._low.layers.values()))
        suspects = sorted(self._low.suspects, key=lambda layer: -self._low.suspects[layer])
        suspects = [layer for layer in suspects if self._low.suspects[layer] > 0]
        found = search(self._low.layers, self._cures, suspects=suspects, stage=self._stage)
        return self._verdict(found.outcome, found, references)

    def _stage(self, text: str) -> None:
        if text != self._now:
            self._now = text
            self.say(f"now: {text}")

    def _verdict(self, outcome: str, found: SmallestSet | None = None, references: Sequence[Sequence[float]] = ()) -> BisectionVerdict:
        units = found.units if found is not None else ()
        everything = frozenset((layer, gemm) for layer, gemms in self._low.layers.items() for gemm in gemms)
        return BisectionVerdict(
            outcome,
            units,
            found is not None and found.minimal,
            self._num_units,
            len(self._low.layers),
            len(self._used),
            _last(self._reference) if self._reference else math.nan,
            noise(references) if references else 0.0,
            self._tolerance,
            self._drifts.get(frozenset(), math.nan),
            self._drifts.get(frozenset(units) if outcome != "incurable" else everything, math.nan),
            tuple(self._told),
        )

    def _cures(self, kept: frozenset[Unit]) -> bool:
        is_known = _key(kept) not in self._used and self.book.known(_key(kept)) is not None
        outcome = self._trial(_key(kept), lambda place: self._kept_spec(place, kept), may_fail=True)
        away = self._drifts[kept] = drift(outcome.losses, self._reference)
        good = abs(away) <= self._tolerance
        self._told.append(
            {
                "high_precision": [list(unit) for unit in sorted(kept)],
                "loss": _number(_last(outcome.losses) if outcome.losses else math.nan),
                "drift": _number(away),
                "within": good,
                "seconds": outcome.seconds,
            }
        )
        took = f"{outcome.seconds:.1f} s" if not is_known else "known from an earlier search"
        what = f"{len(kept)} of {self._num_units} high"
        within = "within" if good else "beyond"
        self.say(f"run {len(self._used)} of {self.task.runs}: {what}: loss {percent(away)}: {within} the tolerance ({took})")
        return good

    def _trial(self, key: str, spec: Callable[[Path], Spec], *, may_fail: bool = False) -> TrialOutcome:
        """The outcome of a trial, which runs unless the book has it; empty if it ``may_fail`` before its first step: when it diverges."""

        def run(place: Path) -> TrialOutcome:
            if len(self._used) >= self.task.runs:
                raise OutOfBudget
            try:
                return run_trial(self.task.script, spec(place), place)
            except TrialFailed:
                if may_fail:
                    return TrialOutcome(())
                raise

        outcome = self.book.get(key, run)
        self._used.add(key)
        if not (outcome.losses or may_fail):
            raise UsageError(
                f"{self.book.folder / STATE}: trials.{key}: got no losses, expected a run's. Remove the folder to start again."
            )
        return outcome

    def _reference_spec(self, place: Path) -> Spec:
        """A run that converts nothing and keeps what the script converts in high precision, or a run without the script's autocast."""
        task = self.task
        if task.recipe == AUTOCAST:
            return Spec(str(place), autocast=False, seed=task.seed, steps=task.steps)
        config = self._write(place, {SECTION: section(".*", {"disable_fp8_layer": {"enabled": True}})}, "the run in high precision")
        return Spec(str(place), config=config, seed=task.seed, steps=task.steps)

    def _kept_spec(self, place: Path, kept: Sequence[Unit] | frozenset[Unit]) -> Spec:
        task = self.task
        order = {layer: number for number, layer in enumerate(self._low.layers)}
        units = sorted(kept, key=lambda unit: (order[unit[0]], unit[1]))
        tree = {**task.base, **sections(units, task.base)}
        config = self._write(place, tree, f"{len(kept)} kept in high precision") if tree else None
        return Spec(str(place), task.recipe, config=config, features=task.features, seed=task.seed, steps=task.steps)

    @staticmethod
    def _write(place: Path, tree: Mapping[str, Any], head: str) -> str:
        path = place.with_suffix(".yaml")
        write_atomically(path, text_of(tree, [head]))
        return str(path)


def _key(kept: Sequence[Unit] | frozenset[Unit]) -> str:
    return "kept " + " ".join(f"{layer}:{gemm}" for layer, gemm in sorted(kept))


def _last(losses: Sequence[float]) -> float:
    """The mean over the last half, from which drifts are computed."""
    half = losses[len(losses) // 2 :]
    return math.fsum(half) / len(half) if all(map(math.isfinite, half)) else math.nan


def _number(value: float) -> float | str | None:
    return value if math.isfinite(value) else None if math.isnan(value) else str(value)


def percent(away: float) -> str:
    """A drift in words."""
    return f"{100 * away:+.3g} %" if math.isfinite(away) else "unknown" if math.isnan(away) else "not finite, or it ended early"
