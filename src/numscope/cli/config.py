"""``numscope config``: checks a configuration before it is used in a run; explains its parts, formats of GEMMs, and the bytes it reads."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.printing import SCHEMA_VERSION, add_row, cells, note, plain_table, put, say, show
from numscope.cli.subject import ModelOrRun, subject_of
from numscope.cli.values import json_option, whole_number
from numscope.config import resolve
from numscope.config.features import PLAN_SWITCHES
from numscope.config.loading import plan_of
from numscope.config.plan import Collect, Plan, PluginFeature, Schedule, Selection, Switch
from numscope.records.errors import UsageError
from numscope.records.layer import GEMMS, Layer
from numscope.records.observation import STATES, TENSORS
from numscope.records.words import count as plural
from numscope.records.words import escape, in_bytes
from numscope.summary.statistics import STATISTICS, extra_of

if TYPE_CHECKING:
    from rich.table import Table

    from numscope.config import Resolved
    from numscope.precision.casting.scaling import How
    from numscope.precision.gemm.plan import LayerPlan
    from numscope.precision.gemm.switching import Phase

DEFAULT_RECIPE = "delayed"
_MOST_STEPS = 50_000  # averaged at most
_MOST_SPANS = 3

FEATURES = click.option("--features", multiple=True, metavar="FILE|DIR", help="Your own statistics and features; repeatable.")


def plan_in(file: str, features: tuple[str, ...]) -> Plan:
    """The plan of a configuration. A file of features that fails is left out, as by a run, and named in one line."""
    plan, plugged = plan_of(file, features)
    for text, level in plugged.messages:
        if level >= logging.ERROR:
            note(" ".join(text.split()))
    return plan


def _head(file: str) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "file": file}


@click.group(options_metavar="[options]", subcommand_metavar="COMMAND …")
def config() -> None:
    """Check or explain a configuration of statistics (YAML)."""


@config.command(options_metavar="[options]", short_help="Report all errors.")
@click.argument("file", metavar="FILE")
@json_option("Write JSON, errors included")
@FEATURES
def check(file: str, json_to: str | None, features: tuple[str, ...]) -> None:
    """Check a configuration and print all errors, one per line. Exit status: 0 without errors, else 2."""
    try:
        plan = plan_in(file, features)
    except UsageError as error:
        if json_to is not None:
            put(json_to, {**_head(file), "valid": False, "errors": str(error).splitlines(), "notes": [], "parts": []})
        raise
    if json_to is not None:
        parts = [{"section": part.section, "feature": part.feature} for part in plan.parts]
        put(json_to, {**_head(file), "valid": True, "errors": [], "notes": list(plan.notes), "parts": parts})
        return
    for text in plan.notes:
        say(f"{file}: note: {text}")
    counts = {"statistics feature": plan.collects, "precision switch": plan.switches, "plug-in feature": plan.customs}
    asks = [plural(len(parts), what) for what, parts in counts.items() if parts] + ([f"checks ({plan.check})"] if plan.check else [])
    say(f"{file}: valid. It asks for {', '.join(asks) or 'nothing'}.")
    if not plan.parts:
        return
    command = f"numscope config explain {escape(shlex.quote(file))} --model MODEL_OR_RUN"
    say(f"Layers' names were not checked, which takes a model or a run: {command}")


@config.command(options_metavar="[options]", short_help="Show what is collected where and when, and its cost.")
@click.argument("file", metavar="FILE")
@click.option(
    "--model", metavar="MODEL_OR_RUN", help="Where the layers come from: package.module:function, a transformers checkpoint, a run."
)
@click.option(
    "--tokens", type=whole_number(1), metavar="N", help="Tokens per step and rank, to compute the sizes of activations and gradients."
)
@click.option("--recipe", metavar="NAME", help="Recipe of the model's GEMMs unless a switch changes it (as converted, else delayed).")
@json_option("Write JSON instead of tables")
@FEATURES
def explain(file: str, model: str | None, tokens: int | None, recipe: str | None, json_to: str | None, features: tuple[str, ...]) -> None:
    """Show what a configuration collects, of which layers, at which steps, and about how many bytes that reads; with precision switches
    also the formats of each layer's GEMMs.
    """
    plan = plan_in(file, features)
    subject, resolved, plans = None, None, None
    if recipe is not None and model is None:
        raise UsageError("--recipe: given without --model, expected a model whose GEMMs use it. Add --model MODEL_OR_RUN.")
    if model is not None:
        subject = subject_of(model)
        resolved = resolve(plan, subject.layers)
        if recipe is not None or any(switch.feature in PLAN_SWITCHES for switch, _ in resolved.switches):
            plans = gemm_table(resolved, subject, recipe)
    notes = [*plan.notes, *(resolved.notes if resolved is not None else ())]
    if json_to is not None:
        put(json_to, {**_head(file), **explanation_document(plan, resolved, subject, tokens), "gemms": cells(plans), "notes": notes})
        return
    show(plan_table(plan, resolved, subject, tokens))
    if plans is not None and plans.rows:
        say("")
        show(plans)
    for line in cost_lines(resolved, subject, tokens):
        say(line)
    for text in notes:
        say(f"note: {text.removeprefix(f'{plan.source}: ')}")


def _parts(
    plan: Plan, resolved: Resolved | None
) -> Iterator[tuple[Collect | Switch | PluginFeature, Sequence[Layer] | None, Sequence[str]]]:
    """Each part of a configuration, its layers (None: not known) and its tensors."""
    parts: list[tuple[Collect | Switch | PluginFeature, Sequence[Layer] | None]] = [(part, None) for part in plan.parts]
    if resolved is not None:
        parts = [*resolved.collects, *resolved.switches, *resolved.customs]
    for part, layers in parts:
        yield part, layers, (part.settings.get("tensors") or ()) if isinstance(part, Switch) else part.tensors


def plan_table(plan: Plan, resolved: Resolved | None, subject: ModelOrRun | None, tokens: int | None) -> Table:
    """A row for each part of a configuration."""
    table = plain_table("section", "feature", "layers", "tensors", "statistics", "steps", "reads per scheduled step")
    for part, layers, tensors in _parts(plan, resolved):
        where = words_of(part.selection) if layers is None else _names([layer.name for layer in layers])
        if not isinstance(part, Collect):
            what, cost = _settings(part.settings), ""
        else:
            what, cost = _names([asked.label for asked in part.stats], 8) + _manner(part), "unknown without --model"
            if layers is not None and subject is not None:
                cost = str(cost_at_step([(part, layers)], subject, tokens))
        add_row(table, part.section, part.feature, where, ", ".join(tensors), what, steps_of(part.schedule), cost)
    return table


def _settings(settings: Mapping[str, Any]) -> str:
    """A switch's settings without its tensors: ``gemms fprop, wgrad``; only the names of statistics."""
    if "stats" in settings:
        return _names([asked.label for asked in settings["stats"]], 8)
    said = {key: value for key, value in settings.items() if key != "tensors" and value is not None and value is not False}
    return "; ".join(f"{key} {', '.join(value) if isinstance(value, tuple) else value}" for key, value in said.items())


