"""Alerts in plain Python values: what is about to go wrong, and what goes wrong in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a rule or a check finds worth a person's look.

    Args:
        step: training step, counted from 0 or the run's first step.
        rule: its name, as configurations know it.
        layer: qualified name of the module, "" for the whole model or the loop.
        tensor: one of the tensors that observations name, or "".
        value: the number that is out of bounds, None where there is no one number.
        limit: the bound that it left.
        text: what is seen, one sentence with its units.
        advice: the cheapest cure, a sentence.
        evidence: further JSON-ready facts by name: a trend, steps, other layers, ranks.
        rank: this process's global rank.
        asks: it may be intended; the advice then says how to switch the check off.
    """

    step: int
    rule: str
    layer: str
    tensor: str
    value: float | None
    limit: float | None
    text: str
    advice: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    asks: bool = False

    def line(self, who: str = "") -> str:
        """One line: when, on which ranks, which rule, where, what is seen, and what to do. Names in it are as the model has them."""
        place = " ".join(filter(None, (self.layer, self.tensor)))
        when = f"step {self.step}{f', {who}' if who else ''}"
        return f"{when}: {self.rule}: {place + ': ' if place else ''}{' '.join(filter(None, (self.text, self.advice)))}"


def parse_alert(data: Mapping[str, Any]) -> Alert:
    """An alert from its ``plain`` form, as another rank sends it or a file has it. Raises: KeyError, TypeError, ValueError."""
    found = {name: data[name] for name in ("step", "rule", "layer", "tensor", "text", "advice", "evidence", "rank", "asks")}
    value, limit = (None if data[name] is None else float(data[name]) for name in ("value", "limit"))
    return Alert(**found, value=value, limit=limit)
