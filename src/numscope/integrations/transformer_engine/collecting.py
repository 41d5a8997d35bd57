"""Tensors that Transformer Engine's modules show: merged over a step's calls and over ranks, then into sinks and findings."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from numscope.config.loading import plan_of
from numscope.config.options import OnNonfinite, WatchOptions
from numscope.config.plan import Collect, Plan
from numscope.config.wording import ConfigurationError
from numscope.distributed.channel import members
from numscope.inspect.ranks import joined
from numscope.inspect.recorder import Recorder
from numscope.inspect.sites import Inspection, PlannedSite
from numscope.inspect.tally import Seen, Tally, casting
from numscope.plugins import discovery as plugins
from numscope.plugins.discovery import Plugins
from numscope.probe.optimizer import guarded
from numscope.records.errors import NonFiniteError, UsageError
from numscope.records.faults import ours, told, traced
from numscope.records.finding import Finding, Kind
from numscope.records.layer import Layer
from numscope.records.site import Phase, Site
from numscope.records.words import nearest
from numscope.report.delivery import Delivery
from numscope.scope.alerting import Alerting
from numscope.sinks.tensorboard import TensorBoardSink
from numscope.summary.ledger import numbers_of
from numscope.summary.state import Summary

log = logging.getLogger("numscope")

Key = tuple[str, str, str]  # feature, layer, tensor

MODEL = "Transformer Engine"
CLASS = "TransformerEngine"  # every layer's: the calls do not give it, and runs keep no layers without one
NO_REPLAY = "Transformer Engine's calls show tensors, not operations"
_BACKWARD = ("gradient", "dgrad", "wgrad")


class _Sites(Tally):
    """A tally to which sites come as layers show them."""

    def __init__(self) -> None:
        self._kinds: list[str] = []
        super().__init__((), casting(self._kinds))

    def add(self, site: PlannedSite) -> int:
        self._layouts = (*self._layouts, site.layout)
        self._kinds.append(site.kind)
        return len(self._layouts) - 1


@dataclass(slots=True)
class _Shown:
    """One tensor of one layer as one feature wants it."""

    asked: FeatureSettings
    inspection: Inspection
    site: PlannedSite
    index: int  # its place in the tally
    group: Any = None  # over which its parts lay when it was shown last
    step: int = -1  # when it was shown last
    shape: tuple[int, ...] = ()  # when it was shown last


class Collector:
    """One process's, from nvdlfw-inspect's ``initialize`` to its ``end_debug``; ``logger`` is nvdlfw-inspect's own.

    *Cost:* one pass over a tensor that is on schedule; at ``step`` one sync a device, and one exchange for each process group.
    """

    def __init__(self, log_dir: str, logger: object, *, loggers: Sequence[Any] = (), tb_writer: Any = None, **options: Any) -> None:
        plan = Plan("nvdlfw-inspect", text="configured through nvdlfw-inspect")
        writers = () if tb_writer is None else (TensorBoardSink(tb_writer),)
        self.recorder = Recorder(plan, plugins.load(()), log_dir=log_dir, loggers=(*writers, *loggers, logger), names="te", **options)
        self.findings: list[Finding] = []
        folder = self.recorder.log_dir
        self._delivery = Delivery(None, None if folder is None else os.fspath(folder), MODEL, self.recorder.rank, shown_as=log_dir)
        self._alerting = Alerting(WatchOptions(on_nonfinite=None), self._delivery, None, self.recorder)
        self._shown: dict[Key, _Shown] = {}
        self._settings: dict[tuple[str, str, str], FeatureSettings] = {}
        self._sites = _Sites()
        self._news: list[Layer] = []
        self._groups: dict[int, Any] = {}  # over which this step's tensors lie: their ranks meet at its end
        self._num_steps = 0
        self.closed = False

    def settings_of(self, feature: str, tensor: str, config: Mapping[str, Any], *, alarm: bool) -> FeatureSettings:
        """A feature's settings, checked once. Raises: UsageError."""
        key = (feature, tensor, json.dumps(config, sort_keys=True, default=str))
        if key not in self._settings:
            self._settings[key] = settings_of(feature, tensor, config, alarm=alarm)
        return self._settings[key]

    def see(self, feature: str, layer: str, name: str, tensor: Any, wanted: FeatureSettings, step: int, group: Any) -> None:
        """A module shows a tensor to a feature. ``group``: over which its parts lie; None: this rank has all of it."""
        if not wanted.collect.schedule.active(step):
            return
        if group is not None:
            self._groups[id(group)] = group
        self._see(feature, layer, name, tensor, wanted, step, group)

    @guarded()
    def _see(self, feature: str, layer: str, name: str, tensor: Any, wanted: FeatureSettings, step: int, group: Any) -> None:
        whole = _plain(tensor)
        if whole is None:
            return
        shown = self._shown.get((feature, layer, name))
        if shown is None or shown.asked is not wanted:
            shown = self._shown[feature, layer, name] = self._add(layer, wanted)
        if name == "weight" and shown.step == step:
            return  # each micro-batch shows it again
        shown.step, shown.group, shown.shape = step, group, tuple(whole.shape)
        self._sites.observe(shown.index, whole)

    def _add(self, name: str, wanted: FeatureSettings) -> _Shown:
        layer = Layer(name, CLASS, name, weights=("weight",))
        inspection = Inspection([(wanted.collect, [layer])], [], wanted.plugins)
        (site,) = inspection.sites
        self._news.append(layer)
        return _Shown(wanted, inspection, site, self._sites.add(site))

    def step(self, meeting: Any = None) -> None:
        """A training step is over: merge, write, judge. Raises: NonFiniteError, where a configuration asks for it.

        ``meeting``: the process group all of whose ranks call this, whatever tensors they saw; None: none.
        """
        groups, self._groups = self._groups, {}
        if meeting is not None:
            groups[id(meeting)] = meeting
        self._num_steps += 1
        try:
            self._step(groups)
        except NonFiniteError:
            raise
        except ours() as error:
            self.failed(error)

    def close(self) -> None:
        """Write what is left of this rank, close the sinks."""
        if not self.closed and self._sites.anything:
            for shown in self._shown.values():
                shown.group = None  # others may be elsewhere
            try:
                self._step({})
            except ours() as error:
                log.error("at the end: %s", told(error))
        self._delivery.close(self.findings, (), (), self._num_steps, 0)
        self.recorder.close()

    # ---- the end of a step

    def _step(self, groups: Mapping[int, Any]) -> None:
        parts = self._parts()
        found = {**parts}
        for group in sorted(groups.values(), key=lambda group: (len(members(group)), members(group))):  # as on all ranks
            here = {key: (part, self._shown[key].site.layout) for key, part in parts.items() if self._shown[key].group is group}
            found |= joined(here, group, self._num_steps)
        if self.closed:
            return
        if self._news:
            news, self._news = list(dict.fromkeys(self._news)), []
            self.recorder.introduce(MODEL, news, {}, known_by="")
        ordered = sorted(found, key=lambda key: parts[key].order)
        write = [(self._shown[key], found[key]) for key in ordered if not self._is_alarm(key)]
        written = [one.inspection.observation(one.site, one.step, part, self.recorder.rank, True) for one, part in write]
        self.recorder.write(written)
        if self._alerting.post is not None:
            self._alerting.post(self.recorder.rules.read(written))
        bad = [key for key in ordered if self._is_alarm(key) and Summary.from_row(found[key].row).num_nonfinite]
        findings = [self._finding(key, found[key]) for key in bad]
        ways = {self._shown[key].asked.on_nonfinite for key in bad}
        self._sites.reset()
        if findings:
            self._tell(findings, stop="raise" in ways)

    def _parts(self) -> dict[Key, Seen]:
        """This rank's; none once ours has failed: then it meets the others with nothing, for they wait."""
        if not self.closed:
            try:
                seen = self._sites.read()
                return {key: seen[shown.index] for key, shown in self._shown.items() if shown.index in seen}
            except ours() as error:
                self.failed(error)
        return {}

    def _is_alarm(self, key: Key) -> bool:
        return self._shown[key].asked.on_nonfinite is not None

    def _finding(self, key: Key, seen: Seen) -> Finding:
        _, layer, tensor = key
        shown = self._shown[key]
        summary = Summary.from_row(seen.row)
        phase = Phase.BACKWARD if tensor in _BACKWARD else Phase.FORWARD
        return Finding(
            step=shown.step,
            batch=0,
            phase=phase,
            rank=self.recorder.rank,
            site=Site(layer, "", phase, tensor),
            kind=Kind.NAN if summary.num_nan else Kind.INF,
            contained=False,
            culprit=None,
            replay=NO_REPLAY,
            model=MODEL,
            numbers=numbers_of(summary, getattr(torch, seen.dtype), shown.shape),
        )

    def _tell(self, findings: Sequence[Finding], *, stop: bool) -> None:
        """The first one of a step is the finding; the others follow from it or from what made it."""
        first, *others = findings
        if others:
            first = replace(first, note=f"{len(others)} more tensors were non-finite after it in this step")
        self.findings.append(first)
        self.recorder.say(first.headline(), logging.WARNING)
        self._delivery.finding(first)
        if stop:
            raise NonFiniteError(first)

    def failed(self, error: Exception) -> None:
        """Our own error: logged once, and training goes on."""
        if self.closed:
            return
        self.closed = True
        self.recorder.say(f"no more of Transformer Engine's tensors: {traced(error)}", logging.ERROR)


