"""``numscope layers``: the layers of a model or a run, and those that a configuration selects."""

from __future__ import annotations

import click

from numscope.cli.config import FEATURES, refusing
from numscope.cli.printing import add_row, plain_table, say, show
from numscope.cli.subject import subject_of
from numscope.config import resolve
from numscope.config.loading import plan_of
from numscope.config.plan import Plan, number_of
from numscope.records.layer import Layer


@click.command(options_metavar="[options]")
@click.argument("subject", metavar="MODEL_OR_RUN")
@click.option("--config", "file", metavar="FILE", help="Also show the section that selects each layer.")
@FEATURES
@refusing
def layers(subject: str, file: str | None, features: tuple[str, ...]) -> None:
    """List the layers of a model or a run, with the layer numbers that selections use.

    MODEL_OR_RUN is package.module:function, a transformers checkpoint's folder or name (no weights are read), or a run's folder.

    Exit status: 2 if a section of the configuration selects nothing, or two sections contradict each other.
    """
    plan = None if file is None else plan_of(file, features)[0]
    found = subject_of(subject).layers
    _show(found, plan)
    for note in resolve(plan, found).notes if plan is not None else ():
        say(f"note: {note}")


def _show(layers: list[Layer], plan: Plan | None) -> None:
    selections = dict.fromkeys((part.section, part.selection) for part in (plan.parts if plan is not None else ()))
    table = plain_table("number", "name", "class", *(["selected by"] if plan is not None else []))
    shown = chosen = 0
    for layer in layers:
        by = dict.fromkeys(section for section, selection in selections if selection.selects(layer))
        if not (layer.owns_parameters or by):
            continue
        number = number_of(layer.name)
        row = ["" if number is None else str(number), layer.name, layer.cls, *([", ".join(by)] if plan is not None else [])]
        add_row(table, *row)
        shown, chosen = shown + 1, chosen + bool(by)
    show(table)
    say(f"{shown} layers" + (f", {chosen} selected" if plan is not None else ""))
