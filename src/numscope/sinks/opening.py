"""Opens the sinks of a process, guards each, and passes observations, alerts and findings to all of them."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import may_come_back
from numscope.records.finding import Finding
from numscope.records.observation import Names, Observation
from numscope.records.words import nearest
from numscope.sinks.destinations import FORMS, KINDS, Destination, destination, scripts_run
from numscope.sinks.loggers import Logger, LoggerSink, Sink, call_if_there
from numscope.sinks.logs import STATISTICS_FILE, DebugLog, TextLog
from numscope.sinks.mlflow import MlflowSink
from numscope.sinks.parquet import ParquetSink
from numscope.sinks.runfolder import parameters
from numscope.sinks.tensorboard import TensorBoardSink, tensorboard_in
from numscope.sinks.wandb import WandbSink

Say = Callable[[str, int], None]  # takes a message and its level of Python's logging

_shared: dict[tuple[Any, ...], SharedSinks] = {}  # by process and loggers


class Sinks:
    """All sinks of one process, and the script's own runs of Weights & Biases and MLflow, which get alerts and findings.

    Args:
        log_dir: folder for the statistics log and the run's Parquet files; None: neither.
        loggers: objects with ``log_scalar``, TensorBoard's ``SummaryWriter`` or one like it, sinks, or destinations: ``"tensorboard:DIR"``,
            ``"wandb:PROJECT"``, ``"mlflow:EXPERIMENT"``. A writer is flushed but never closed.
        text: whether statistics also go to the text log.
        text_file: its path in ``log_dir``.
        run: facts on the run for ``run.json`` and for dashboards' parameters, JSON values by name.
        log: of decisions and failures; None: Python's logging alone.
        folder: for files that a library writes with its runs; None: ``log_dir``.
        names: of statistics in TensorBoard, W&B and MLflow.

    Raises: UsageError for a folder that can't be written to and for anything that is not a logger.
    """

    def __init__(
        self,
        *,
        log_dir: str | os.PathLike[str] | None,
        rank: int,
        loggers: Sequence[object] = (),
        text: bool = True,
        text_file: str = STATISTICS_FILE,
        run: Mapping[str, Any],
        log: DebugLog | None = None,
        folder: str | os.PathLike[str] | None = None,
        names: Names = "grouped",
    ) -> None:
        log = log or DebugLog(None, rank)
        self._guarded: list[_Guarded] = []
        checked = list(_checked(loggers))

        def add(name: str, sink: Sink | None = None, **lazily: Any) -> None:
            self._guarded.append(_Guarded(name, log.say, sink, **lazily))

        if log_dir is not None:
            if text and (opened := _unless_full("The statistics log", log, lambda: TextLog(log_dir, rank, text_file))):
                add("The statistics log", opened)
            if opened := _unless_full("The run's Parquet files", log, lambda: _parquet(log_dir, rank, run, log)):
                add("The run's Parquet files", opened)
        named: set[Destination] = set()
        for logger in checked:
            if isinstance(logger, TensorBoardSink):
                logger.names = names
                add("TensorBoard", logger)
                self._guarded[-1].do("parameters", parameters(run))
            elif isinstance(logger, Sink):
                add(f"The sink {type(logger).__name__}", logger)
            elif not isinstance(logger, Destination):
                add(f"The logger {type(logger).__name__}", LoggerSink(logger))
            elif logger not in named:
                named.add(logger)
                # Rank 0 sends, and other ranks on which the script has its own run; the rest stand by.
                stands_by = rank != 0 and scripts_run(logger.kind) is None
                opens = partial(_opened, logger, folder or log_dir, rank, names, run)
                add(f'The logger "{logger}"', make=opens, stands_by=stands_by)
        add("The script's own run", _ScriptsRuns({one.kind for one in named}))

    def _each(self, what: str, *args: object) -> None:
        for sink in self._guarded:
            sink.do(what, *args)

    def write(self, observations: Sequence[Observation]) -> None:
        self._each("write", observations)

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """This rank's layers known so far, each as JSON values by name."""
        self._each("describe", layers)

    def alert(self, alert: Alert) -> None:
        self._each("alert", alert)

    def told(self, alert: Alert) -> None:
        """Pass an alert that this rank reports for all ranks to sinks that stand by."""
        self._each("told", alert)

    def listens(self) -> bool:
        """Whether a sink is there besides the script's own runs, or such a run."""
        return len(self._guarded) > 1 or any(scripts_run(kind) is not None for kind in ("wandb", "mlflow"))

    def finding(self, finding: Finding, report: str) -> None:
        self._each("finding", finding, report)

    def settle(self) -> None:
        """A finding is about to end the run: what was sent has to arrive."""
        self._each("settle")

    def flush(self) -> None:
        self._each("flush")

    def close(self) -> None:
        self._each("close")


class SharedSinks(Sinks):
    """The sinks of a process that collects no statistics, whatever the number of its models: for all who have taken them."""

    _num_users = 0

    @classmethod
    def take(cls, loggers: Sequence[object], log_dir: str | None, rank: int) -> SharedSinks:
        """The shared sinks of this process; each user closes them.

        Raises: UsageError for anything that is no logger.
        """
        key = (os.getpid(), *(one if isinstance(one, str) else id(one) for one in loggers))
        if key not in _shared:
            _shared[key] = cls(log_dir=None, rank=rank, loggers=loggers, run={}, folder=log_dir)
        _shared[key]._num_users += 1
        return _shared[key]

    def close(self) -> None:
        """Let go of them; the last one closes them."""
        self._num_users -= 1
        if self._num_users == 0:
            self.end()

    def end(self) -> None:
        """Close them for all: the process ends."""
        for key in [key for key, one in _shared.items() if one is self]:
            del _shared[key]
            super().close()