def _plain(tensor: Any) -> Tensor | None:
    """A tensor as it is; one of Transformer Engine's quantized ones in high precision."""
    if not isinstance(tensor, Tensor):
        return None
    if type(tensor) in (Tensor, torch.nn.Parameter):
        return tensor.detach()
    return tensor.dequantize().detach()


# ---- the one at work: nvdlfw-inspect too has one a process

_options: dict[str, Any] = {}
_last: Collector | None = None  # at work, or the one before, whose findings stay


def prepare(**options: Any) -> None:
    """Options for the collector that nvdlfw-inspect's ``initialize`` begins."""
    global _options
    _options = options


def begin(log_dir: str, logger: object) -> None:
    """Begin collecting; what was at work ends."""
    global _last
    end()
    options = {name: value for name, value in _options.items() if name != "log_dir"}
    _last = Collector(os.fspath(_options.get("log_dir") or log_dir), logger, **options)


def at_work() -> Collector:
    """The process's collector."""
    assert _last is not None, "the namespace is registered with the features"
    return _last


def end() -> None:
    """End collecting; nothing where nothing is at work."""
    if _last is not None and not _last.recorder.closed:
        _last.close()


def findings() -> list[Finding]:
    """The findings of ``NumscopeNonFinite`` since ``initialize``, in order; they stay after ``end_debug``."""
    return [] if _last is None else list(_last.findings)


