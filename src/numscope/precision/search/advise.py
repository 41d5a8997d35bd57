"""From what casts would do to each operand: which format it could take, which GEMMs to keep high. Plain numbers, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numscope.records.errors import UsageError

OPERANDS = ("activation", "weight", "gradient")
ORDER = ("e4m3", "e5m2", "block", "mxfp8", "bf16", "fp16")  # from what most machines multiply fastest to the widest
HIGH = "high"  # none of them


@dataclass(frozen=True, slots=True)
class Limits:
    """What a cast may cost. An operand that costs more in a format does not take it.

    Args:
        min_sqnr_db: least ratio of the operand's square sum to that of the cast's errors. 20 dB are one percent of noise; e4m3 gives
            some 31 dB to an operand that lies well in it, e5m2 some 25, and gradients in e5m2 are known to train.
        max_saturated_pct: most elements clipped at the format's maximum. Five percent: what clipping costs is in the ratio above; this is
            for a tensor whose ratio is that of a few large elements. Weights that grow by a percent a step clip a percent, and no harm.
        max_flushed_pct: most non-zero elements that become zero, as a part of all. Five percent: a bell curve in e4m3 loses less than a
            thousandth; what loses more has a few large elements that take the range away from all others, which the square sums hide.
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
    """What a cast does to an operand.

    Args:
        sqnr_db: of the mean over the casts of the errors' square sum relative to the operand's: a step with small numbers counts as one
            with large ones. Infinity where the cast changes nothing; None where it was not measured.
        saturated_pct, flushed_pct: of all elements.
    """

    sqnr_db: float | None
    saturated_pct: float
    flushed_pct: float

    @classmethod
    def of(cls, numbers: Mapping[str, float]) -> Price:
        """From what ``WhatIf`` counted."""
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
        """What it costs too much of: ``SQNR``, ``saturated``, ``flushed``; nothing where it was not measured."""
        if self.sqnr_db is None:
            return ()
        over = (self.sqnr_db < limits.min_sqnr_db, self.saturated_pct > limits.max_saturated_pct, self.flushed_pct > limits.max_flushed_pct)
        return tuple(word for word, is_over in zip(("SQNR", "saturated", "flushed"), over, strict=True) if is_over)


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of one layer.

    Args:
        takes: the first format in ``ORDER`` within the limits; ``HIGH`` where none is, or where it holds nan or inf.
        price: in that format; None with ``HIGH``.
        planned: what the recipe would cast it to, the costliest of its GEMMs' casts, and its price; None where the recipe casts it nowhere.
        exceeds: what that costs too much of.
        prices: in every format measured.
    """

    layer: str
    operand: str
    takes: str
    price: Price | None
    planned: tuple[str, Price] | None
    exceeds: tuple[str, ...]
    prices: Mapping[str, Price] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Advice:
    """For a whole model.

    Args:
        operands: three a layer at most, in the model's order.
        high: (layer, GEMM) to keep in high precision under the recipe.
        num_gemms: GEMMs that the recipe casts, over all layers; those with no cast that was measured are not among them.
    """

    operands: tuple[Operand, ...]
    high: tuple[tuple[str, str], ...]
    num_gemms: int
    num_steps: int


def advice_of(numbers: Mapping[str, Any], limits: Limits) -> Advice:
    """What to keep high.

    Args:
        numbers: as ``WhatIf.numbers`` gives them, or ``merged`` of several ranks'.
        limits: what a cast may cost.

    Returns: each operand's formats, and the GEMMs with an operand that the recipe's own cast costs too much.
    """
    plan: Mapping[str, Mapping[str, str | None]] = numbers["plan"]
    operands: list[Operand] = []
    high: list[tuple[str, str]] = []
    num_gemms = 0
    for layer, told in numbers["layers"].items():
        prices = {operand: {key: Price.of(one) for key, one in seen["casts"].items()} for operand, seen in told["operands"].items()}
        broken = {operand for operand, seen in told["operands"].items() if seen["num_nan"] or seen["num_inf"]}
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
) -> Operand:
    takes = next((key for key in ORDER if key in prices and not broken and not prices[key].exceeds(limits)), HIGH)
    keys = dict.fromkeys(key for hows in plan.values() if (key := hows.get(operand)) is not None)
    planned = max(((key, prices[key]) for key in keys), key=lambda one: _badness(one[1], limits), default=None)
    exceeds = ("nan or inf",) if broken else () if planned is None else planned[1].exceeds(limits)
    return Operand(layer, operand, takes, prices.get(takes), planned, exceeds, prices)


def _badness(price: Price, limits: Limits) -> tuple[int, float]:
    return len(price.exceeds(limits)), -(price.sqnr_db if price.sqnr_db is not None else math.inf)


def merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several ranks measured, as one."""
    whole: dict[str, Any] = {"num_steps": max(p["num_steps"] for p in parts), "plan": parts[0]["plan"], "layers": {}}
    for part in parts:
        for layer, told in part["layers"].items():
            mine = whole["layers"].setdefault(layer, {"class": told["class"], "operands": {}})
            for operand, seen in told["operands"].items():
                into = mine["operands"].setdefault(operand, {"numel": 0, "num_nan": 0, "num_inf": 0, "amax": 0.0, "casts": {}})
                into["amax"] = max(into["amax"], seen["amax"])
                for name in ("numel", "num_nan", "num_inf"):
                    into[name] += seen[name]
                for key, counts in seen["casts"].items():
                    sums = into["casts"].setdefault(key, dict.fromkeys(counts, 0.0))
                    for name, count in counts.items():
                        sums[name] += float(count)
    return whole


def rows(advice: Advice) -> Iterator[tuple[str, ...]]:
    """A line of text cells for each operand: layer, operand, format it could take, SQNR, saturated, flushed, the recipe's cast, SQNR,
    saturated, flushed, and what that exceeds."""
    for one in advice.operands:
        own = cells_of(one.price) if one.price is not None else ("", "", "")
        planned = (one.planned[0], *cells_of(one.planned[1])) if one.planned is not None else ("", "", "", "")
        yield (one.layer, one.operand, one.takes, *own, *planned, ", ".join(one.exceeds))


def cells_of(price: Price) -> tuple[str, str, str]:
    """SQNR in dB, saturated and flushed in percent; what is not zero never reads as zero."""
    if price.sqnr_db is None:
        return "-", "-", "-"
    sqnr = "exact" if price.sqnr_db == math.inf else f"{price.sqnr_db:.1f}"
    return sqnr, _pct(price.saturated_pct), _pct(price.flushed_pct)


def _pct(value: float) -> str:
    return "0" if value == 0 else "<0.01" if value < 0.01 else f"{value:.3g}"
