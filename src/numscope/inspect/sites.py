"""A plan's sites in one model: which of them are wanted at a step, and the observations made of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from numscope.config.plan import Collect, PluginFeature, StatRequest, group_of
from numscope.inspect.tally import Seen
from numscope.plugins.discovery import Plugins
from numscope.probe.entry import LayerSites
from numscope.records.layer import Layer
from numscope.records.observation import FIELDS, SEEN_IN_CALLS, TENSORS, Histogram, Observation, Value
from numscope.summary import native
from numscope.summary.extras import Extra, Layout
from numscope.summary.state import Groups, Summary, fields_of
from numscope.summary.statistics import STATISTICS, formula_of

KNOWN: tuple[str, ...] = () if native.module is None else native.module.DERIVED


class Derived:
    """Computes attributes of ``Summary``, given by the results' names, from rows: numbers or None, equal to the last bit.

    *Cost:* 0.5 µs a row with six of ``KNOWN``; 20 with others, where rounding errors leave a last digit open, and without the kernel.
    """

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self._attributes = attributes
        self._names = tuple(attributes)
        known = {*attributes.values()} <= {*KNOWN}
        self._codes = bytes(map(KNOWN.index, attributes.values())) if known else None

    def of(self, row: list[float]) -> tuple[dict[str, Value], dict[str, Value]]:
        """A row's fields by name, in order, and the wanted numbers."""
        if self._codes is not None and native.module is not None:
            found: tuple[dict[str, Value], dict[str, Value]] | None = native.module.derive(row, FIELDS, self._names, self._codes)
            if found is not None:
                return found
        fields = fields_of(row)
        summary = Summary(*fields)
        return dict(zip(FIELDS, fields, strict=True)), {name: getattr(summary, of) for name, of in self._attributes.items()}


Given = Mapping[str, Sequence[float]]
Formula = Callable[[Summary, Mapping[str, float | Histogram]], Value | Histogram]

ON_MODULES = ("activation", "output", "gradient", "dgrad")  # seen by hooks; what is of a parameter, at the optimizer's step