class _Guarded:
    """A sink that gets everything until it raises; then that is logged once, and it gets nothing more. Training goes on.

    A full or missing disk may come back: a warning is logged once, and later calls try the sink again.

    ``sink`` None: ``make`` opens it when there is something for it. ``stands_by``: another rank writes to it, until this one has a finding,
    or an alert, that the other one can't know.
    """

    def __init__(self, name: str, say: Say, sink: Sink | None, make: Callable[[], Sink] | None = None, stands_by: bool = False) -> None:
        self._name, self._say, self._sink, self._make, self._stands_by = name, say, sink, make, stands_by
        self._failed = False
        self._said: set[str] = set()

    def do(self, what: str, *args: object) -> None:
        """Call the sink's method of this name, if it has one."""
        if self._failed or (what == "told" and not self._stands_by) or (what in ("write", "alert") and self._stands_by):
            return
        try:
            if self._sink is None and self._make is not None and what in ("write", "alert", "told", "finding"):
                self._sink = self._make()
            call_if_there(self._sink, "alert" if what == "told" else what, *args)
        except ours(OSError) as error:
            self._fail(error, may_come_back(error, was_there=True))
        except ours() as error:  # whatever it is, also in the user's own logger: the run goes on
            self._fail(error, False)

    def _fail(self, error: Exception, tries_again: bool) -> None:
        self._failed = not tries_again
        why = str(getattr(error, "strerror", ""))
        if tries_again and why in self._said:
            return
        self._said.add(why)
        what = "can't be written for now, and is tried again" if tries_again else "is off from here on"
        self._say(f"{self._name} {what}: it raised {type(error).__name__}: {error}. Training goes on.", logging.WARNING)


class _ScriptsRuns(Sink):
    """Sends alerts and findings, and nothing else, to each run that the script has begun and that is active now."""

    def __init__(self, without: set[str]) -> None:
        self._kinds = [kind for kind in ("wandb", "mlflow") if kind not in without]  # others have a sink already
        self._mlflow: dict[str, MlflowSink] = {}  # by run

    def write(self, observations: Sequence[Observation]) -> None:
        return None

    def alert(self, alert: Alert) -> None:
        for sink in self._active():
            sink.alert(alert)

    def finding(self, finding: Finding, report: str) -> None:
        for sink in self._active():
            sink.finding(finding, report)

    def settle(self) -> None:
        for sink in self._mlflow.values():
            sink.settle()

    def close(self) -> None:
        while self._mlflow:
            self._mlflow.popitem()[1].close()

    def _active(self) -> Iterator[MlflowSink | WandbSink]:
        for kind in self._kinds:
            run = scripts_run(kind)
            if run is None:
                continue
            if kind == "wandb":
                yield WandbSink(run)
                continue
            run_id = run.info.run_id
            if run_id not in self._mlflow:
                self._mlflow[run_id] = MlflowSink(run_id)
            yield self._mlflow[run_id]


def _unless_full(name: str, log: DebugLog, make: Callable[[], Sink | None]) -> Sink | None:
    """A disk that is full as the run starts costs the sink, not the run."""
    try:
        return make()
    except ours(OSError, UsageError) as error:
        if not may_come_back(error, was_there=False):
            raise
        log.say(f"{name} can't be written: {error} The run goes on without.", logging.WARNING)
        return None


def _checked(loggers: Sequence[object]) -> Iterable[Destination | Sink | Logger]:
    if isinstance(loggers, str):
        loggers = (loggers,)
    for place, logger in enumerate(loggers):
        if isinstance(logger, str) and logger.partition(":")[0] in KINDS:
            yield destination(logger)
        elif not isinstance(logger, str | type) and isinstance(logger, Sink | Logger):
            yield logger
        elif not isinstance(logger, str | type) and callable(getattr(logger, "add_scalar", None)):
            yield TensorBoardSink(logger)
        else:
            got, hint = repr(logger), ""
            if isinstance(logger, type):
                got = f"the class {logger.__name__}"
                hint = f" Make one first: {logger.__name__}(…)." if hasattr(logger, "log_scalar") or hasattr(logger, "add_scalar") else ""
            elif isinstance(logger, str):
                hint = nearest(logger.partition(":")[0], KINDS)
            raise UsageError(
                f"loggers[{place}]: got {got}, expected an object with log_scalar(name, value, iteration), "
                f"TensorBoard's writer, a sink with write, flush and close, or one of {', '.join(FORMS)}.{hint}"
            )


def _parquet(log_dir: str | os.PathLike[str], rank: int, run: Mapping[str, Any], log: DebugLog) -> Sink | None:
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        log.say(
            "no Parquet files for this run, only text logs: pyarrow is not installed. "
            "For `numscope stats` and `numscope.load`: pip install 'numscope[runs]'.",
            logging.WARNING,
        )
        return None
    try:
        return ParquetSink(log_dir, rank, run)
    except ours(OSError) as error:
        raise UsageError(f"log_dir: got {os.fspath(log_dir)!r}, expected a folder that can be written to: {error}.") from None


def _opened(to: Destination, folder: str | os.PathLike[str] | None, rank: int, names: Names, run: Mapping[str, Any]) -> Sink:
    """Open a destination, once there is something for it: until then the script may begin a run of its own."""
    sink: TensorBoardSink | WandbSink | MlflowSink
    if to.kind == "tensorboard":
        sink = tensorboard_in((to if rank == 0 else to.below(f"rank{rank}")).place, names)
    elif to.kind == "wandb":
        note = f"What rank {rank} of a run found" if rank else ""
        sink = WandbSink(folder=folder, project=to.place, note=note, names=names)
    else:
        sink = MlflowSink(place=to.place, names=names)
    sink.parameters(parameters(run))
    return sink
