"""``numscope config``: what a configuration says, before a run finds out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from numscope.cli.tables import plain_table
from numscope.cli.values import WholeNumber
from numscope.records.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from numscope.cli.subject import Subject
    from numscope.config import Resolved
    from numscope.config.plan import Collect, Plan, Switch
    from numscope.config.schedule import Schedule
    from numscope.config.selection import Selection
    from numscope.records.layer import Layer

WRONG = 2
FEATURES = click.option("--features", multiple=True, metavar="FILE|DIR", help="Statistics and features of your own; repeatable.")


@click.group(options_metavar="[options]", subcommand_metavar="COMMAND …", short_help="Check or explain a configuration.")
def config() -> None:
    """Check or explain a configuration of statistics (YAML)."""


@config.command(options_metavar="[options]", short_help="Say all that is wrong with it.")
@click.argument("file", metavar="FILE")
@FEATURES
@click.pass_context
def check(ctx: click.Context, file: str, features: tuple[str, ...]) -> None:
    """Check a configuration: all that is wrong with it, a line each. Exit status: 0 when nothing is, else 2."""
    plan = load(ctx, file, features)
    for note in plan.notes:
        click.echo(f"{file}: note: {note}")
    parts = [f"{len(plan.collects)} to collect", f"{len(plan.switches)} precision", f"{len(plan.customs)} of plug-ins"]
    click.echo(f"{file}: in order ({', '.join(parts)}).")


@config.command(options_metavar="[options]", short_help="What is collected where and when, and what that costs.")
@click.argument("file", metavar="FILE")
@click.option("--model", metavar="MODEL_OR_RUN", help="Whose layers: package.module:function, a transformers checkpoint, a run's folder.")
@click.option(
    "--tokens", type=WholeNumber(1), metavar="N", help="Tokens that one rank sees in a step, for the sizes of activations and gradients."
)
@click.option(
    "--recipe", metavar="NAME", help="What the model's GEMMs run by where no switch says otherwise (as it was converted, else delayed)."
)
@FEATURES
@click.pass_context
def explain(ctx: click.Context, file: str, model: str | None, tokens: int | None, recipe: str | None, features: tuple[str, ...]) -> None:
    """Show what a configuration collects, of which layers, at which steps, and about how many bytes that reads; with precision switches
    also what each layer's GEMMs run in.
    """
    plan = load(ctx, file, features)
    subject, resolved = None, None
    try:
        if recipe is not None and model is None:
            raise UsageError("--recipe: got one without --model, expected a model whose GEMMs run by it. Add --model MODEL_OR_RUN.")
        if model is not None:
            from numscope.cli.subject import subject_of
            from numscope.config import resolve

            subject = subject_of(model)
            resolved = resolve(plan, subject.layers)
    except UsageError as error:
        refuse(ctx, error)
    show(_table(plan, resolved, subject, tokens))
    if resolved is not None and subject is not None:
        _show_plans(ctx, resolved, subject, recipe)
    for line in _cost_lines(resolved, subject, tokens):
        click.echo(line)
    for note in (*plan.notes, *(resolved.notes if resolved is not None else ())):
        click.echo(f"note: {note.removeprefix(f'{plan.source}: ')}")


def _show_plans(ctx: click.Context, resolved: Resolved, subject: Subject, recipe: str | None) -> None:
    """What each layer's GEMMs run in, where a switch or the question asks for it."""
    from numscope.cli.plans import table_of
    from numscope.config.plan import PLAN_SWITCHES

    if recipe is None and not any(switch.feature in PLAN_SWITCHES for switch, _ in resolved.switches):
        return
    try:
        table = table_of(resolved, subject, recipe)
    except UsageError as error:
        refuse(ctx, error)
        return
    if table.rows:
        click.echo()
        show(table)


def load(ctx: click.Context, file: str, features: tuple[str, ...] = ()) -> Plan:
    """The plan of a file, and of files with features of the user's own; wrong ones end the command."""
    from numscope.config.planning import plan_of

    try:
        return plan_of(file, features)[0]
    except UsageError as error:
        refuse(ctx, error)
        raise  # for type checkers: refuse does not return


