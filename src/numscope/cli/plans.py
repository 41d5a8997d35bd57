"""The formats of each layer's GEMMs under a configuration's switches, as a table: layers by fprop, dgrad, wgrad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from numscope.cli.cost import window
from numscope.cli.printing import add_row, plain_table
from numscope.config.plan import Schedule

if TYPE_CHECKING:
    from rich.table import Table

    from numscope.cli.subject import Subject
    from numscope.config import Resolved
    from numscope.precision.casting.scaling import How
    from numscope.precision.gemm.plan import LayerPlan
    from numscope.precision.gemm.switching import Phase

DEFAULT_RECIPE = "delayed"
_MOST_SPANS = 3


def table_of(resolved: Resolved, subject: Subject, recipe: str | None) -> Table:
    """One row per layer, or several if its plan changes with the steps; recipe None: that of a converted layer, else ``DEFAULT_RECIPE``.

    Raises: UsageError if the recipe is unknown.
    """
    from numscope.precision.gemm.recipes import recipe_of
    from numscope.precision.gemm.switching import by_layer, phases
    from numscope.records.layer import GEMMS

    usual = recipe_of(recipe or DEFAULT_RECIPE, "--recipe").plan()
    switches = by_layer(resolved.switches)
    schedules = {switch.schedule for found in switches.values() for switch in found}
    steps, repeats = _steps(schedules), any(one.freq > 1 and (None in (last for _, last in one.spans)) for one in schedules)
    last = steps.stop - len(window(schedules | {Schedule()}))  # from here on the plans repeat
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
            add_row(table, layer.name, layer.cls, _words(spans, steps, last if repeats else None), *cells)
    return table


def _steps(schedules: set[Schedule]) -> range:
    """From the first step until everything that changes has changed, and each period has come twice."""
    steps = window(schedules | {Schedule()})
    return range(0, max(steps.stop + 1, 2 * len(steps) + steps.start))


def _gemm(plan: LayerPlan, gemm: str, results: Mapping[str, How]) -> str:
    """``e4m3fn delayed`` if both operands are alike, else ``e5m2 delayed × e4m3fn delayed``; with ``→ …`` if the result is cast."""
    from numscope.precision.gemm.switching import RESULTS

    words = ["high" if how is None else how.text() for (of, _), how in plan.items() if of == gemm]
    text = "high precision" if words == ["high", "high"] else words[0] if words[0] == words[1] else " × ".join(words)
    return text + "".join(f" → {how.text()}" for result, how in results.items() if RESULTS[result] == gemm)


def _words(spans: Sequence[tuple[int, int]], steps: range, repeats_from: int | None) -> str:
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
