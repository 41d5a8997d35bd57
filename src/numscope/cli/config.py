"""``numscope config``: checks and explains a configuration before it is used in a run."""

from __future__ import annotations

import logging
import shlex
from typing import Any

import click

from numscope.cli.explanation import cost_lines, explanation_document, gemm_table, plan_table
from numscope.cli.printing import SCHEMA_VERSION, cells, note, put, say, show
from numscope.cli.subject import subject_of
from numscope.cli.values import json_option, whole_number
from numscope.config import resolve
from numscope.config.features import PLAN_SWITCHES
from numscope.config.loading import plan_of
from numscope.config.plan import Plan
from numscope.records.errors import UsageError
from numscope.records.words import count as plural
from numscope.records.words import escape

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
    asks = ", ".join(plural(len(parts), what) for what, parts in counts.items() if parts) or "nothing"
    say(f"{file}: valid. It asks for {asks}.")
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
