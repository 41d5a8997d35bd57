"""The results of ``numscope precision`` as text and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click
from rich.table import Table

from numscope.cli.bisection import BisectionTask, BisectionVerdict, percent
from numscope.cli.printing import add_row, plain_table
from numscope.precision.search.advise import Advice, Limits, rows
from numscope.precision.search.sections import WHOLE
from numscope.precision.search.trials import AUTOCAST, Script
from numscope.records.finding import plain
from numscope.records.words import count, escape

_UNITS = "SQNR in dB; sat. %: elements that are clipped; zero %: those that become 0"


def advice_table(advice: Advice, recipe: str) -> list[str]:
    """A line for each operand below its layer's name, so that the table fits in 80 columns with names of any length."""
    high: dict[str, list[str]] = {}
    for layer, gemm in advice.high:
        high.setdefault(layer, []).append(gemm)
    kept = {layer: f": keep {', '.join(gemms)} high" for layer, gemms in high.items()}
    cells = ("format", "SQNR", "sat. %", "zero %")
    lines = [f"{'layer':14}could take{'':21}under {recipe}", _line("operand", *cells, *cells)]
    for layer, rows_of in groupby(rows(advice), key=lambda row: row[0]):
        lines.append(click.style(f"{escape(layer)}{kept.get(layer, '')}", fg="red" if layer in high else None, bold=True))
        for _, operand, takes, *numbers, exceeds in rows_of:
            form, *along = numbers[3].split()
            numbers[3] = f"{form} cols" if along[-2:] == ["along", "columns"] else form
            lines.append(_line(operand, takes, *numbers))
            if exceeds:
                lines.append(click.style(f"    too much under {recipe}: {exceeds}", fg="red"))
    return lines


def _line(operand: str, takes: str, *numbers: str) -> str:
    sqnr, saturated, flushed, form, *under = numbers
    first = f"  {operand:10}  {takes:6}  {sqnr:>5}  {saturated:>6}  {flushed:>6}"
    return f"{first}  {form:11}  {under[0]:>5}  {under[1]:>6}  {under[2]:>6}".rstrip()


def advice_lines(advice: Advice, script: Script, recipe: str, output: str) -> list[str]:
    """The conclusions, below the table."""
    by = f"measured over {count(advice.num_steps, 'step')}"
    if not advice.high:
        return [
            _UNITS,
            f"All {advice.num_gemms} GEMMs can take {recipe} ({by}): none has to stay in high precision, so no YAML was written.",
            f"To train with it: {_command(script, '--recipe', recipe)}",
        ]
    others = sum(bool(one.exceeds) and "delayed" in (one.planned or ("",))[0] and one.takes in ("e4m3", "e5m2") for one in advice.operands)
    hint = f" {others} of the operands beyond the limits would do with current scaling: see --recipe current." if others else ""
    return [
        _UNITS,
        f"{len(advice.high)} of {advice.num_gemms} GEMMs should stay in high precision under {recipe} ({by}).{hint}",
        f"{output}: written. To train with it: {_command(script, '--recipe', recipe, '--config', output)}",
    ]


def advice_document(advice: Advice, limits: Limits, recipe: str, output: str) -> dict[str, Any]:
    """As JSON-ready values; infinity (of a cast that changes nothing) as text."""
    return {
        "recipe": recipe,
        "num_steps": advice.num_steps,
        "limits": plain(limits),
        "operands": [
            {
                "layer": one.layer,
                "operand": one.operand,
                "takes": one.takes,
                "planned": None if one.planned is None else one.planned[0],
                "exceeds": list(one.exceeds),
                "formats": plain(one.prices),
            }
            for one in advice.operands
        ],
        "high_precision": [{"layer": layer, "gemm": gemm} for layer, gemm in advice.high],
        "num_gemms": advice.num_gemms,
        "output": output if advice.high else None,
    }


