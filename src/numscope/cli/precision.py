"""``numscope precision``: finds the layers and GEMMs that low precision harms, by measuring their operands or by trial runs."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from numscope.cli.bisection import Bisection, BisectionTask
from numscope.cli.precision_text import advice_document, advice_lines, advice_table, verdict_head, verdict_lines, verdict_table
from numscope.cli.preparing import RECIPES, SCRIPT_WORDS, recipe_option, takes_script
from numscope.cli.printing import note, put, say, show
from numscope.cli.script import Target
from numscope.cli.trial import trial
from numscope.cli.values import OUTPUT_FILE, Expected, Value, json_option, listed, real, whole_number
from numscope.config.dialects import translate
from numscope.config.loading import plan_of
from numscope.config.wording import Errors
from numscope.config.yaml_reading import read
from numscope.precision.search.advise import Limits, advice_of, merged
from numscope.precision.search.sections import sections, text_of
from numscope.precision.search.trials import Book, Script, Spec, TrialFailed, run_trial
from numscope.records.files import nearest_path, write_atomically
from numscope.records.words import nearest

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "srun", "python")
NO_ANSWER = 1  # 2 is wrong usage


@click.group(options_metavar="[options]", subcommand_metavar="COMMAND …")
def precision() -> None:
    """Find the layers and GEMMs that should stay in high precision."""


precision.add_command(trial)


def _launcher(text: str) -> tuple[str, ...]:
    words = tuple(shlex.split(text))
    if words and shutil.which(words[0]) is None:
        raise Expected(f"a command that can be run. There is no {words[0]!r}.{nearest(words[0], LAUNCHERS)}")
    return words


_LAUNCH = click.option(
    "--launch",
    type=Value("WORDS", _launcher, "words as in a shell"),
    default=(),
    help='Command that starts the script\'s processes, such as "torchrun --nproc-per-node 2".',
)
_PCT = real("a percentage", 0, 100)
ADVISE_SETTINGS = {
    "min_sqnr_db": real("decibels, such as 20", -200, 200),
    "max_saturated_pct": _PCT,
    "max_flushed_pct": _PCT,
    "seed": whole_number(),
}
BISECT_SETTINGS = {
    "runs": whole_number(3),
    "tolerance": real("a number from 0, such as 0.01", 0),
    "repeats": whole_number(1),
    "seed": whole_number(),
    "features": listed("FILE,FILE…", str, "files with features that the configuration names"),
}


def _settings_option(known: Mapping[str, Value]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return click.option("--settings", "file", metavar="FILE", help=f"A YAML file with rarely needed settings: {', '.join(known)}.")


@precision.command(context_settings=SCRIPT_WORDS, options_metavar="[options]", short_help="Show which formats each operand could take.")
@takes_script
@click.option("--steps", type=whole_number(1), default=8, metavar="N", help="Training steps to measure (8).")
@recipe_option("Recipe that the YAML is for (delayed).", "delayed", RECIPES)
@click.option("--output", type=OUTPUT_FILE, default="advise.yaml", help="Where to write the YAML (advise.yaml).")
@json_option("Write JSON instead of the table")
@_LAUNCH
@_settings_option(ADVISE_SETTINGS)
def advise(target: Target, steps: int, recipe: str, output: str, json_to: str | None, launch: tuple[str, ...], file: str | None) -> int:
    """Run a training script unchanged for a few steps, measure what casts would do to each operand of its linear layers, and write a YAML
    that keeps the GEMMs in high precision that the recipe would harm.

    Exit status: 0; 1 if the script has no step to measure; 2 for wrong usage.
    """
    settings = _settings(file, ADVISE_SETTINGS)
    seed = settings.pop("seed", 0)
    bounds = Limits(**settings)
    script = _script(target, launch)
    with tempfile.TemporaryDirectory(prefix="numscope-") as folder:
        place = Path(folder) / "advise"
        note(f"{target.name}: measuring {steps} steps")
        found = run_trial(script, Spec(str(place), recipe, seed=seed, steps=steps, what_if=True), place)
    if found.status:
        note(f"{target.name}: {found.length(steps)}")
    if broken := [part["failed"] for part in found.numbers if part["failed"]]:
        raise TrialFailed(f"{target.name}: measuring failed: {broken[0]}.")
    if not any(part["layers"] for part in found.numbers):
        raise TrialFailed(f"{target.name}: its models called no linear layer.")
    advice = advice_of(merged(found.numbers), bounds)
    if not advice.num_gemms:
        more = "a step ends when a torch optimizer steps, and the first step of delayed scaling does not count"
        raise TrialFailed(f"{target.name}: {recipe} could not be measured in {found.length(steps)}: {more}.")
    if advice.high:
        head = (f"numscope precision advise: GEMMs that {recipe} would harm, from {advice.num_steps} steps of {Path(target.name).name}.",)
        write_atomically(output, text_of(sections(advice.high), head))
    if json_to is not None:
        put(json_to, advice_document(advice, bounds, recipe, output))
    else:
        for line in advice_table(advice, recipe):
            click.echo(line)
        for line in advice_lines(advice, script, recipe, output):
            say(line)
    return 0


@precision.command(
    context_settings=SCRIPT_WORDS, options_metavar="[options]", short_help="Find by trial runs what has to stay in high precision."
)
@takes_script
@click.option("--config", metavar="FILE", help="The low-precision run's own configuration (YAML); its switches are kept.")
@recipe_option("Recipe of the linear layers (delayed); autocast: the script's own autocast is the low precision.", "delayed")
@click.option("--steps", type=whole_number(1), default=50, metavar="N", help="Training steps of each run (50).")
@click.option(
    "--output",
    type=OUTPUT_FILE,
    default="bisect.yaml",
    help="Where to write the YAML (bisect.yaml); the runs are kept in a folder next to it.",
)
@json_option("Write JSON instead of text")
@_LAUNCH
@_settings_option(BISECT_SETTINGS)
def bisect(
    target: Target,
    config: str | None,
    output: str,
    json_to: str | None,
    launch: tuple[str, ...],
    file: str | None,
    **search: Any,
) -> int:
    """Run a training script repeatedly for a few steps and find the smallest set of layers and GEMMs that, kept in high precision, brings
    its loss back to that of the run in high precision. A search that was killed continues when the command is repeated.

    Exit status: 0 if such a set was found or nothing is harmed; 1 if there is none or the runs did not suffice; 2 for wrong usage.
    """
    settings = {"features": (), **_settings(file, BISECT_SETTINGS)}
    base = _base(config, settings["features"])
    task = BisectionTask(_script(target, launch), base=base, **search, **settings)
    folder = Path(output).with_suffix(".trials")
    book = Book(folder, task.about())
    if book.num_resumed:
        note(f"{folder}: reusing {book.num_resumed} runs of an earlier search")
    try:
        verdict = Bisection(task, book, note).run()
    except KeyboardInterrupt:
        note(f"stopped; the finished runs are in {folder}: the same command continues with them")
        raise
    if verdict.units:
        write_atomically(output, text_of({**base, **sections(verdict.units, base)}, verdict_head(verdict, task)))
    if json_to is not None:
        put(json_to, {**verdict.document(), "output": output if verdict.units else None})
    else:
        if verdict.units:
            show(verdict_table(verdict))
        for line in verdict_lines(verdict, task, output):
            say(line)
    return 0 if verdict.outcome in ("found", "within") else NO_ANSWER


def _settings(file: str | None, known: Mapping[str, Value]) -> dict[str, Any]:
    """The values in a file of settings, each checked as an option's value. Raises: ConfigurationError: all that is wrong with it."""
    if file is None:
        return {}
    errors, values = Errors(file), {}
    for name, value in (read(file, errors)[0] or {}).items():
        if name not in known:
            errors.add(name, f"unknown, expected one of {', '.join(known)}.{nearest(name, known)}")
            continue
        try:
            values[name] = known[name].convert(str(value), None, None)
        except click.BadParameter as error:
            errors.add(name, error.message)
    errors.raise_any()
    return values


def _base(config: str | None, features: tuple[str, ...]) -> Mapping[str, Any]:
    """The configuration as sections by name. A section without a name gets its file's, and selects all layers if it selected none."""
    if config is None:
        return {}
    plugged = plan_of(config, features)[1].features
    errors = Errors(config)
    tree = read(config, errors)[0] or {}
    stem = Path(config).stem or "config"
    if any(section.bare for section in translate(tree, stem, plugged, errors)):
        return {stem: {"enabled": True, "layers": {"layer_name_regex_pattern": ".*"}, **tree}}
    return tree


def _script(target: Target, launch: tuple[str, ...]) -> Script:
    if not target.is_module and not Path(target.name).exists():
        raise click.UsageError(
            f"got {target.name!r}, expected a script's path, or -m and a module's name. There is no such file.{nearest_path(target.name)}"
        )
    return Script(target.name, target.args, target.is_module, launch)