def _manner(collect: Collect) -> str:
    said = []
    if collect.merge is not None:
        said.append(f"also merged by {collect.merge}")
    if not collect.reduce:
        said.append("per rank")
    if collect.evaluation:
        said.append("also in evaluation")
    return f" ({'; '.join(said)})" if said else ""


def cost_lines(resolved: Resolved | None, subject: ModelOrRun | None, tokens: int | None) -> list[str]:
    """The bytes that a configuration's statistics read, in words."""
    if resolved is None or subject is None:
        return ["reads: unknown without --model MODEL_OR_RUN."]
    collects = [*resolved.collects, *_on_paper(resolved)]
    if not collects:
        return ["reads: nothing."]
    whole = cost_at_step(collects, subject, tokens)
    average, steps = average_cost(collects, subject, tokens)
    hint = ""
    if whole.num_unknown:
        hint = (
            " Activations, outputs and their gradients need --tokens N." if tokens is None else " Unknown: layers without their own width."
        )
    if further := _further_reads(collects):
        hint += f" In addition, {_names(further)} read their tensors once more."
    span = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    return [f"reads: {whole} at a step that collects everything, {average} per step on average over {span}, on one rank.{hint}"]


def explanation_document(plan: Plan, resolved: Resolved | None, subject: ModelOrRun | None, tokens: int | None) -> dict[str, Any]:
    """The parts of a configuration and what they read, as JSON-ready values; null is what is unknown."""
    told = []
    for part, layers, tensors in _parts(plan, resolved):
        stats = part.stats if isinstance(part, Collect) else part.settings.get("stats") or ()
        one: dict[str, Any] = {"section": part.section, "feature": part.feature, "selection": words_of(part.selection)}
        one |= {"layers": None if layers is None else [layer.name for layer in layers], "tensors": list(tensors)}
        one |= {"statistics": [asked.label for asked in stats], "every": part.schedule.freq, "steps": list(map(list, part.schedule.spans))}
        if isinstance(part, Collect):
            one["reads"] = None if layers is None or subject is None else cost_at_step([(part, layers)], subject, tokens).document()
        told.append(one)
    if resolved is None or subject is None:
        return {"parts": told, "reads": None}
    collects = [*resolved.collects, *_on_paper(resolved)]
    average, steps = average_cost(collects, subject, tokens)
    reads = {"at_most": cost_at_step(collects, subject, tokens).document(), "on_average": average.document()}
    return {"parts": told, "reads": {**reads, "steps": [steps.start, steps.stop - 1] if steps else None}}


