"""The results of ``numscope precision`` as text and JSON."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from numscope.cli.bisecting import BisectionTask, BisectionVerdict
from numscope.precision.search.advise import Advice, Limits, Price, rows
from numscope.precision.search.kept import WHOLE
from numscope.precision.search.trials import AUTOCAST, Script

if TYPE_CHECKING:
    from rich.table import Table

# ------------------------------------------------------------------------------------------------------------- advise


def advice_table(advice: Advice, recipe: str) -> list[str]:
    """A line for each operand below its layer's name, so that the table fits in 80 columns with names of any length."""
    import click

    high: dict[str, list[str]] = {}
    for layer, gemm in advice.high:
        high.setdefault(layer, []).append(gemm)
    kept = {layer: f": keep {', '.join(gemms)} high" for layer, gemms in high.items()}
    cells = ("format", "SQNR", "sat. %", "zero %")
    lines = [f"{'layer':14}could take{'':21}under {recipe}", _line("operand", *cells, *cells)]
    for layer, rows_of in groupby(rows(advice), key=lambda row: row[0]):
        lines.append(click.style(f"{layer}{kept.get(layer, '')}", fg="red" if layer in high else None, bold=True))
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
    by = f"measured over {advice.num_steps} step{'' if advice.num_steps == 1 else 's'}"
    if not advice.high:
        return [f"All {advice.num_gemms} GEMMs can take {recipe} ({by}): none has to stay in high precision."]
    others = _would_take_current(advice)
    hint = f" {others} of the operands beyond the limits would do with current scaling: see --recipe current." if others else ""
    return [
        f"{len(advice.high)} of {advice.num_gemms} GEMMs should stay in high precision under {recipe} ({by}).{hint}",
        f"{output}: written. To train with it: {_command(script, '--recipe', recipe, '--config', output)}",
    ]


def _would_take_current(advice: Advice) -> int:
    return sum(bool(one.exceeds) and "delayed" in (one.planned or ("",))[0] and one.takes in ("e4m3", "e5m2") for one in advice.operands)


def advice_document(advice: Advice, limits: Limits, recipe: str, output: str) -> dict[str, Any]:
    """As JSON-ready values; infinity (of a cast that changes nothing) as text."""
    return {
        "recipe": recipe,
        "num_steps": advice.num_steps,
        "limits": {name: getattr(limits, name) for name in ("min_sqnr_db", "max_saturated_pct", "max_flushed_pct")},
        "operands": [
            {
                "layer": one.layer,
                "operand": one.operand,
                "takes": one.takes,
                "planned": None if one.planned is None else one.planned[0],
                "exceeds": list(one.exceeds),
                "formats": {key: _price(price) for key, price in one.prices.items()},
            }
            for one in advice.operands
        ],
        "high_precision": [{"layer": layer, "gemm": gemm} for layer, gemm in advice.high],
        "num_gemms": advice.num_gemms,
        "output": output if advice.high else None,
    }


def _price(price: Price) -> dict[str, float | str | None]:
    sqnr = price.sqnr_db
    plain = sqnr if sqnr is None or math.isfinite(sqnr) else str(sqnr)
    return {"sqnr_db": plain, "saturated_pct": price.saturated_pct, "flushed_pct": price.flushed_pct}


# ------------------------------------------------------------------------------------------------------------- bisect


def verdict_table(verdict: BisectionVerdict) -> Table:
    """The layers and GEMMs that should stay in high precision."""
    from rich.text import Text

    from numscope.cli.tables import plain_table

    table = plain_table("layer", "in high precision")
    gemms: dict[str, list[str]] = {}
    for layer, gemm in verdict.units:
        gemms.setdefault(layer, []).append("the whole layer" if gemm == WHOLE else gemm)
    for layer, kept in gemms.items():
        table.add_row(Text(layer), Text(", ".join(kept)))
    return table


