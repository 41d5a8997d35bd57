"""What a configuration asks for, in plain data: what to collect, of which layers, at which steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numscope.config.alerting import AlertPlan
from numscope.config.selection import Selection


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps at which something is done: every ``freq``-th (step % freq == 0) within inclusive bounds."""

    freq: int = 1  # at least 1
    spans: tuple[tuple[int, int | None], ...] = ((0, None),)  # first and last steps, both included; last None: for ever

    def active(self, step: int) -> bool:
        """Whether a step is on the schedule."""
        return step % self.freq == 0 and any(first <= step and (last is None or step <= last) for first, last in self.spans)

    def next(self, after: int) -> int | None:
        """The first step on the schedule that comes after a step; None: there is none."""
        firsts = [(max(first, after + 1), last) for first, last in self.spans]
        steps = [(first + -first % self.freq, last) for first, last in firsts]
        return min((step for step, last in steps if last is None or step <= last), default=None)


@dataclass(frozen=True, slots=True)
class StatRequest:
    """One statistic as it was asked for."""

    label: str  # the name that logs show, as written in the configuration
    statistic: str  # its canonical name in ``summary/statistics.py``
    options: tuple[tuple[str, Any], ...] = ()  # such as ``(("block_size", 32), ("dims", 1))``


@dataclass(frozen=True, slots=True)
class Part:
    """One feature of a section."""

    section: str  # as written in the configuration, for messages
    feature: str  # likewise, with its namespace
    selection: Selection
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Collect(Part):
    """Statistics of some tensors of some layers at some steps.

    Args:
        reduce: merge over the ranks that share the tensor; False: each rank logs its own; "when read": each rank logs its own part, and
            what several ranks hold alike is logged by one, so that a reader can merge them.
        merge: also statistics of groups of sites: ``layer``, ``type``, ``all`` or a regex whose groups name them; None: none.
        evaluation: also of forwards in evaluation mode without gradients.
    """

    tensors: tuple[str, ...]
    stats: tuple[StatRequest, ...]
    reduce: bool | Literal["when read"] = True
    merge: str | None = None
    evaluation: bool = False


@dataclass(frozen=True, slots=True)
class Switch(Part):
    """A precision feature (``disable_fp8_gemm`` and its like): read and checked here; ``precision/switching.py`` says what it does.

    Args:
        feature: canonical name, whatever the configuration calls it.
        settings: canonical keys: tuples of ``gemms`` and ``tensors`` (None: all), of ``StatRequest`` for ``stats``.
    """

    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PluginFeature(Part):
    """A feature that a plug-in brought."""

    tensors: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole configuration."""

    source: str  # the file's name, or ``config``
    collects: tuple[Collect, ...] = ()
    switches: tuple[Switch, ...] = ()
    customs: tuple[PluginFeature, ...] = ()
    notes: tuple[str, ...] = ()  # what the log says of it once: sections that are off, features that find nothing to act on
    text: str = ""  # the configuration as it was given, for the log and run.json
    reload: bool = False  # the file is read again when it is edited during the run
    alerts: AlertPlan = field(default_factory=AlertPlan)

    @property
    def parts(self) -> tuple[Collect | Switch | PluginFeature, ...]:
        """All that it asks for."""
        return (*self.collects, *self.switches, *self.customs)
