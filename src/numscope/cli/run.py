"""``numscope run``: a training script, unchanged, under watch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import click

from numscope.cli.preparing import SCRIPT_WORDS, recipe_option, takes_script
from numscope.cli.printing import note
from numscope.cli.script import Target, launch
from numscope.cli.torchwatch import TorchWatch
from numscope.cli.values import OUTPUT_FILE, OUTPUT_FOLDER, Expected, Value, listed, one_of, whole_number, writable
from numscope.config.alert_plan import MODES
from numscope.config.options import LEVELS, ON_NONFINITE, WatchOptions, switched_on
from numscope.records.errors import UsageError
from numscope.records.words import nearest
from numscope.sinks.destinations import destination
from numscope.storage.address import is_address

REFUSED = 2  # the status of a script that argparse has ended
USAGE = "numscope run [options] train.py ARGS…  or  numscope run [options] -m module ARGS…"


def _alerts(text: str) -> str | Mapping[str, Any]:
    """A mode, or rules as a configuration has them below ``alerts``, without the outer braces."""
    words = (*MODES, "warn")
    if text in words:
        return text
    import yaml  # up to 0.1 s, of which a run with a mode has no use

    try:
        given: dict[str, Any] | None = yaml.safe_load(f"{{{text}}}")
    except yaml.YAMLError:
        given = None
    if not given or None in given.values():
        raise Expected(f"one of {', '.join(map(repr, words))}, or rules, such as 'loss spike: off, dead units: off'.{nearest(text, words)}")
    return given


BATCHES = listed("N,N…", int, "batch numbers from 0 with commas in between, such as 149,150")


@click.command(
    context_settings=SCRIPT_WORDS,
    options_metavar="[options]",
)
@takes_script
@click.option("--config", metavar="FILE", help="Collect the statistics that this YAML file asks for.")
@click.option("--features", multiple=True, metavar="FILE|DIR", help="Statistics, features, loggers and rules of your own; repeatable.")
@recipe_option("Convert the models' linear layers to fp8 or fp4, by this recipe; autocast: keep the layers that --config names out of it.")
@click.option(
    "--on-nonfinite",
    type=one_of(*ON_NONFINITE),
    metavar="|".join(ON_NONFINITE),
    help="Stop at a nan or inf that escapes (raise, the default), note it (warn or note), leave its step out (skip), and keep "
    "the precision on that cured it (heal), or collect statistics alone (off).",
)
@click.option(
    "--alerts",
    type=Value("WORDS", _alerts),
    metavar=f"{'|'.join(MODES)}|RULES",
    help="Say early what is about to go wrong, and what goes wrong in silence (note, the default), stop at it (raise), or neither (off); "
    'or rules\' settings as in a configuration, such as "loss spike: off, dead units: off".',
)
@click.option("--level", metavar="|".join(LEVELS), help="Every module (modules, the default), or only the model as a whole: cheaper.")
@click.option("--trace", type=BATCHES, metavar="N,N…", help="Print the ranges of all tensors in these batches; detect nothing.")
@click.option("--abort-after", type=whole_number(), help="Stop after this batch, counted from 0.")
@click.option("--no-replay", "replay", flag_value=False, type=bool, default=None, help="Don't do a bad call again to find its operation.")
@click.option(
    "--check",
    metavar="KIND,KIND…",
    help="Do some steps once more: again (same bits?), rank (on all ranks?), gradients, float64 (right results?), eager (is it the "
    "compiler?), precision (what does low precision do?). Behind it :every=N or :at=N,N (:every=1000). capsule: at a finding, the "
    "operation at fault alone, in a folder.",
)
@click.option(
    "--frames", type=whole_number(), help="Print so many last module calls above the report, in the format of DebugUnderflowOverflow."
)
@click.option("--json", type=OUTPUT_FILE, help="Write the findings to this file, for other programs.")
@click.option("--sarif", type=OUTPUT_FILE, help="Write findings and alerts to this file as SARIF, for a CI to show them at their lines.")
@click.option(
    "--to",
    "loggers",
    multiple=True,
    metavar="WHERE",
    help="Send statistics, findings and alerts to tensorboard[:DIR], wandb[:PROJECT] or mlflow[:EXPERIMENT or URI]; repeatable.",
)
@click.option("--pdb", "debugger", flag_value="", default=None, type=str, help="At a finding, open a prompt in the frame that ran it.")
@click.option("--pdbcls", metavar="MODULE:CLASS", help="The debugger of --pdb, such as IPython.terminal.debugger:TerminalPdb.")
@click.option("--log-dir", type=OUTPUT_FOLDER, help="Keep the run's records in this folder.")
def run(target: Target, **options: Any) -> Callable[[], None]:
    """Run a training script as Python itself would, and stop it at the first nan or inf that reaches the loss, a gradient or a weight.

    Options stand before the script's name; all that follows it is the script's own. Under torchrun:

    torchrun --nproc-per-node 2 -m numscope run train.py ARGS…

    NV_DEBUG_TOOL_ENABLED=1 in the environment stands for --config $NV_DEBUG_TOOL_CONFIG and --log-dir $NV_DEBUG_TOOL_LOG_DIR.

    The script's child processes by multiprocessing are watched too. The last lines say what was watched and what not.

    Exit status: the script's own; 3 when numscope stopped it at a non-finite value, 4 at an alert; 2 for wrong usage.
    """
    given = {**(switched_on() or {}), **{name: value for name, value in options.items() if value is not None and value != ()}}
    if options["log_dir"] is None and "log_dir" in given:
        given["log_dir"] = writable(given["log_dir"], "NV_DEBUG_TOOL_LOG_DIR", folder=True)
    recipe = given.pop("recipe", None)
    if (debugger := given.pop("pdbcls", None)) is not None:
        from numscope.replay.prompt import debugger_class

        debugger_class(debugger)  # refused before the script's first line
        given["debugger"] = debugger
    if given.get("on_nonfinite") == "off" and "config" not in given and recipe is None:
        raise click.UsageError(
            "--on-nonfinite: got 'off' without --config or --recipe, expected something to do. Add one of them, or leave it out."
        )
    config, features = given.get("config"), given.get("features", ())  # as the user has named them
    for name in {"config", "log_dir"} & given.keys():  # a script may change its folder
        given[name] = given[name] if is_address(given[name]) else os.path.abspath(given[name])
    given["features"] = tuple(map(os.path.abspath, features))
    given["loggers"] = tuple(str(destination(one, "--to")) for one in given.get("loggers", ()))
    try:
        watch = TorchWatch(WatchOptions(**given), recipe)
    except UsageError as error:  # "frames: got 0, …" about the option --frames
        field, _, rest = str(error).partition(":")
        raise click.UsageError(f"--{field.replace('_', '-')}:{rest}") from None
    if config is not None:  # refused before the script's first line, without torch unless a file of features imports it
        from numscope.config.loading import plan_of  # 0.1 s, of which a run without a configuration has no use before torch is there

        plan_of(config, features)
    # The script runs after click has returned: click turns the script's KeyboardInterrupt into something else.
    return partial(_launched, target, watch)


def _is_unread(word: str, target: Target) -> bool:
    """Whether a script's own text, which may leave its arguments to another file, has neither an option's name nor ``argv``."""
    if int(os.environ.get("RANK") or 0):  # said once
        return False
    try:
        with open(target.name, encoding="utf-8") as file:
            text = file.read().replace("-", "_")
        return word.partition("=")[0].lstrip("-").replace("-", "_") not in text and "argv" not in text
    except (OSError, ValueError):
        return False


def _launched(target: Target, watch: TorchWatch) -> NoReturn:
    """Raises: as ``launch``. Where a script refuses a word that is an option of ours, or never names it, a note says where to put it."""
    try:
        launch(target, watch)
    except SystemExit as ending:
        opts = {opt for param in run.params for opt in param.opts if opt.startswith("--")}
        ours = next((word for word in target.args if word.partition("=")[0] in opts), None)
        if ours is not None and (ending.code == REFUSED or _is_unread(ours, target)):
            note(f"{ours.partition('=')[0]} came behind the script's name, so the script got it. If it is meant for numscope: {USAGE}.")
        raise
