"""``numscope diff``: where two runs, or two steps, begin to differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from numscope.cli.printing import put
from numscope.cli.values import json_option, listed, real
from numscope.records.errors import UsageError
from numscope.records.words import escape
from numscope.runs.comparison import compare, split_step
from numscope.runs.diff_text import text
from numscope.runs.divergence import STATS

if TYPE_CHECKING:
    from numscope.page.recorded import Differing

MOST_SHOWN = 200  # characters of a setting
DIVERGED = 1  # as diff(1) ends; 2 is wrong usage

NUM_MODULES, MOST_MODULES = 10, 1000  # listed as text; in JSON


@click.command(options_metavar="[options]")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--noise", multiple=True, metavar="RUN", help="A run that should equal A: their differences are noise. Repeatable.")
@click.option(
    "--tolerance",
    type=real("a number between 0 and 1, such as 1e-3", 0, 1),
    help="For all statistics, in place of what the runs' dtypes round; beside --noise, the least.",
)
@click.option("--stats", type=listed("NAME,NAME…", str), help="Statistics to compare (rms,mean,std,amax,abs_min,num_zero,num_nan,num_inf).")
@json_option("Write JSON instead of text")
def diff(a: str, b: str, noise: tuple[str, ...], tolerance: float | None, stats: tuple[str, ...] | None, json_to: str | None) -> int:
    """Compare the statistics of two runs over their common steps (A and B are run folders), or of two steps (both are RUN:STEP).

    Exit status: 0 no divergence above tolerance; 1 a divergence; 2 wrong usage.
    """
    top = NUM_MODULES if json_to is None else MOST_MODULES
    try:
        found = compare(a, b, noise=noise, tolerance=tolerance, stats=STATS if stats is None else stats, top=top)
    except UsageError as error:
        where, _, rest = str(error).partition(":")
        option = where.partition("[")[0] in ("noise", "tolerance", "stats")
        raise click.UsageError(f"{'--' if option else ''}{where}:{rest}") from None
    settings = _settings(a, b, None if found.first is None else found.first.step_a)
    if json_to is not None:
        told = {"settings": [{"name": name, "a": left, "b": right} for name, left, right in settings], **found.document()}
        put(json_to, told)
    else:
        for line in _settings_text(settings):
            click.echo(escape(line))
        click.echo(text(found), nl=False)
    return DIVERGED if found.diverged else 0


def _settings(a: str, b: str, diverged: int | None) -> Differing:
    """The settings that the runs were started with and that are not the same; empty for two steps of one run."""
    from numscope.page.recorded import differing, read_recorded
    from numscope.runs.folder import find_run
    from numscope.runs.optimizer_settings import differing_settings

    folders = [split_step(given)[0] for given in (a, b)]
    if folders[0] == folders[1]:
        return []
    return [*differing(*map(read_recorded, folders)), *differing_settings(find_run(folders[0]), find_run(folders[1]), diverged)]


def _settings_text(settings: Differing) -> Iterator[str]:
    if settings:
        yield "Settings that differ, A above B"
        width = max(len(name) for name, _, _ in settings)
        for name, left, right in settings:
            yield f"  {name:<{width}}  {_short(left)}"
            yield f"  {'':<{width}}  {_short(right)}"
        yield ""


def _short(value: str) -> str:
    """One line, of which what is too long is left out in the middle."""
    text = " ".join(value.split()) or "none"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN // 2]} … {text[-MOST_SHOWN // 2 :]}"
