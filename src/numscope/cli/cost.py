"""What a configuration's statistics cost: bytes that they read, at a step that is on the schedule and on average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numscope.cli.subject import Subject
from numscope.config.plan import Collect
from numscope.config.schedule import Schedule
from numscope.records.layer import Layer

_MOST_STEPS = 50_000  # that an average looks at


@dataclass(frozen=True)
class Cost:
    """Bytes, and how many tensors are of unknown size beside them."""

    known: float = 0.0
    num_unknown: int = 0

    def __str__(self) -> str:
        if not self.num_unknown:
            return in_bytes(self.known)
        return f"{in_bytes(self.known)} + {self.num_unknown} unknown" if self.known else "unknown"


def bytes_of(layer: Layer, tensor: str, subject: Subject, tokens: int | None) -> int | None:
    """Bytes of a layer's tensor in one step on one rank; None where that is unknown."""
    if (recorded := subject.read.get((layer.name, tensor))) is not None:
        return recorded
    if tensor in ("weight", "wgrad"):
        return layer.weight_bytes
    width = subject.widths.get(layer.name, (None, None))[0 if tensor in ("activation", "dgrad") else 1]
    if tokens is None or width is None or not layer.numel_weights:
        return None
    return tokens * width * layer.weight_bytes // layer.numel_weights


def cost_at_step(parts: Iterable[tuple[Collect, Sequence[Layer]]], subject: Subject, tokens: int | None) -> Cost:
    """Bytes read at a step that all these are scheduled for; a tensor that several want is read once."""
    sites = {(layer, tensor) for collect, layers in parts for layer in layers for tensor in collect.tensors}
    sizes = [bytes_of(layer, tensor, subject, tokens) for layer, tensor in sites]
    return Cost(sum(size for size in sizes if size is not None), sum(size is None for size in sizes))


def average_cost(parts: Sequence[tuple[Collect, Sequence[Layer]]], subject: Subject, tokens: int | None) -> tuple[Cost, range]:
    """Bytes read a step on average, and over which steps: from first to last, or, where some go on for ever, once all have begun."""
    steps = window({collect.schedule for collect, _ in parts})
    active: dict[tuple[bool, ...], int] = {}
    for step in steps:
        now = tuple(collect.schedule.active(step) for collect, _ in parts)
        active[now] = active.get(now, 0) + 1
    known, most = 0.0, 0
    for now, count in active.items():
        cost = cost_at_step((part for part, on in zip(parts, now, strict=True) if on), subject, tokens)
        known, most = known + cost.known * count, max(most, cost.num_unknown)
    return Cost(known / max(len(steps), 1), most), steps


def window(schedules: Iterable[Schedule]) -> range:
    """The steps that say how often a plan reads."""
    spans = [span for one in schedules for span in one.start_end_list or ((one.start_step, one.end_step),)]
    endless = [first for first, last in spans if last is None]
    if not endless:
        first = min((first for first, _ in spans), default=0)
        return range(first, min(first + _MOST_STEPS, max((last or 0 for _, last in spans), default=-1) + 1))
    first = max([*endless, *(last + 1 for _, last in spans if last is not None)])
    return range(first, first + min(_MOST_STEPS, math.lcm(*(one.freq for one in schedules))))


def in_bytes(number: float) -> str:
    """``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"
