"""A comparison as text: what is not finite in one run alone, the first divergence and where it came from, modules by drift."""

from __future__ import annotations

import sys

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numscope.records.words import count, escape, few
from numscope.report.text import BAD, NAME, QUIET, Wide, apart, plain_text
from numscope.runs.verdicts import Diff, SiteDifference

NUM_NAMES = 6  # shown names of sites or steps that only one run has

_CALIBRATED = {
    "dtype": "the usual rounding of {dtype}",
    "tolerance": "--tolerance",
    "noise": "what {noise} shows to be noise",
    "earlier steps": "what the steps before change",
    "steps": "a factor of two: no earlier steps to calibrate by",
}


def text(diff: Diff, width: int | None = None) -> str:
    """The report as it is printed on stdout, with colors only on a terminal; that has its width, a pipe 80 or ``COLUMNS``."""
    return plain_text(render(diff), sys.stdout, width)


def render(diff: Diff) -> RenderableType:
    """The report, for any rich console."""
    return Group(*apart([_head(diff), _nonfinite(diff), _first(diff), _modules(diff), _steps(diff), _unaligned(diff)])[:-1])


def _head(diff: Diff) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("A", escape(f"{diff.a}  {diff.dtypes[0]}".rstrip()))
    grid.add_row("B", escape(f"{diff.b}  {diff.dtypes[1]}".rstrip()))
    sites = max((step.num_sites for step in diff.steps), default=0)
    ways = {how: sum(pair.how == how for pair in diff.pairs) for how in ("wrapper", "prefix", "order")}
    ways_text = "; ".join(f"{count} by {how}" for how, count in ways.items() if count)
    grid.add_row(
        "compared",
        f"{_steps_text(diff)}, {count(sites, 'site')} of {count(len(diff.pairs), 'layer')}" + (f" ({ways_text})" if ways_text else ""),
    )
    dtype = f"{diff.dtypes[0]} against {diff.dtypes[1]}" if diff.dtypes[0] != diff.dtypes[1] else diff.dtypes[0]
    grid.add_row("tolerance", escape(_CALIBRATED[diff.calibration].format(dtype=dtype or "merged dtypes", noise=" and ".join(diff.noise))))
    if diff.factors:
        low, high = min(f for _, f in diff.factors), max(f for _, f in diff.factors)
        amount = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        grid.add_row("loss scale", f"B's gradients are {amount} times A's throughout, at {count(len(diff.factors), 'step')}: taken out")
    return [grid]


def _steps_text(diff: Diff) -> str:
    steps = diff.steps
    if len(steps) == 1:
        one = steps[0]
        return f"step {one.step_a}" if one.step_a == one.step_b else f"step {one.step_a} with step {one.step_b}"
    return f"{len(steps)} steps, {steps[0].step_a} to {steps[-1].step_a}"


def _site(difference: SiteDifference) -> Text:
    text = Text(f"step {difference.step_a}")
    if difference.step_b != difference.step_a:
        text.append(f" with {difference.step_b}")
    text.append("  ")
    text.append(escape(difference.layer_a), style=NAME)
    if difference.layer_b != difference.layer_a:
        text.append(f" ({escape(difference.layer_b)} in B)")
    text.append(f"  {escape(difference.cls)} {escape(difference.tensor)}".replace("  ", " ", 1 if not difference.cls else 0))
    return text


def _nonfinite(diff: Diff) -> list[RenderableType]:
    if not diff.nonfinite:
        return []
    more = f", the first {len(diff.nonfinite)}" if diff.num_nonfinite > len(diff.nonfinite) else ""
    lines: list[RenderableType] = [Text(f"Not finite in one run alone: {count(diff.num_nonfinite, 'site')}{more}", style=BAD)]
    for difference in diff.nonfinite:
        side = difference.nonfinite_in
        numel = difference.numel_a if side == "a" else difference.numel_b
        shares = {m.statistic: getattr(m, side) or 0.0 for m in difference.measures}
        counts = [f"{round(shares[key] * numel):,} {word}" for key, word in (("num_nan", "nan"), ("num_inf", "inf")) if shares[key]]
        text = Text("  ") + _site(difference)
        text.append(f": {', '.join(counts)} of {numel:,} in {side.upper()}")
        lines.append(text)
    return lines