def verdict_table(verdict: BisectionVerdict) -> Table:
    """The layers and GEMMs that should stay in high precision."""
    table = plain_table("layer", "in high precision")
    gemms: dict[str, list[str]] = {}
    for layer, gemm in verdict.units:
        gemms.setdefault(layer, []).append("the whole layer" if gemm == WHOLE else gemm)
    for layer, kept in gemms.items():
        add_row(table, layer, ", ".join(kept))
    return table


def verdict_lines(verdict: BisectionVerdict, task: BisectionTask, output: str) -> list[str]:
    """The result in sentences."""
    is_autocast, tolerance = task.recipe == AUTOCAST, f"{100 * verdict.tolerance:.3g} %"
    low, cured, all_gemms = percent(verdict.drift), percent(verdict.drift_with_high_precision), verdict.num_gemms
    match verdict.outcome:
        case "found":
            count, unit = len(verdict.units), "layers" if is_autocast else "GEMMs"
            those, needed = (f"these {count}", "None of them can") if count > 1 else ("this one", "It can't")
            lines = [
                f"With {those} of {all_gemms} {unit} in high precision the loss is {cured} from the run in high precision; "
                f"without, {low} (tolerance {tolerance}).",
                f"{needed} be left out, as trial runs showed. {verdict.num_runs} runs of {task.steps} steps.",
            ]
        case "within":
            lines = [
                f"Nothing to find: under {task.recipe} the loss is {low} from the run in high precision, "
                f"within the tolerance of {tolerance}.",
                f"If the run is bad nevertheless, precision is not the cause, or {task.steps} steps are too few to show it: see --steps.",
            ]
        case "incurable":
            what, why = f"{all_gemms} GEMMs of {verdict.num_layers} layers", "The precision of these GEMMs is not the cause."
            if is_autocast:
                what = f"{verdict.num_layers} layers"
                why = (
                    "The cause is not in a layer's own call: autocast also casts operations between layers (attention's products, losses)."
                )
            lines = [f"Keeping all {what} in high precision does not cure it: {cured} with, {low} without (tolerance {tolerance}).", why]
        case "reference":
            lines = [
                "Even the run in high precision has a loss that is not finite: low precision is not the cause.",
                f"To find the first bad number: {_command(task.script)}",
            ]
        case "nothing" if is_autocast:
            lines = ["No model with layers was called: there is nothing to keep in high precision."]
        case "nothing":
            lines = [
                "No layer computes in low precision: the script's models have no linear layer, or its configuration disables them all."
            ]
        case _:  # the budget was used up
            so_far = "No set has cured so far."
            if count := len(verdict.units):
                so_far = f"The smallest set that has cured so far has {count} of {all_gemms}; a smaller one may do."
            lines = [
                f"The {task.runs} runs did not suffice. {so_far}",
                "The same command with larger runs in the file of --settings continues from here.",
            ]
    if verdict.units:
        features = (word for one in task.features for word in ("--features", one))
        command = _command(task.script, "--recipe", task.recipe, "--config", output, *features)
        lines.append(f"{output}: written. To train with it: {command}")
    if verdict.reference_noise > 0:
        lines.append(f"Repeated runs in high precision differ by {100 * verdict.reference_noise:.3g} %: tolerance {tolerance}.")
    return lines


def verdict_head(verdict: BisectionVerdict, task: BisectionTask) -> Sequence[str]:
    """The YAML's first lines."""
    sure = "none of them can be left out" if verdict.minimal else "the runs did not suffice to find the smallest set"
    return (
        f"numscope precision bisect: {len(verdict.units)} of {verdict.num_gemms} kept in high precision; {sure}.",
        f"Loss under {task.recipe}: {percent(verdict.drift)} without, {percent(verdict.drift_with_high_precision)} with it, "
        f"of {verdict.reference_loss:.5g} in high precision, at {task.steps} steps.",
    )


def _command(script: Script, *options: str) -> str:
    """The command that runs the script with these options."""
    begin = (*script.launcher, "-m", "numscope") if script.launcher else ("numscope",)
    return shlex.join((*begin, "run", *options, *(("-m",) if script.is_module else ()), script.target, *script.args))
