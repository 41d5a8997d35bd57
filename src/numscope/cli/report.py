"""``numscope report``: a run as one HTML file, or as a short digest."""

from __future__ import annotations

import os
from pathlib import Path

import click

from numscope.cli.printing import note, put, say
from numscope.cli.values import OUTPUT_FILE, json_option, writable
from numscope.config.rule_table import RULES
from numscope.page.digest import digest_of
from numscope.page.document import render
from numscope.page.payload import comparison_of, payload_of
from numscope.page.recorded import Recorded, read_recorded
from numscope.page.unasked import NAME
from numscope.records.errors import UsageError
from numscope.report.sarif import sarif_json, source_root
from numscope.storage.address import is_address

SUMMARY_NAME = "summary.json"


@click.command(options_metavar="[options]", short_help="Make an HTML page of a run.")
@click.option("-o", "--output", type=OUTPUT_FILE, help=f"Where to write it (RUN/{NAME}; of a run in another storage ./NAME-{NAME}).")
@click.option("--compare", "other", metavar="OTHER", help="Show a second run too, and where the two begin to differ.")
@click.option("--sarif", type=OUTPUT_FILE, help="Write findings and alerts to this file instead, for a CI to show at their lines.")
@click.option("--summary", is_flag=True, help=f"Write a digest of at most 64 KB instead, as JSON (RUN/{SUMMARY_NAME}).")
@json_option("The same as --summary, to FILE")
@click.argument("run", metavar="RUN")
def report(run: str, output: str | None, other: str | None, sarif: str | None, summary: bool, json_to: str | None) -> None:
    """Make one HTML file of a run: findings, their lines of code, and every tensor's history. It opens in a browser, without a network.

    RUN is the run's log_dir.
    """
    options = {"--output": output, "--compare": other, "--summary": summary or None, "--json": json_to}
    given = [option for option, value in options.items() if value is not None]
    summary = summary or json_to is not None
    if summary and other is not None:
        raise UsageError(f"--compare: given with {given[-1]}, which is about one run. Leave one of them out.")
    if sarif is not None and given:
        raise UsageError(f"--sarif: given with {', '.join(given)}, expected it alone.")
    if json_to is not None and output is not None:
        raise UsageError("--output: given with --json, expected one of them.")
    recorded = _read(run, "RUN")
    if sarif is not None:
        _write(sarif, _sarif(recorded), "--sarif")
        return
    if json_to is not None:
        put(json_to, [digest_of(recorded)])
        return
    path = writable(output or _beside(recorded.path, SUMMARY_NAME if summary else NAME), "--output")
    if summary:
        _write(path, digest_of(recorded))
        return
    title = f"numscope: {os.path.basename(recorded.path)}"
    if other is None:
        _write(path, render([payload_of(recorded)], title))
        return
    second = _read(other, "--compare")
    _write(path, render([payload_of(recorded), payload_of(second)], title, comparison_of(recorded, second)))


def _sarif(recorded: Recorded) -> str:
    """The findings and alerts of a run, with paths relative to the checkout that the current folder is in."""
    findings = [one for one in recorded.findings if not one.contained]
    meanings = {name: rule.meaning for name, rule in RULES.items()}
    lines = (one.culprit.stack[0][0] for one in findings if one.culprit is not None and one.culprit.stack)
    script = next(lines, "")  # what called the model
    return sarif_json(findings, [one.alert for one in recorded.alerts], meanings, source_root(), script).decode()


def _beside(run: str, name: str) -> str:
    """Where a page goes that nobody has named: into the run; of one in another storage here, under the run's name."""
    return f"{os.path.basename(run)}-{name}" if is_address(run) else os.path.join(run, name)


def _read(folder: str, where: str) -> Recorded:
    """A run, with its problems on stderr."""
    recorded = read_recorded(folder, where)
    for problem in recorded.problems:
        note(problem)
    return recorded


def _write(path: str, text: str, option: str = "--output") -> None:
    """Write a file and print a link to it."""
    put(path, [text], option)
    say(Path(path).absolute().as_uri())
