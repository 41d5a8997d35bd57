"""The cost of a configuration's statistics: the bytes that they read, at scheduled steps and on average."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from numscope.cli.subject import Subject
from numscope.config.plan import Collect, Schedule
from numscope.records.layer import Layer
from numscope.records.observation import STATES, TENSORS
from numscope.records.words import in_bytes

_MOST_STEPS = 50_000  # in an average


@dataclass(frozen=True)
class Cost:
    """Bytes, and the number of further tensors of unknown size."""

    known: float = 0.0
    num_unknown: int = 0

    def __str__(self) -> str:
        if not self.num_unknown:
            return in_bytes(self.known)
        return f"{in_bytes(self.known)} + {self.num_unknown} unknown" if self.known else "unknown"


def bytes_of(layer: Layer, tensor: str, subject: Subject, tokens: int | None) -> int | None:
    """Bytes of a layer's tensor in one step on one rank; None if unknown."""
    if (recorded := subject.read.get((layer.name, tensor))) is not None:
        return recorded
    if tensor in ("weight", "wgrad", "local_wgrad", *STATES):
        return layer.weight_bytes
    if tensor not in TENSORS:
        return None
    width = subject.widths.get(layer.name, (None, None))[0 if tensor in ("activation", "dgrad") else 1]
    if tokens is None or width is None or not layer.numel_weights:
        return None
    return tokens * width * layer.weight_bytes // layer.numel_weights


def cost_at_step(parts: Iterable[tuple[Collect, Sequence[Layer]]], subject: Subject, tokens: int | None) -> Cost:
    """Bytes read at a step when all these parts are scheduled; a tensor wanted by several is read once."""
    sites = {(layer, tensor) for collect, layers in parts for layer in layers for tensor in collect.tensors}
    sizes = [bytes_of(layer, tensor, subject, tokens) for layer, tensor in sites]
    return Cost(sum(size for size in sizes if size is not None), sum(size is None for size in sizes))


def average_cost(parts: Sequence[tuple[Collect, Sequence[Layer]]], subject: Subject, tokens: int | None) -> tuple[Cost, range]:
    """Bytes read per step on average, and the steps averaged: from first to last, or one period after all endless parts have begun."""
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
    """The steps over which a plan's reads are averaged."""
    spans = [span for one in schedules for span in one.spans]
    endless = [first for first, last in spans if last is None]
    if not endless:
        first = min((first for first, _ in spans), default=0)
        return range(first, min(first + _MOST_STEPS, max((last or 0 for _, last in spans), default=-1) + 1))
    first = max([*endless, *(last + 1 for _, last in spans if last is not None)])
    return range(first, first + min(_MOST_STEPS, math.lcm(*(one.freq for one in schedules))))