def _first(diff: Diff) -> list[RenderableType]:
    if diff.first is None:
        if diff.first_unequal is None:
            return [Text("Equal: every stored number of every site, bit for bit.", style="bold green")]
        text = Text("No divergence above tolerance.", style="bold green")
        text.append("\nFirst unequal number: ", style="not bold default")
        return [text + _site(diff.first_unequal)]
    head = Text("First divergence: ", style=BAD)
    head.append_text(Text("", style="not bold default") + _site(diff.first))
    table = Table(box=None, padding=(0, 2, 0, 2), pad_edge=False, header_style="bold")
    table.add_column("  statistic")
    for name in ("A", "B", "divergence", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in sorted(diff.first.measures, key=lambda m: -(m.divergence or 0.0) / m.tolerance):
        if m.statistic not in diff.stats or not m.divergence:
            continue
        divergence = Text(f"{m.divergence:.2e}", style=BAD if m.divergence > m.tolerance else "")
        table.add_row(f"  {m.statistic}", _value(m.a), _value(m.b), divergence, f"{m.tolerance:.2e}")
    lines: list[RenderableType] = [head, table, *([Text(f"  Sketches: {diff.likeness}.")] if diff.likeness else [])]
    lines.append(Text("  " + escape(_story(diff))))
    agree = [step.step_a for step in diff.steps if step.step_a < diff.first.step_a]
    if agree:
        where = f"{agree[0]:,}" if len(agree) == 1 else f"{agree[0]:,} to {agree[-1]:,}"
        lines.append(Text(f"  Before it the runs agree, at step {where}.", style=QUIET))
    if diff.first_unequal is not None and diff.first_unequal != diff.first:
        lines.append(Text("  First unequal number, within tolerance: ", style=QUIET) + _site(diff.first_unequal))
    return lines


def _story(diff: Diff) -> str:
    first, origin = diff.first, diff.origin
    if first is None or origin is None:
        return ""
    kind = first.tensor.partition("[")[0]
    if origin.verdict == "module":
        agreeing = " and ".join(name for name in origin.inputs)
        return f"Origin: {first.layer_a} itself. Its {agreeing} agree{'' if len(origin.inputs) > 1 else 's'}, its {first.tensor} does not."
    if origin.verdict == "weight":
        before = "" if kind == "weight" else f" Its {', '.join(n for n, s in origin.inputs.items() if s <= 1) or 'input'} agrees."
        return f"Origin: the weight of {first.layer_a}, which differs at this step already.{before}"
    this = f"{first.layer_a} {first.tensor}"
    if origin.after is None:
        story = f"Origin: before {this}, where nothing was observed: in the data, or in what comes first."
    else:
        story = f"Origin: between {origin.after}, which agrees, and {this}, where nothing was observed."
    if origin.verdict == "unknown":
        story = f"Origin: {first.layer_a} itself, or what it read, which was not observed."
    if origin.weights:
        story += f" Weights that differ at this step: {', '.join(origin.weights)}."
    return story


def _modules(diff: Diff) -> list[RenderableType]:
    if not diff.modules:
        return []
    when = f" at step {diff.first.step_a}" if diff.first is not None else ""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("  module", style=NAME)
    table.add_column("class")
    table.add_column("way")
    for name in ("step", "read", "weight", "made", "drift"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in diff.modules:
        severities = ("-" if severity is None else _times(severity) for severity in (m.read, m.weight, m.made))
        table.add_row(f"  {escape(m.layer_a)}", escape(m.cls), m.direction, str(m.step_a), *severities, f"{m.bits:+.1f}")
    return [
        Text(f"Modules by drift{when}", style="bold"),
        Wide(table),
        Text("  read, weight, made: divergence over tolerance; drift: powers of two that the module adds", style=QUIET),
    ]


def _steps(diff: Diff) -> list[RenderableType]:
    bad = [step for step in diff.steps if step.num_diverging]
    if not bad or len(diff.steps) == 1:
        return []
    shown = bad if len(bad) <= 5 else [*bad[:3], *bad[-2:]]
    parts = [f"{step.step_a}: {step.num_diverging} of {step.num_sites}" for step in shown]
    if len(shown) < len(bad):
        parts.insert(3, "…")
    return [Text("Diverging sites by step: ", style="bold") + Text(", ".join(parts), style="not bold")]


def _unaligned(diff: Diff) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for side, names, steps in (("A", diff.only_a, diff.steps_only_a), ("B", diff.only_b, diff.steps_only_b)):
        for what, found in (("site", names), ("step", tuple(map(str, steps)))):
            if found:
                lines.append(Text(f"In {side} alone, {count(len(found), what)}: {escape(few(found, NUM_NAMES))}", style=QUIET))
    return lines


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _times(severity: float) -> str:
    return f"{severity:.2g}" if severity < 1000 else f"{severity:.1e}"
