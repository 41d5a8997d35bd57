"""What a configuration's switches make of each layer's GEMMs, as a table: layers by fprop, dgrad, wgrad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from numscope.cli.config import plain_table
from numscope.cli.cost import window
from numscope.plan.schedule import Schedule

if TYPE_CHECKING:
    from rich.table import Table

    from numscope.config import Resolved
    from numscope.plan.plan import Layer
    from numscope.precision.gemms import LayerPlan

DEFAULT_RECIPE = "delayed"  # of fp8 training where nothing else is said
SWITCHES = ("disable_fp8_layer", "disable_fp8_gemm", "fake_quant", "per_tensor_scaling")  # as precision/switching.py, which loads torch
_MOST_SPANS = 3


def table_of(resolved: Resolved, layers: Iterable[Layer], recipe: str | None) -> Table:
    """A row a layer, or several where its plan changes with the steps.

    Args:
        resolved: on the model's layers.
        layers: those that compute GEMMs.
        recipe: that they are converted by; None: ``DEFAULT_RECIPE``.

    Raises: UsageError of a recipe that is not known.
    """
    from rich.text import Text

    from numscope.precision.gemms import GEMMS
    from numscope.precision.recipes import recipe_of
    from numscope.precision.switching import by_layer, phases

    default = recipe_of(recipe or DEFAULT_RECIPE, "--recipe").plan()
    switches = by_layer(resolved.switches)
    schedules = {switch.schedule for found in switches.values() for switch in found}
    steps, repeats = _steps(schedules), any(one.freq > 1 and _is_endless(one) for one in schedules)
    known: dict[tuple[int, ...], list[tuple[LayerPlan, list[tuple[int, int]]]]] = {}  # layers that are switched alike
    table = plain_table("layer", "class", "steps", *GEMMS)
    for layer in layers:
        mine = switches.get(layer, [])
        key = tuple(map(id, mine))
        if key not in known:
            known[key] = phases(default, mine, steps)
        for plan, spans in known[key]:
            table.add_row(*map(Text, (layer.name, layer.cls, _words(spans, steps, repeats), *(_gemm(plan, gemm) for gemm in GEMMS))))
    return table


def _steps(schedules: set[Schedule]) -> range:
    """From the first step to where all that changes has changed, and each period has come twice."""
    steps = window(schedules | {Schedule()})
    return range(0, max(steps.stop + 1, 2 * len(steps) + steps.start))


def _is_endless(schedule: Schedule) -> bool:
    spans = schedule.start_end_list or ((schedule.start_step, schedule.end_step),)
    return any(last is None for _, last in spans)


def _gemm(plan: LayerPlan, gemm: str) -> str:
    """``e4m3fn delayed`` where both operands are alike, ``e5m2 delayed × e4m3fn delayed`` where not."""
    words = ["high" if how is None else how.text() for (of, _), how in plan.items() if of == gemm]
    if words == ["high", "high"]:
        return "high precision"
    return words[0] if words[0] == words[1] else " × ".join(words)


def _words(spans: Sequence[tuple[int, int]], steps: range, repeats: bool) -> str:
    """``0-9, 12, …``: the first few spans; ``from 100``: the last one, where nothing changes any more."""
    if spans == [(0, steps.stop - 1)]:
        return "all"
    words = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    goes_on = spans[-1][1] == steps.stop - 1
    if goes_on and not repeats:
        words[-1] = f"from {spans[-1][0]}"
    shown = words[:_MOST_SPANS]
    return ", ".join([*shown, "…"] if len(words) > _MOST_SPANS or repeats else shown)