def refuse(ctx: click.Context, error: UsageError) -> None:
    """Ends the command with an error's lines as they are: each names its file."""
    click.echo(str(error), err=True)
    ctx.exit(WRONG)


def show(table: Table) -> None:
    """Prints a table; where it goes to a file, as wide as it needs."""
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=200, color_system=None)
    console.print(table)


# ------------------------------------------------------------------------------------------------------------ explain


def _table(plan: Plan, resolved: Resolved | None, subject: Subject | None, tokens: int | None) -> Table:
    from rich.text import Text

    from numscope.config.plan import Custom

    table = plain_table("section", "feature", "layers", "tensors", "statistics", "steps", "reads a scheduled step")
    collects = [(one, None) for one in plan.collects] if resolved is None else resolved.collects
    for collect, layers in collects:
        where = words_of(collect.selection) if layers is None else _names([layer.name for layer in layers])
        cost = "unknown without --model"
        if layers is not None and subject is not None:
            from numscope.cli.cost import cost_at_step

            cost = str(cost_at_step([(collect, layers)], subject, tokens))
        stats = _names([asked.label for asked in collect.stats], 8) + _manner(collect)
        row = (collect.section, collect.feature, where, ", ".join(collect.tensors), stats, steps_of(collect.schedule), cost)
        table.add_row(*map(Text, row))
    others: list[tuple[Switch | Custom, Sequence[Layer] | None]] = []
    if resolved is None:
        others += [*((one, None) for one in plan.switches), *((one, None) for one in plan.customs)]
    else:
        others += [*resolved.switches, *resolved.customs]
    for part, chosen in others:
        tensors = part.tensors if isinstance(part, Custom) else part.settings.get("tensors") or ()
        where = words_of(part.selection) if chosen is None else _names([layer.name for layer in chosen])
        row = (part.section, part.feature, where, ", ".join(tensors), _settings(part.settings), steps_of(part.schedule), "")
        table.add_row(*map(Text, row))
    return table


def _settings(settings: Mapping[str, Any]) -> str:
    """What a switch is told beside its tensors: ``gemms fprop, wgrad``; statistics by their names alone."""
    if "stats" in settings:
        return _names([asked.label for asked in settings["stats"]], 8)
    said = {key: value for key, value in settings.items() if key != "tensors" and value is not None and value is not False}
    return "; ".join(f"{key} {', '.join(value) if isinstance(value, tuple) else value}" for key, value in said.items())


def _manner(collect: Collect) -> str:
    said = []
    if collect.merge is not None:
        said.append(f"also merged by {collect.merge}")
    if not collect.reduce:
        said.append("each rank its own")
    if collect.evaluation:
        said.append("in evaluation too")
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
            " Activations, outputs and their gradients need --tokens N."
            if tokens is None
            else " Unknown: layers without a width of their own."
        )
    if further := _further_reads(collects):
        hint += f" Beside that one read of each tensor, {_names(further)} read theirs again."
    span = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    return [f"reads: {whole} at a step when all are scheduled, {average} a step on average over {span}, on one rank.{hint}"]


def _on_paper(resolved: Resolved) -> list[tuple[Collect, Sequence[Layer]]]:
    """Statistics of casts that nobody makes: those read their tensors; what GEMMs cast they count as they cast it."""
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
    """The statistics that the pass which all share does not give."""
    from numscope.summary.statistics import STATISTICS

    asked = {one.label: STATISTICS.get(one.statistic) for collect, _ in collects for one in collect.stats}
    own = {one.label: one.options for collect, _ in collects for one in collect.stats}
    return [label for label, statistic in asked.items() if statistic is not None and statistic.extra(own[label]) is not None]


def words_of(selection: Selection) -> str:
    """A selection in its own words."""
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
    spans = schedule.start_end_list or ((schedule.start_step, schedule.end_step),)
    if spans == ((0, None),):
        return every
    return f"{every}, {', '.join(f'from {first}' if last is None else f'{first} to {last}' for first, last in spans)}"


def _names(names: list[str], most: int = 3) -> str:
    """The first few, and how many there are."""
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])}, … ({len(names)})"