def verdict_lines(verdict: BisectionVerdict, task: BisectionTask, output: str) -> list[str]:
    """The result in sentences."""
    words = {
        "found": _found,
        "within": _within,
        "incurable": _incurable,
        "budget": _budget,
        "reference": _reference,
        "reference budget": _budget,
        "nothing": _nothing,
    }
    lines = words[verdict.outcome](verdict, task)
    if verdict.units:
        features = (word for one in task.features for word in ("--features", one))
        command = _command(task.script, "--recipe", task.recipe, "--config", output, *features)
        lines.append(f"{output}: written. To train with it: {command}")
    if verdict.noise > 0:
        lines.append(f"Repeated runs in high precision differ by {100 * verdict.noise:.3g} %: tolerance {_tolerance(verdict)}.")
    return lines


def verdict_head(verdict: BisectionVerdict, task: BisectionTask) -> Sequence[str]:
    """The YAML's first lines."""
    sure = "none of them can be left out" if verdict.minimal else "the runs did not suffice to find the smallest set"
    return (
        f"numscope precision bisect: {len(verdict.units)} of {verdict.num_gemms} kept in high precision; {sure}.",
        f"Loss under {task.recipe}: {_signed(verdict.low)} without, {_signed(verdict.cured)} with it, of {verdict.loss:.5g} "
        f"in high precision, at {task.steps} steps.",
    )


def _found(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    count = len(verdict.units)
    unit = "layers" if task.recipe == AUTOCAST else "GEMMs"
    those = f"these {count} of {verdict.num_gemms} {unit}" if count > 1 else f"this one of {verdict.num_gemms} {unit}"
    needed = "None of them can be left out" if count > 1 else "It can't be left out"
    return [
        f"With {those} in high precision the loss is {_signed(verdict.cured)} from the run in high precision; "
        f"without, {_signed(verdict.low)} (tolerance {_tolerance(verdict)}).",
        f"{needed}, as trial runs showed. {verdict.num_runs} runs of {task.steps} steps.",
    ]


def _within(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    return [
        f"Nothing to find: under {task.recipe} the loss is {_signed(verdict.low)} from the run in high precision, within the tolerance of "
        f"{_tolerance(verdict)}.",
        f"If the run is bad nevertheless, precision is not the cause, or {task.steps} steps are too few to show it: see --steps.",
    ]


def _incurable(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    what = (
        f"all {verdict.num_layers} layers" if task.recipe == AUTOCAST else f"all {verdict.num_gemms} GEMMs of {verdict.num_layers} layers"
    )
    said = f"Keeping {what} in high precision does not cure it: {_signed(verdict.cured)} with, {_signed(verdict.low)} without"
    if task.recipe == AUTOCAST:
        why = "The cause is not in a layer's own call: autocast also casts operations between layers (attention's products, losses)."
    else:
        why = "The precision of these GEMMs is not the cause."
    return [f"{said} (tolerance {_tolerance(verdict)}).", why]


def _reference(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    return [
        "Even the run in high precision has a loss that is not finite: low precision is not the cause.",
        f"To find the first bad number: {_command(task.script)}",
    ]


def _budget(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    so_far = (
        f"The smallest set that has cured so far has {len(verdict.units)} of {verdict.num_gemms}; a smaller one may do."
        if verdict.units
        else "No set has cured so far."
    )
    return [f"The {task.runs} runs did not suffice. {so_far}", "The same command with a larger --runs continues from here."]


def _nothing(verdict: BisectionVerdict, task: BisectionTask) -> list[str]:
    if task.recipe == AUTOCAST:
        return ["No model with layers was called: there is nothing to keep in high precision."]
    return ["No layer computes in low precision: the script's models have no linear layer, or its configuration disables them all."]


def _signed(away: float) -> str:
    return f"{100 * away:+.3g} %" if math.isfinite(away) else "unknown" if math.isnan(away) else "not finite, or it ended early"


def _tolerance(verdict: BisectionVerdict) -> str:
    return f"{100 * verdict.tolerance:.3g} %"


def _command(script: Script, *options: str) -> str:
    """The command that runs the script with these options."""
    begin = (*script.launcher, "-m", "numscope") if script.launcher else ("numscope",)
    return shlex.join((*begin, "run", *options, *(("-m",) if script.is_module else ()), script.target, *script.args))
