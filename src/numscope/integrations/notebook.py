"""``%load_ext numscope``: watches the models that a notebook's cells train, and shows findings where the cell's output stands."""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError as WrongWords  # IPython shows it without a traceback
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from numscope.config.options import WatchOptions
from numscope.records import places
from numscope.records.alert import Alert
from numscope.records.errors import STOPS, NonFiniteError, UsageError
from numscope.records.faults import ours, told
from numscope.records.finding import Finding
from numscope.records.markup import BAD, Markup, element
from numscope.records.words import escape, nearest
from numscope.report import delivery
from numscope.report.stderr import say
from numscope.scope import watching
from numscope.scope.autowatch import AutoWatch
from numscope.scope.last_line import last_line
from numscope.scope.open_scopes import live
from numscope.sinks.destinations import destination

WORDS = ("on", "off", "status")
USAGE = "%numscope on [options] | off | status, or %%numscope [options] as a cell's first line"
_TEXTS = ("log_dir", "json", "sarif", "config", "alerts", "level", "debugger", "on_nonfinite", "loggers", "features")
_CELL = re.compile(r"\s*%%numscope\b(.*)")
_RUN = "get_ipython().run_line_magic('numscope', {!r})\n"

_loaded: Notebook | None = None


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%load_ext numscope``. A second time nothing happens."""
    global _loaded
    if _loaded is None:
        _loaded = Notebook(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by ``%unload_ext numscope``: the watch ends, and IPython is as it was."""
    global _loaded
    if _loaded is not None:
        _loaded.close()
        _loaded = None


class Notebook:
    """The magics of one shell, and at most one watch."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._watch: AutoWatch | None = None
        self._is_cells = False  # the watch ends with the cell that runs
        self._number = 0  # the cell that began the watch
        shell.register_magic_function(self.line, "line", "numscope")
        shell.register_magic_function(self._no_cell, "cell", "numscope")
        shell.input_transformers_cleanup.append(_cell_to_line)
        shell.events.register("post_run_cell", self._cell_has_run)
        self._undo: list[Callable[[], None]] = [
            _put(places, "cell_of", self._cell_of),
            _put(delivery, "show", self._show),
            _put(delivery, "show_alert", self._show_alert),
            _put(watching, "replaces", True),
        ]
        shell.set_custom_exc(STOPS, self._stopped)

    def close(self) -> None:
        self._finish(None)
        self._shell.events.unregister("post_run_cell", self._cell_has_run)
        self._shell.input_transformers_cleanup.remove(_cell_to_line)
        for kind in ("line", "cell"):
            self._shell.magics_manager.magics[kind].pop("numscope", None)
        self._shell.set_custom_exc((), None)
        for undo in self._undo:
            undo()

    # ---- magics

    def line(self, line: str) -> Any:
        """Watch the models that cells train: %numscope on [options] | off | status.

        Options are those of numscope.watch, written as --alerts off --on-nonfinite warn --log-dir logs. A cell that begins with
        %%numscope is watched by itself.
        """
        try:
            return self._do(shlex.split(line), line)
        except ours(UsageError, ValueError) as error:  # also quotes that are not closed
            raise WrongWords(f"%numscope: {error}") from None

    def _do(self, words: list[str], line: str) -> Any:
        word, rest = (words[0], words[1:]) if words else ("status", [])
        if word == "cell":  # by _cell_to_line
            self._begin(rest, is_cells=True)
        elif word == "on":
            self._begin(rest, is_cells=False)
        elif word in ("off", "status") and not rest:
            if word == "off":
                self._finish(None)
            return Status(self._watch)
        else:
            raise UsageError(f"got {line!r}, expected {USAGE}.{nearest(word, WORDS)}")
        return None

    def _no_cell(self, line: str, cell: str) -> None:
        """Watch the models that this cell trains. Options as of %numscope on."""
        raise WrongWords("%%numscope: got another line before it, expected it as the cell's first line.")

    def _begin(self, words: list[str], *, is_cells: bool) -> None:
        options = options_of(words)
        self._finish(None)
        self._watch, self._is_cells = AutoWatch(options), is_cells
        self._number = self._shell.execution_count
        self._watch.__enter__()

    def _finish(self, error: BaseException | None) -> None:
        """End the watch. Late findings are shown by their reports."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        try:
            watch.finish(error)
        except STOPS:
            pass
        except ours() as fault:
            say(f"numscope: {told(fault)}")
        if self._is_cells:
            display(Status(watch))

    def _cell_has_run(self, result: Any) -> None:
        if self._is_cells and self._watch is not None:
            self._finish(result.error_in_exec)

    # ---- what the rest of numscope asks of a notebook

    def _cell_of(self, file: str) -> int | None:
        known: dict[str, int] = getattr(self._shell.compile, "_filename_map", {})
        return known.get(file)

    def _show(self, finding: Finding) -> bool:
        if not self._has_pages:
            return False
        display({"text/plain": delivery.plain_report(finding), "text/html": finding._repr_html_()}, raw=True)
        return True

    @property
    def _has_pages(self) -> bool:
        """Whether a cell's output can be HTML: it can't in IPython's own terminal."""
        return hasattr(self._shell, "kernel")

    def _show_alert(self, alert: Alert, who: str) -> bool:
        if not self._has_pages:
            return False
        line = alert.line(who)
        text = element("p", element("b", "⚑ numscope: "), line)
        display({"text/plain": f"numscope: alert: {escape(line)}", "text/html": f"<div>{text}</div>"}, raw=True)
        return True

    def _stopped(self, shell: InteractiveShell, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None) -> Any:
        """The traceback of an error of ours: where the cell stopped; the finding stands above it."""
        frames = [one for one in traceback.extract_tb(trace) if self._cell_of(one.filename) is not None]
        where = f" Stopped at {places.place(frames[-1].filename, frames[-1].lineno or 0)}: {frames[-1].line}" if frames else ""
        text = error.finding.headline() if isinstance(error, NonFiniteError) else str(error)
        lines = [f"{kind.__name__}: {escape(text)}", *([where.strip()] if where else [])]
        shell._showtraceback(kind, error, lines)
        return lines