def _on_paper(resolved: Resolved) -> list[tuple[Collect, Sequence[Layer]]]:
    """Statistics of casts on paper, which read their tensors. Casts that GEMMs make are counted as they are made, without a read."""
    if not any("stats" in switch.settings for switch, _ in resolved.switches):
        return []
    from numscope.precision.gemm.counting import split

    return [
        (Collect(one.section, one.feature, one.selection, one.schedule, one.settings["tensors"], stats), layers)
        for one, layers in resolved.switches
        if "stats" in one.settings and (stats := split(one, None)[1])
    ]


def _further_reads(collects: Sequence[tuple[Collect, Sequence[Layer]]]) -> list[str]:
    """The statistics that need more than the shared pass."""
    asked = {one.label: one for collect, _ in collects for one in collect.stats if one.statistic in STATISTICS}
    return [label for label, one in asked.items() if extra_of(one) is not None]


def words_of(selection: Selection) -> str:
    """A selection in words."""
    said = []
    if selection.names is not None:
        said.append(_names(list(selection.names)))
    if selection.pattern is not None:
        said.append(f"names matching {selection.pattern}")
    if selection.numbers is not None:
        said.append(f"numbers {_names([str(number) for number in sorted(selection.numbers)], 6)}")
    if selection.types is not None:
        said.append(f"types {', '.join(selection.types)}")
    return ", ".join(said or ["all"]) + (" with containers" if selection.containers else "")


def steps_of(schedule: Schedule) -> str:
    """A schedule in words."""
    every = "every step" if schedule.freq == 1 else f"every {schedule.freq}"
    if schedule.spans == ((0, None),):
        return every
    return f"{every}, {', '.join(f'from {first}' if last is None else f'{first} to {last}' for first, last in schedule.spans)}"


def _names(names: list[str], most: int = 3) -> str:
    """The first few names and their number."""
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])}, … ({len(names)})"


@dataclass(frozen=True)
class Cost:
    """Bytes, and the number of further tensors of unknown size."""

    known: float = 0.0
    num_unknown: int = 0

    def document(self) -> dict[str, float]:
        return {"bytes": self.known, "num_unknown": self.num_unknown}

    def __str__(self) -> str:
        if not self.num_unknown:
            return in_bytes(self.known)
        return f"{in_bytes(self.known)} + {self.num_unknown} unknown" if self.known else "unknown"


