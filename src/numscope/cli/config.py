"""``numscope config``: checks and explains a configuration before it is used in a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.printing import add_row, plain_table, say, show
from numscope.cli.values import whole_number
from numscope.records.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from numscope.cli.subject import Subject
    from numscope.config import Resolved
    from numscope.config.plan import Collect, Plan, PluginFeature, Schedule, Selection, Switch
    from numscope.records.layer import Layer

WRONG = 2
FEATURES = click.option("--features", multiple=True, metavar="FILE|DIR", help="Your own statistics and features; repeatable.")


def refusing(command: Callable[..., None]) -> Callable[..., None]:
    """A UsageError ends the command: its lines are printed unchanged, as each names its file."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
        except UsageError as error:
            say(error, err=True)
            click.get_current_context().exit(WRONG)

    return run


@click.group(options_metavar="[options]", subcommand_metavar="COMMAND …")
def config() -> None:
    """Check or explain a configuration of statistics (YAML)."""


@config.command(options_metavar="[options]", short_help="Report all errors.")
@click.argument("file", metavar="FILE")
@FEATURES
@refusing
def check(file: str, features: tuple[str, ...]) -> None:
    """Check a configuration and print all errors, one per line. Exit status: 0 without errors, else 2."""
    plan = load(file, features)
    for note in plan.notes:
        say(f"{file}: note: {note}")
    parts = [f"{len(plan.collects)} to collect", f"{len(plan.switches)} precision", f"{len(plan.customs)} of plug-ins"]
    say(f"{file}: valid ({', '.join(parts)}).")


@config.command(options_metavar="[options]", short_help="Show what is collected where and when, and its cost.")
@click.argument("file", metavar="FILE")
@click.option(
    "--model", metavar="MODEL_OR_RUN", help="Where the layers come from: package.module:function, a transformers checkpoint, a run."
)
@click.option(
    "--tokens", type=whole_number(1), metavar="N", help="Tokens per step and rank, to compute the sizes of activations and gradients."
)
@click.option("--recipe", metavar="NAME", help="Recipe of the model's GEMMs unless a switch changes it (as converted, else delayed).")
@FEATURES
@refusing
def explain(file: str, model: str | None, tokens: int | None, recipe: str | None, features: tuple[str, ...]) -> None:
    """Show what a configuration collects, of which layers, at which steps, and about how many bytes that reads; with precision switches
    also the formats of each layer's GEMMs.
    """
    plan = load(file, features)
    subject, resolved, plans = None, None, None
    if recipe is not None and model is None:
        raise UsageError("--recipe: given without --model, expected a model whose GEMMs use it. Add --model MODEL_OR_RUN.")
    if model is not None:
        from numscope.cli.plans import table_of
        from numscope.cli.subject import subject_of
        from numscope.config import resolve
        from numscope.config.features import PLAN_SWITCHES

        subject = subject_of(model)
        resolved = resolve(plan, subject.layers)
        if recipe is not None or any(switch.feature in PLAN_SWITCHES for switch, _ in resolved.switches):
            plans = table_of(resolved, subject, recipe)
    show(_table(plan, resolved, subject, tokens))
    if plans is not None and plans.rows:
        say("")
        show(plans)
    for line in _cost_lines(resolved, subject, tokens):
        say(line)
    for note in (*plan.notes, *(resolved.notes if resolved is not None else ())):
        say(f"note: {note.removeprefix(f'{plan.source}: ')}")


def load(file: str, features: tuple[str, ...] = ()) -> Plan:
    """The plan of a configuration and of files with the user's own features."""
    from numscope.config.loading import plan_of

    return plan_of(file, features)[0]


def _table(plan: Plan, resolved: Resolved | None, subject: Subject | None, tokens: int | None) -> Table:
    from numscope.cli.cost import cost_at_step
    from numscope.config.plan import Collect, Switch

    table = plain_table("section", "feature", "layers", "tensors", "statistics", "steps", "reads per scheduled step")
    parts: list[tuple[Collect | Switch | PluginFeature, Sequence[Layer] | None]]
    if resolved is None:
        parts = [(one, None) for one in plan.parts]
    else:
        parts = [*resolved.collects, *resolved.switches, *resolved.customs]
    for part, layers in parts:
        where = words_of(part.selection) if layers is None else _names([layer.name for layer in layers])
        cost = ""
        if isinstance(part, Collect):
            tensors, what = part.tensors, _names([asked.label for asked in part.stats], 8) + _manner(part)
            cost = "unknown without --model"
            if layers is not None and subject is not None:
                cost = str(cost_at_step([(part, layers)], subject, tokens))
        else:
            tensors, what = (part.settings.get("tensors") or ()) if isinstance(part, Switch) else part.tensors, _settings(part.settings)
        row = (part.section, part.feature, where, ", ".join(tensors), what, steps_of(part.schedule), cost)
        add_row(table, *row)
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


def _cost_lines(resolved: Resolved | None, subject: Subject | None, tokens: int | None) -> list[str]:
    if resolved is None or subject is None:
        return ["reads: unknown without --model MODEL_OR_RUN."]
    collects = [*resolved.collects, *_on_paper(resolved)]
    if not collects:
        return ["reads: nothing."]
    from numscope.cli.cost import average_cost, cost_at_step

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


def _on_paper(resolved: Resolved) -> list[tuple[Collect, Sequence[Layer]]]:
    """Statistics of casts on paper, which read their tensors. Casts that GEMMs make are counted as they are made, without a read."""
    if not any("stats" in switch.settings for switch, _ in resolved.switches):
        return []
    from numscope.config.plan import Collect
    from numscope.precision.gemm.counting import split

    return [
        (Collect(one.section, one.feature, one.selection, one.schedule, one.settings["tensors"], stats), layers)
        for one, layers in resolved.switches
        if "stats" in one.settings and (stats := split(one, None)[1])
    ]


def _further_reads(collects: Sequence[tuple[Collect, Sequence[Layer]]]) -> list[str]:
    """The statistics that need more than the shared pass."""
    from numscope.summary.statistics import STATISTICS, extra_of

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
