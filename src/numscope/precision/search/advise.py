"""Decides from measured casts which format each operand could take and which GEMMs to keep high. Plain numbers, without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from numscope.records.errors import UsageError

OPERANDS = ("activation", "weight", "gradient")
ORDER = ("e4m3", "e5m2", "block", "mxfp8", "bf16", "fp16")  # from the fastest on most machines to the widest
HIGH = "high"  # no format is good enough


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest errors that a cast may have, by docs/precision-advise.md. An operand with a larger error does not take the format.

    Args:
        min_sqnr_db: minimum signal-to-noise ratio: the operand's square sum over that of the cast's errors.
        max_saturated_pct: maximum share of elements that are clipped.
        max_flushed_pct: maximum share of elements that become zero without being zero.

    Raises: UsageError: a percentage is out of range, or the ratio is not finite.
    """

    min_sqnr_db: float = 20.0
    max_saturated_pct: float = 5.0
    max_flushed_pct: float = 5.0

    def __post_init__(self) -> None:
        for name in ("max_saturated_pct", "max_flushed_pct"):
            value = getattr(self, name)
            if not 0 <= value <= 100:
                raise UsageError(f"{name}: got {value!r}, expected a percentage from 0 to 100.")
        if not math.isfinite(self.min_sqnr_db):
            raise UsageError(f"min_sqnr_db: got {self.min_sqnr_db!r}, expected a number of decibels, such as 20.")


@dataclass(frozen=True, slots=True)
class Price:
    """The errors that a cast makes in an operand; percentages are of all elements.

    ``sqnr_db`` is from the mean over all casts of the errors' square sum relative to the operand's, so that steps with small numbers
    count as much as steps with large ones. Infinity if the cast changes nothing; None if it was not measured.
    """

    sqnr_db: float | None
    saturated_pct: float
    flushed_pct: float

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> Price:
        """From the counts of ``WhatIf``."""
        numel = numbers["numel"]
        if not numel:
            return cls(None, 0.0, 0.0)
        noise, num_casts = float(numbers["noise"]), numbers["num_casts"]
        if not math.isfinite(noise):
            sqnr = -math.inf
        elif noise == 0:
            sqnr = math.inf
        else:
            sqnr = 10 * (math.log10(num_casts) - math.log10(noise))
        return cls(sqnr, 100 * numbers["num_overflow"] / numel, 100 * numbers["num_underflow"] / numel)

    def exceeds(self, limits: Limits) -> tuple[str, ...]:
        """The limits that it exceeds: ``SQNR``, ``saturated``, ``flushed``; none if it was not measured."""
        if self.sqnr_db is None:
            return ()
        over = (self.sqnr_db < limits.min_sqnr_db, self.saturated_pct > limits.max_saturated_pct, self.flushed_pct > limits.max_flushed_pct)
        return tuple(word for word, is_over in zip(("SQNR", "saturated", "flushed"), over, strict=True) if is_over)