class Status:
    """A watch's summary so far, for a cell's output."""

    def __init__(self, watch: AutoWatch | None) -> None:
        self._scopes = list(live()) if watch is None else list(watch.scopes)
        self._is_on = watch is not None and watch.looking
        self._text = self._line(watch)

    def _line(self, watch: AutoWatch | None) -> str:
        if watch is None:
            others = f" {len(self._scopes)} of your own watches are open." if self._scopes else ""
            return f"numscope is off.{others} {USAGE}."
        return last_line(watch.coverage.watched(), (), "no model was called yet" if self._is_on else "no model was called")

    def __repr__(self) -> str:
        return escape(self._text)

    def _repr_html_(self) -> str:
        faults = [element("p", scope.fault, style=BAD) for scope in self._scopes if scope.fault]
        return element("div", element("p", self._text), *map(Markup, faults))


def options_of(words: list[str]) -> WatchOptions:
    """The options that words such as ``--alerts off`` name, with values as YAML reads them.

    Raises: UsageError.
    """
    import yaml

    given: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("--"):
            raise UsageError(f"got {word!r}, expected an option such as --log-dir DIR.")
        has_value = bool(equals) or bool(waiting and not waiting[0].startswith("--"))
        if not equals:
            value = waiting.pop(0) if has_value else "true"
        option, name = name, {"--to": "loggers"}.get(name, name[2:].replace("-", "_"))
        if name in _TEXTS and not has_value:
            raise UsageError(f"got {option} without a value, expected one after it.")
        if option == "--to":  # refused here, not at the model's first call
            value = str(destination(value, option))
        if name in ("loggers", "features"):
            given[name] = (*given.get(name, ()), value)
        elif name == "on_nonfinite" and value == "off":
            given[name] = None
        elif option == "--no-replay":
            given["replay"] = False
        elif name == "trace":
            given[name] = tuple(int(number) if number.isdecimal() else number for number in value.split(","))
        elif name in _TEXTS:
            given[name] = value
        else:
            try:
                given[name] = yaml.safe_load(value)
            except yaml.YAMLError:
                raise UsageError(f"{option}: got {value!r}, expected a value as YAML has it.") from None
    options = WatchOptions.of(**given)
    if options.config is not None:  # refused here, too
        from numscope.config.loading import plan_of

        plan_of(options.config, options.features)
    return options


def _cell_to_line(lines: list[str]) -> list[str]:
    """A cell that begins with ``%%numscope`` runs as it stands, after its first line: lines keep their numbers, errors their form."""
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    found = _CELL.match(lines[first]) if first is not None else None
    if first is None or found is None:
        return lines
    return [*lines[:first], _RUN.format(f"cell {found[1].strip()}"), *lines[first + 1 :]]


def _put(module: Any, name: str, value: object) -> Callable[[], None]:
    before = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, before)