_ALARM = {"stats": ["num_nan", "num_inf"]}


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """One feature's settings for one tensor."""

    collect: Collect  # statistics and schedule
    plugins: Plugins  # define some of the statistics
    on_nonfinite: OnNonfinite | None = None  # the alarm's; None for plain statistics


def settings_of(feature: str, tensor: str, config: Mapping[str, Any], *, alarm: bool) -> FeatureSettings:
    """A feature's settings for one tensor, checked. ``alarm``: it is the one for non-finite values; else for statistics.

    Raises: UsageError that lists everything wrong.
    """
    ours = ("enabled", "tensor", "tensors", "tensors_struct", "on_nonfinite")
    settings = {key: value for key, value in config.items() if key not in ours}
    on_nonfinite = config.get("on_nonfinite", "warn") if alarm else None
    if alarm and on_nonfinite not in ("warn", "note", "raise", "off"):
        hint = nearest(on_nonfinite, ("warn", "raise"))
        raise UsageError(f"got {on_nonfinite!r}, expected 'warn' or 'raise'.{hint}", f"{feature}.on_nonfinite")
    if not alarm and "on_nonfinite" in config:
        raise UsageError("unknown here. Use NumscopeNonFinite.", f"{feature}.on_nonfinite")
    section = {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, "statistics": {"enabled": True, **settings}}
    section["statistics"] |= {"tensors": [tensor], **(_ALARM if alarm else {})}  # type: ignore[operator]
    try:
        plan, plugins = plan_of({feature: section})
    except ConfigurationError as error:
        raise ConfigurationError("", ((place.replace(f"{feature}.statistics", feature, 1), text) for place, text in error.found)) from None
    (collect,) = plan.collects
    return FeatureSettings(collect, plugins, on_nonfinite)