@dataclass(frozen=True, slots=True)
class OperandAdvice:
    """One operand of one layer."""

    layer: str
    operand: str
    takes: str  # the first format in ``ORDER`` within the limits; ``HIGH`` if there is none, or if the operand holds nan or inf
    price: Price | None  # its errors in that format
    planned: tuple[str, Price] | None  # the recipe's cast, the worst if its GEMMs differ, and its errors; None without a cast
    exceeds: tuple[str, ...]  # the limits that this cast exceeds
    prices: Mapping[str, Price] = field(default_factory=dict, hash=False)  # in every format that was measured


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for a whole model."""

    operands: tuple[OperandAdvice, ...]  # up to three per layer, in the model's order
    high: tuple[tuple[str, str], ...]  # (layer, GEMM) to keep in high precision under the recipe
    num_gemms: int  # that the recipe casts, over all layers, without those of which no cast was measured
    num_steps: int  # that were measured


def advice_of(numbers: Mapping[str, Any], limits: Limits) -> Advice:
    """Decide, from what ``WhatIf`` measured, which formats operands could take, and which GEMMs to keep high: those with an operand whose
    cast exceeds a limit."""
    plan: Mapping[str, Mapping[str, str | None]] = numbers["plan"]
    operands: list[OperandAdvice] = []
    high: list[tuple[str, str]] = []
    num_gemms = 0
    for layer, measured in numbers["layers"].items():
        seen = measured["operands"]
        prices = {operand: {key: Price.of(counts) for key, counts in one["casts"].items()} for operand, one in seen.items()}
        broken = {operand for operand, one in seen.items() if one["num_nan"] or one["num_inf"]}
        for operand in OPERANDS:
            if operand in prices:
                operands.append(_operand(layer, operand, prices[operand], plan, limits, operand in broken))
        for gemm, hows in plan.items():
            cast = {operand: key for operand, key in hows.items() if key is not None}
            known = [(o, prices[o][key]) for o, key in cast.items() if o in prices]
            if any(o in broken or price.sqnr_db is not None for o, price in known):
                num_gemms += 1
                if any(o in broken or price.exceeds(limits) for o, price in known):
                    high.append((layer, gemm))
    return Advice(tuple(operands), tuple(high), num_gemms, numbers["num_steps"])


def _operand(
    layer: str, operand: str, prices: Mapping[str, Price], plan: Mapping[str, Mapping[str, str | None]], limits: Limits, broken: bool
) -> OperandAdvice:
    takes = next((key for key in ORDER if key in prices and not broken and not prices[key].exceeds(limits)), HIGH)
    keys = dict.fromkeys(key for hows in plan.values() if (key := hows.get(operand)) is not None)
    planned = max(((key, prices[key]) for key in keys), key=lambda one: _badness(one[1], limits), default=None)
    exceeds = ("nan or inf",) if broken else () if planned is None else planned[1].exceeds(limits)
    return OperandAdvice(layer, operand, takes, prices.get(takes), planned, exceeds, prices)


def _badness(price: Price, limits: Limits) -> tuple[int, float]:
    return len(price.exceeds(limits)), -(price.sqnr_db if price.sqnr_db is not None else math.inf)


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The measurements of several ranks, added up."""
    layers = reduce(_added, (part["layers"] for part in parts))
    return {"num_steps": max(part["num_steps"] for part in parts), "plan": parts[0]["plan"], "layers": layers}


def _added(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Nested counts added up; largest magnitudes merge by maximum, and text is the same in both."""
    both = {**a, **b}
    for key in a.keys() & b.keys():
        mine, theirs = a[key], b[key]
        if isinstance(mine, Mapping):
            both[key] = _added(mine, theirs)
        elif not isinstance(mine, str):
            both[key] = max(mine, theirs) if key == "amax" else mine + theirs
    return both


def rows(advice: Advice) -> Iterator[tuple[str, ...]]:
    """A row of text cells for each operand: layer, operand, the format it could take with SQNR, saturated and flushed, the recipe's cast
    with the same numbers, and the limits that this cast exceeds."""
    for one in advice.operands:
        own = cells_of(one.price) if one.price is not None else ("", "", "")
        planned = (one.planned[0], *cells_of(one.planned[1])) if one.planned is not None else ("", "", "", "")
        yield (one.layer, one.operand, one.takes, *own, *planned, ", ".join(one.exceeds))


def cells_of(price: Price) -> tuple[str, str, str]:
    """SQNR in dB, saturated and flushed in percent; a number other than zero never reads as zero."""
    if price.sqnr_db is None:
        return "-", "-", "-"
    sqnr = "exact" if price.sqnr_db == math.inf else f"{price.sqnr_db:.1f}"
    return sqnr, _pct(price.saturated_pct), _pct(price.flushed_pct)


def _pct(value: float) -> str:
    return "0" if value == 0 else "<0.01" if value < 0.01 else f"{value:.3g}"