@dataclass(slots=True)
class PlannedSite:
    """One tensor of one layer.

    Args:
        tensor: as logs name it: ``activation``, ``weight[in_proj_weight]``.
        kind: as a configuration names it, see ``Observation``.
        parameter: of a weight, its gradients and states, its name in the module.
        customs: plug-ins' features that want to see it.
        layout: of its extra cells.
        statistics: custom ones that look at the tensor itself, each with its first cell.
    """

    index: int
    layer: Layer
    tensor: str
    kind: str
    parameter: str | None = None
    collects: list[Collect] = field(default_factory=list)
    customs: list[PluginFeature] = field(default_factory=list)
    layout: Layout = Layout()  # noqa: RUF009
    statistics: list[tuple[str, int]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The name by which ranks know it."""
        return f"{self.layer.name}|{self.tensor}"

    @property
    def is_plain(self) -> bool:
        """Whether it wants nothing of its tensor but a row."""
        return not (self.customs or self.statistics or self.layout.extras)

    def offset(self, key: str) -> int | None:
        """The first cell of one of its extras."""
        return self.layout.offsets.get(key)


@dataclass(frozen=True, slots=True)
class Active:
    """The sites that a step wants: all, those whose tensor is read, those whose cast in a GEMM is counted; and the fields of summaries."""

    sites: tuple[PlannedSite, ...] = ()
    read: tuple[PlannedSite, ...] = ()
    counted: tuple[PlannedSite, ...] = ()
    groups: Groups = Groups.HEALTH
    asked: dict[tuple[int, bool | None], Asked] = field(default_factory=dict, compare=False)  # by site and ``reduced``


class Asked:
    """Some parts of a plan that want the same site's numbers, in the plan's order."""

    def __init__(self, collects: Iterable[Collect], plugins: Plugins) -> None:
        self.collects = tuple(collects)
        numbers: dict[str, str] = {}  # attributes of a summary that C derives, by label
        self._formulas: list[tuple[str, Formula]] = []
        for asked in (asked for collect in self.collects for asked in self._once(collect)):
            custom = plugins.statistics.get(asked.statistic)
            attribute = "" if custom is not None else STATISTICS[asked.statistic].attribute
            if attribute in KNOWN:
                numbers.setdefault(asked.label, attribute)
            else:
                self._formulas.append((asked.label, formula_of(asked) if custom is None else custom.value))
        self._numbers = Derived(numbers)
        self._order = [asked.label for collect in self.collects for asked in collect.stats] if self._formulas else []

    @staticmethod
    def _once(collect: Collect) -> Iterable[StatRequest]:
        """The statistics of a part; the first of a label counts."""
        found: dict[str, StatRequest] = {}
        for asked in collect.stats:
            found.setdefault(asked.label, asked)
        return found.values()

    def of(self, row: list[float], extras: Mapping[str, float | Histogram]) -> tuple[dict[str, Value], dict[str, Value | Histogram]]:
        """A row's fields by name, in order, and the statistics by the names that they are asked by."""
        fields, numbers = self._numbers.of(row)
        if not self._formulas:
            return fields, numbers  # type: ignore[return-value]  # a dict of its own
        found: dict[str, Value | Histogram] = {**dict.fromkeys(self._order), **numbers}
        summary = Summary(*fields.values())  # type: ignore[arg-type]
        for label, formula in self._formulas:
            if found[label] is None:  # of two kinds of casts under one name, a layer has one
                found[label] = formula(summary, extras)
        return fields, found


class Inspection:
    """The sites of a plan resolved on a model: each part of the plan comes with the layers that it selects."""

    def __init__(
        self,
        collects: Sequence[tuple[Collect, Sequence[Layer]]],
        customs: Sequence[tuple[PluginFeature, Sequence[Layer]]],
        plugins: Plugins,
    ) -> None:
        self.sites: list[PlannedSite] = []
        self._plugins = plugins
        self._by_key: dict[tuple[Layer, str], PlannedSite] = {}
        # Parts that want tensors read; parts of which some statistic is counted where a GEMM casts its operand.
        kinds = {id(c): {extra.kind if (extra := self._extra(asked)) is not None else "" for asked in c.stats} for c, _ in collects}
        self._reading = {id(c) for c, _ in customs} | {key for key, found in kinds.items() if found != {"operand"}}
        self._counting = {key for key, found in kinds.items() if "operand" in found}
        self._higher = {id(c) for c, _ in customs} | {id(c) for c, _ in collects if any(map(self._needs_higher, c.stats))}
        self._parts: tuple[Collect | PluginFeature, ...] = (*(c for c, _ in collects), *(c for c, _ in customs))
        self._active: dict[tuple[bool, ...], Active] = {}
        self._merges = any(collect.merge is not None for collect, _ in collects)
        self._asked: dict[tuple[int, ...], Asked] = {}  # by the ids of the parts that ask
        self._now = -1, Active()  # the step asked about last
        for collect, layers in collects:
            for site in self._sites_of(layers, collect.tensors, of_gemms=id(collect) not in self._reading):
                site.collects.append(collect)
        for custom, layers in customs:
            for site in self._sites_of(layers, custom.tensors):
                site.customs.append(custom)
        self._own_labels = {a.label for collect, _ in collects for a in collect.stats if a.statistic in plugins.statistics}
        for site in self.sites:
            extras = [e for collect in site.collects for asked in collect.stats if (e := self._extra(asked)) is not None]
            site.layout = Layout(extras)
            asked_for = {asked.statistic for collect in site.collects for asked in collect.stats}
            for name in sorted(asked_for & set(plugins.statistics)):
                extra = plugins.statistics[name].extra
                if extra is not None and (first := site.offset(extra.key)) is not None:
                    site.statistics.append((name, first))

    def _sites_of(self, layers: Iterable[Layer], tensors: Sequence[str], of_gemms: bool = False) -> Iterable[PlannedSite]:
        for layer in layers:
            for kind in tensors:
                if kind not in (*ON_MODULES, "attention"):
                    for name in ("weight",) if of_gemms else layer.weights:  # a GEMM's weight may be several parameters, joined
                        yield self._site(layer, kind if name == "weight" else f"{kind}[{name}]", kind, name)
                else:
                    yield self._site(layer, kind, kind, None)

    def _site(self, layer: Layer, tensor: str, kind: str, parameter: str | None) -> PlannedSite:
        site = self._by_key.get((layer, tensor))
        if site is None:
            site = self._by_key[layer, tensor] = PlannedSite(len(self.sites), layer, tensor, kind, parameter)
            self.sites.append(site)
        return site

    def _extra(self, asked: StatRequest) -> Extra | None:
        custom = self._plugins.statistics.get(asked.statistic)
        if custom is not None:
            return custom.extra
        return STATISTICS[asked.statistic].extra(asked.options)

    def _needs_higher(self, asked: StatRequest) -> bool:
        return asked.statistic in self._plugins.statistics or STATISTICS[asked.statistic].higher

    # ---- which, when

    def active(self, step: int) -> Active:
        """The sites that are wanted at a step; the same object for steps that want the same."""
        if step == self._now[0]:
            return self._now[1]
        on = tuple(part.schedule.active(step) for part in self._parts)
        found = self._active.get(on)
        if found is None:
            wanted = {id(part) for part, is_on in zip(self._parts, on, strict=True) if is_on}
            parts = {site.index: {id(part) for part in (*site.collects, *site.customs)} & wanted for site in self.sites}
            read = tuple(site for site in self.sites if parts[site.index] & self._reading)
            found = self._active[on] = Active(
                tuple(site for site in self.sites if parts[site.index]),
                read,
                tuple(site for site in self.sites if parts[site.index] & self._counting and site.parameter in (None, "weight")),
                Groups.ALL if wanted & self._higher else Groups.HEALTH | Groups.MOMENTS if read else Groups.HEALTH,
            )
        self._now = step, found
        return found

    @property
    def readable(self) -> list[PlannedSite]:
        """The sites that some step reads."""
        return [site for site in self.sites if {id(part) for part in (*site.collects, *site.customs)} & self._reading]

    @staticmethod
    def hooks(sites: Iterable[PlannedSite]) -> dict[Layer, LayerSites]:
        """The sites by layer, as a module probe takes them."""
        by_layer: dict[Layer, dict[str, Any]] = {}
        for site in sites:
            if site.kind in (*ON_MODULES, *SEEN_IN_CALLS):
                wanted = by_layer.setdefault(site.layer, {})
                if site.parameter is None:
                    wanted[site.kind] = site.index
                else:
                    wanted["parameters"] = *wanted.get("parameters", ()), (site.parameter, site.index)
                wanted["evaluation"] = wanted.get("evaluation", False) or any(c.evaluation for c in site.collects)
        return {layer: LayerSites(**wanted) for layer, wanted in by_layer.items()}

    def selected(self) -> dict[Layer, list[str]]:
        """For each selected layer what is wanted of it, a line each."""
        found: dict[Layer, list[str]] = {}
        for site in self.sites:
            lines = found.setdefault(site.layer, [])
            lines += [f"{site.tensor}: {', '.join(a.label for a in c.stats)} ({c.section}.{c.feature})" for c in site.collects]
            lines += [f"{site.tensor}: {c.feature} ({c.section})" for c in site.customs]
        return found

    # ---- observations

    def observation(
        self,
        site: PlannedSite,
        step: int,
        seen: Seen,
        rank: int,
        reduced: bool | None,
        prefix: str = "",
        given: Given = MappingProxyType({}),
    ) -> Observation:
        """One site's step in plain numbers.

        Args:
            reduced: which of the plan's parts it is for.
            prefix: before the layer's name.
            given: what plug-ins' features gave, by name; several calls' numbers are averaged.
        """
        extras: Mapping[str, Any] = site.layout.named(seen.cells) if seen.cells else {}
        fields, values = self.asked(site, step, reduced=reduced).of(seen.row, extras)
        if given or self._own_labels:
            values.update((name, sum(numbers) / len(numbers)) for name, numbers in given.items())
            # What plug-ins made has no formula that a run's reader knows, so that it is kept as it is.
            kept = self._own_labels.union(given)
            extras = {**extras, **{name: value for name, value in values.items() if name in kept and value is not None}}
        layer, name = site.layer, prefix + site.layer.name
        return Observation(
            *(step, name, layer.cls, site.tensor, seen.dtype, seen.order, rank, seen.ranks, seen.calls, fields, extras, values, seen.mine)
        )

    def observations(
        self,
        step: int,
        rank: int,
        prefix: str,
        given: Mapping[int, Given],
        parts: Sequence[tuple[PlannedSite, Seen]],
        *,
        reduced: bool | None,
    ) -> list[Observation]:
        """Of sites, and of the groups of sites that the plan asks for; ``given``: what plug-ins' features gave, by site."""
        made = [self.observation(site, step, seen, rank, reduced, prefix, given.get(site.index, {})) for site, seen in parts]
        return [*made, *self.merged(step, [site for site, _ in parts], made, reduced=reduced)]

    def asked(self, site: PlannedSite, step: int, *, reduced: bool | None) -> Asked:
        """The plan's parts that collect a site at a step: those whose numbers are reduced over ranks, or the others; None: both."""
        asked = self.active(step).asked
        found = asked.get((site.index, reduced))
        if found is None:
            on = (c for c in site.collects if c.schedule.active(step))
            wanted = [c for c in on if reduced is None or (c.reduce is True) is reduced]
            key = tuple(map(id, wanted))
            found = asked[site.index, reduced] = self._asked.setdefault(key, Asked(wanted, self._plugins))
        return found

    def collects_at(self, site: PlannedSite, step: int, *, reduced: bool | None) -> tuple[Collect, ...]:
        """The parts of the plan that want a site's numbers at a step, reduced over ranks or not; None: both."""
        return self.asked(site, step, reduced=reduced).collects

    def merged(
        self, step: int, sites: Sequence[PlannedSite], observations: Sequence[Observation], *, reduced: bool | None
    ) -> Iterator[Observation]:
        """Observations of groups of sites, where a part of the plan asks for ``merge``."""
        if not self._merges:
            return
        merging = {id(c): c for site in sites for c in self.collects_at(site, step, reduced=reduced) if c.merge is not None}
        for collect in merging.values():
            groups: dict[tuple[str, str], list[Observation]] = {}
            for site, observation in zip(sites, observations, strict=True):
                group = group_of(str(collect.merge), site.layer.name, site.layer.cls)
                if group is not None and any(c is collect for c in site.collects):
                    groups.setdefault((group, site.kind), []).append(observation)
            layout = Layout(e for asked in collect.stats if (e := self._extra(asked)) is not None)
            for (group, kind), members in groups.items():
                yield self._merge(collect, layout, group, kind, members)

    def _merge(self, collect: Collect, layout: Layout, group: str, kind: str, members: Sequence[Observation]) -> Observation:
        summary, cells = Summary.empty(), layout.empty()
        for member in members:
            summary = summary.merge(Summary(**dict(member.fields)))  # type: ignore[arg-type]
            cells = layout.merge(cells, layout.from_named(member.extras))
        extras = layout.named(cells)
        fields, values = Asked([collect], self._plugins).of(summary.to_row(), extras)
        dtypes = {member.dtype for member in members}
        return members[0]._replace(
            layer=group,
            cls="",
            tensor=kind,
            dtype=dtypes.pop() if len(dtypes) == 1 else "",
            order=-1,
            ranks=max(member.ranks for member in members),
            calls=sum(member.calls for member in members),
            fields=fields,
            extras=extras,
            values=values,
            mine=all(member.mine for member in members),
        )


assert set(ON_MODULES) < set(TENSORS)
