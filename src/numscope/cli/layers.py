"""``numscope layers``: the layers of a model or a run, and those that a configuration selects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from numscope.cli.config import FEATURES, plan_in
from numscope.cli.printing import SCHEMA_VERSION, add_row, plain_table, put, say, show
from numscope.cli.subject import subject_of
from numscope.cli.values import json_option
from numscope.config import resolve
from numscope.config.plan import Plan, number_of
from numscope.records.layer import Layer


@click.command(options_metavar="[options]")
@click.argument("subject", metavar="MODEL_OR_RUN")
@click.option("--config", "file", metavar="FILE", help="Also show the section that selects each layer.")
@json_option("Write JSON instead of the table")
@FEATURES
def layers(subject: str, file: str | None, json_to: str | None, features: tuple[str, ...]) -> None:
    """List the layers of a model or a run, with the layer numbers that selections use.

    MODEL_OR_RUN is package.module:function, a transformers checkpoint's folder or name (no weights are read), or a run's folder.

    Exit status: 2 if a section of the configuration selects nothing, or two sections contradict each other.
    """
    plan = None if file is None else plan_in(file, features)
    found = subject_of(subject).layers
    rows = list(_rows(found, plan))
    if json_to is not None:
        notes = list(resolve(plan, found).notes) if plan is not None else []
        put(json_to, {"schema_version": SCHEMA_VERSION, "layers": rows, "notes": notes})
        return
    table = plain_table("number", "name", "class", *(["selected by"] if plan is not None else []))
    for row in rows:
        number = "" if row["number"] is None else str(row["number"])
        add_row(table, number, row["name"], row["class"], *([", ".join(row["selected_by"])] if plan is not None else []))
    show(table)
    say(f"{len(rows)} layers" + (f", {sum(bool(row['selected_by']) for row in rows)} selected" if plan is not None else ""))
    for text in resolve(plan, found).notes if plan is not None else ():
        say(f"note: {text}")


def _rows(layers: list[Layer], plan: Plan | None) -> Iterator[dict[str, Any]]:
    """The layers that have weights, or that a section selects, as JSON has them."""
    selections = dict.fromkeys((part.section, part.selection) for part in (plan.parts if plan is not None else ()))
    for layer in layers:
        by = list(dict.fromkeys(section for section, selection in selections if selection.selects(layer)))
        if layer.owns_parameters or by:
            row = {"number": number_of(layer.name), "name": layer.name, "class": layer.cls, "weights": list(layer.weights)}
            yield {**row, "weight_bytes": layer.weight_bytes, "selected_by": by}