def bytes_of(layer: Layer, tensor: str, subject: ModelOrRun, tokens: int | None) -> int | None:
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


def cost_at_step(parts: Iterable[tuple[Collect, Sequence[Layer]]], subject: ModelOrRun, tokens: int | None) -> Cost:
    """Bytes read at a step when all these parts are scheduled; a tensor wanted by several is read once."""
    sites = {(layer, tensor) for collect, layers in parts for layer in layers for tensor in collect.tensors}
    sizes = [bytes_of(layer, tensor, subject, tokens) for layer, tensor in sites]
    return Cost(sum(size for size in sizes if size is not None), sum(size is None for size in sizes))


def average_cost(parts: Sequence[tuple[Collect, Sequence[Layer]]], subject: ModelOrRun, tokens: int | None) -> tuple[Cost, range]:
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


def gemm_table(resolved: Resolved, subject: ModelOrRun, recipe: str | None) -> Table:
    """One row per layer, or several if its plan changes with the steps; recipe None: that of a converted layer, else ``DEFAULT_RECIPE``.

    Raises: UsageError if the recipe is unknown.
    """
    from numscope.precision.gemm.recipes import recipe_of
    from numscope.precision.gemm.switching import by_layer, phases

    usual = recipe_of(recipe or DEFAULT_RECIPE, "--recipe").plan()
    switches = by_layer(resolved.switches)
    schedules = {switch.schedule for found in switches.values() for switch in found}
    period = window(schedules | {Schedule()})
    steps = range(0, max(period.stop + 1, 2 * len(period) + period.start))  # all that changes has changed, and a period has come twice
    last = steps.stop - len(period)  # from here on the plans repeat
    repeats = any(one.freq > 1 and (None in (last for _, last in one.spans)) for one in schedules)
    known: dict[tuple[object, ...], list[tuple[Phase, list[tuple[int, int]]]]] = {}  # by equal switches
    table = plain_table("layer", "class", "steps", *GEMMS)
    for layer in subject.gemms:
        mine = switches.get(layer, [])
        default = usual if recipe is not None else subject.plans.get(layer, usual)
        key = (default, *map(id, mine))
        if key not in known:
            known[key] = phases(default, mine, steps)
        for (plan, results), spans in known[key]:
            cells = [_gemm(plan, gemm, dict(results)) for gemm in GEMMS]
            add_row(table, layer.name, layer.cls, _words_of_spans(spans, steps, last if repeats else None), *cells)
    return table


def _gemm(plan: LayerPlan, gemm: str, results: Mapping[str, How]) -> str:
    """``e4m3fn delayed`` if both operands are alike, else ``e5m2 delayed × e4m3fn delayed``; with ``→ …`` if the result is cast."""
    from numscope.precision.gemm.switching import RESULTS

    words = ["high" if how is None else how.text() for (of, _), how in plan.items() if of == gemm]
    text = "high precision" if words == ["high", "high"] else words[0] if words[0] == words[1] else " × ".join(words)
    return text + "".join(f" → {how.text()}" for result, how in results.items() if RESULTS[result] == gemm)


def _words_of_spans(spans: Sequence[tuple[int, int]], steps: range, repeats_from: int | None) -> str:
    """``0-9, 12, …``: the first few spans; ``from 100``: the last one, if nothing changes after it.

    Args:
        repeats_from: the step from which the plans repeat; None: they do not.
    """
    if spans == [(0, steps.stop - 1)]:
        return "all"
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    goes_on = spans[-1][1] == steps.stop - 1
    if goes_on and repeats_from is None:
        words[-1] = f"from {spans[-1][0]}"
    shown = words[:_MOST_SPANS]
    return ", ".join([*shown, "…"] if len(words) > _MOST_SPANS or (repeats_from is not None and spans[-1][1] >= repeats_from) else shown)
