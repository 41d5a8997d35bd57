"""``numscope run``: a training script, unchanged, under watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from numscope.cli.launch import Target, launch
from numscope.cli.preparing import recipe_option
from numscope.cli.torchwatch import TorchWatch
from numscope.cli.values import Batches, OneOf, OutputFile, OutputFolder, WholeNumber
from numscope.config.environment import switched_on
from numscope.config.options import LEVELS, ON_NONFINITE, WatchOptions
from numscope.records.errors import UsageError

USAGE = "numscope run [options] train.py ARGS…  or  numscope run [options] -m module ARGS…"
DEFAULT = WatchOptions()
OFF = "off"  # of --on-nonfinite, which WatchOptions calls None


@click.command(
    context_settings={"allow_interspersed_args": False},  # from the script's name on, every word is the script's
    options_metavar="[options]",
    short_help="Run a training script under watch.",
)
@click.option("-m", "is_module", is_flag=True, help="What follows is a module's name, as after python -m.")
@click.option("--config", metavar="FILE", help="Collect the statistics that this YAML file asks for.")
@click.option("--features", multiple=True, metavar="FILE|DIR", help="Statistics, features, loggers and rules of your own; repeatable.")
@recipe_option("Convert the models' linear layers to fp8 or fp4, by this recipe; autocast: keep the layers that --config names out of it.")
@click.option(
    "--on-nonfinite",
    type=OneOf(*ON_NONFINITE, OFF),
    metavar="|".join((*ON_NONFINITE, OFF)),
    help="Stop at a nan or inf that escapes (raise, the default), note it (warn), or collect statistics alone (off).",
)
@click.option("--level", metavar="|".join(LEVELS), help="Every module (modules, the default), or only the model as a whole: cheaper.")
@click.option("--trace", type=Batches(), metavar="N,N…", help="Print the ranges of all tensors in these batches; detect nothing.")
@click.option("--abort-after", type=WholeNumber(), help="Stop after this batch, counted from 0.")
@click.option("--frames", type=WholeNumber(), help=f"Module calls that the report shows, the last ones ({DEFAULT.frames}).")
@click.option("--max-scaler-skips", type=WholeNumber(), help=f"Steps in a row that a GradScaler may skip ({DEFAULT.max_scaler_skips}).")
@click.option("--json", type=OutputFile(), help="Write the findings to this file, for other programs.")
@click.option("--log-dir", type=OutputFolder(), help="Keep the run's records in this folder.")
@click.argument("target", metavar="train.py | -m module")
@click.argument("args", nargs=-1, type=click.UNPROCESSED, metavar="ARGS…")
def run(target: str, args: tuple[str, ...], is_module: bool, **options: Any) -> Callable[[], None]:
    """Run a training script as Python itself would, and stop it at the first nan or inf that reaches the loss, a gradient or a weight.

    Options stand before the script's name; all that follows it is the script's own. Under torchrun:

    torchrun --nproc-per-node 2 -m numscope run train.py ARGS…

    NV_DEBUG_TOOL_ENABLED=1 in the environment stands for --config $NV_DEBUG_TOOL_CONFIG and --log-dir $NV_DEBUG_TOOL_LOG_DIR.

    The script's child processes by multiprocessing are watched too. The last line says what was watched and what was not.

    Exit status: the script's own; 3 when numscope stopped it at a non-finite value; 2 for wrong usage.
    """
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    _add_switched(given)
    recipe = given.pop("recipe", None)
    if given.get("on_nonfinite") == OFF:
        if "config" not in given and recipe is None:
            raise click.UsageError(
                "--on-nonfinite: got 'off' without --config or --recipe, expected something to do. Add one of them, or leave it out."
            )
        given["on_nonfinite"] = None
    try:
        watch = TorchWatch(WatchOptions(**given), recipe)
    except UsageError as error:  # "frames: got 0, …" about the option --frames
        field, _, rest = str(error).partition(":")
        raise click.UsageError(f"--{field.replace('_', '-')}:{rest}") from None
    if "config" in given:
        _check(given["config"], given.get("features", ()))
    # The script runs after click has returned: click turns the script's KeyboardInterrupt into something else.
    return partial(launch, Target(target, args, is_module), watch)


def _add_switched(given: dict[str, Any]) -> None:
    """What NV_DEBUG_TOOL_… variables ask for, where no option of the same says otherwise."""
    try:
        switched = switched_on()
    except UsageError as error:
        raise click.UsageError(str(error)) from None
    if switched is not None:
        found = {"config": switched.config, "log_dir": switched.log_dir}
        given.update({name: value for name, value in found.items() if value is not None and name not in given})


def _check(config: str, features: Sequence[str]) -> None:
    """Refuse a wrong configuration before the script's first line, without torch unless a file of features imports it."""
    from numscope.config.planning import plan_of

    try:
        plan_of(config, features)
    except UsageError as error:
        lines = str(error).splitlines()
        raise click.UsageError(lines[0] if len(lines) == 1 else "\n  ".join((f"{len(lines)} errors:", *lines))) from None
