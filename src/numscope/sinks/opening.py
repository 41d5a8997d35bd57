"""Opens the sinks of a run, each guarded: a failing sink is disabled, or waits for its disk, and that is logged once; training goes on."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.files import may_come_back
from numscope.records.finding import Finding
from numscope.records.observation import Observation
from numscope.records.words import nearest
from numscope.sinks import textlog
from numscope.sinks.active import ActiveRuns
from numscope.sinks.debuglog import DebugLog
from numscope.sinks.destinations import FORMS, KINDS, Destination, destination, is_destination
from numscope.sinks.loggers import Logger, LoggerSink, call_if_there
from numscope.sinks.protocol import Sink
from numscope.sinks.standby import Standby
from numscope.sinks.textlog import TextLog


def open_sinks(
    *,
    log_dir: str | os.PathLike[str] | None,
    rank: int,
    tb_writer: Any = None,
    loggers: Sequence[object] = (),
    text: bool = True,
    text_file: str = textlog.FILE,
    run: Mapping[str, Any],
    log: DebugLog | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> list[GuardedSink]:
    """The sinks of one process.

    Args:
        log_dir: folder for the statistics log and the run's Parquet files; None: neither.
        tb_writer: TensorBoard's ``SummaryWriter`` or one like it; None: none. It is flushed but never closed.
        loggers: objects with ``log_scalar``, sinks, or destinations: ``"tensorboard:DIR"``, ``"wandb:PROJECT"``, ``"mlflow:EXPERIMENT"``.
        text: whether statistics also go to the text log.
        text_file: its path in ``log_dir``.
        run: facts on the run for ``run.json``, JSON values by name.
        log: of decisions and failures; None: Python's logging alone.
        folder: for what a library writes beside its runs; None: ``log_dir``.

    Raises: UsageError for a folder that can't be written to and for anything that is not a logger.
    """
    log = log or DebugLog(None, rank)
    sinks: list[tuple[str, Sink]] = []
    named = list(_checked(loggers))
    if log_dir is not None:
        if text:
            _open(sinks, "The statistics log", lambda: TextLog(log_dir, rank, text_file), log)
        _open(sinks, "The run's Parquet files", lambda: _parquet(log_dir, rank, run, log), log)
    if tb_writer is not None:
        from numscope.sinks.tensorboard import TensorBoardSink

        sinks.append(("TensorBoard", TensorBoardSink(tb_writer)))
    for place, logger in enumerate(named):
        if isinstance(logger, Destination):
            if logger in named[:place]:
                continue  # named twice
            sinks.append((f'The logger "{logger}"', _sent_to(logger, folder or log_dir, rank)))
        elif isinstance(logger, Sink):
            sinks.append((f"The sink {type(logger).__name__}", logger))
        else:
            sinks.append((f"The logger {type(logger).__name__}", LoggerSink(logger)))
    return [GuardedSink(sink, name, log.say) for name, sink in sinks]


def _open(sinks: list[tuple[str, Sink]], name: str, make: Callable[[], Sink | None], log: DebugLog) -> None:
    """A disk that is full as the run starts costs the sink, not the run."""
    try:
        sink = make()
    except ours(OSError, UsageError) as error:
        if not may_come_back(error, was_there=False):
            raise
        log.say(f"{name} can't be written: {error} The run goes on without.", logging.WARNING)
    else:
        if sink is not None:
            sinks.append((name, sink))


def _checked(loggers: Sequence[object]) -> Iterable[Destination | Sink | Logger]:
    if isinstance(loggers, str):
        loggers = (loggers,)
    for place, logger in enumerate(loggers):
        is_object = not isinstance(logger, str | type)
        if isinstance(logger, str) and is_destination(logger):
            yield destination(logger)
            continue
        if is_object and isinstance(logger, Sink | Logger):
            yield logger
            continue
        hint = ""
        if isinstance(logger, type) and hasattr(logger, "log_scalar"):
            hint = f" Make one first: {logger.__name__}(…)."
        elif isinstance(logger, str):
            hint = nearest(logger.partition(":")[0], KINDS)
        got = repr(logger) if isinstance(logger, str) else f"the class {logger.__name__}" if isinstance(logger, type) else repr(logger)
        raise UsageError(
            f"loggers[{place}]: got {got}, expected an object with log_scalar(name, value, iteration), "
            f"a sink with write, flush and close, or one of {', '.join(FORMS)}.{hint}"
        )


def _parquet(log_dir: str | os.PathLike[str], rank: int, run: Mapping[str, Any], log: DebugLog) -> Sink | None:
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        log.say(
            "numscope writes no Parquet files for this run, only text logs: pyarrow is not installed. "
            "For `numscope stats` and `numscope.load`: pip install 'numscope[runs]'.",
            logging.WARNING,
        )
        return None
    from numscope.sinks.parquet import ParquetSink

    try:
        return ParquetSink(log_dir, rank, run)
    except ours(OSError) as error:
        raise UsageError(f"log_dir: got {os.fspath(log_dir)!r}, expected a folder that can be written to: {error}.") from None


def _sent_to(to: Destination, log_dir: str | os.PathLike[str] | None, rank: int) -> Sink:
    """Rank 0 speaks, and other ranks that have a run of the script's own; the rest stand by."""
    if to.kind == "tensorboard":
        from numscope.sinks.tensorboard import TensorBoardTo

        here = to if rank == 0 else to.below(f"rank{rank}")
        return TensorBoardTo(to.place) if rank == 0 else Standby(lambda: TensorBoardTo(here.place))
    library = sys.modules.get(to.kind)
    note = f"What rank {rank} of a run found" if rank else ""
    if to.kind == "wandb":
        from numscope.sinks.wandb import WandbSink

        wandb_run = getattr(library, "run", None)
        make: Callable[[], Sink] = lambda: WandbSink(folder=log_dir, project=to.place, note=note)  # noqa: E731
        return make() if rank == 0 or wandb_run is not None else Standby(make)
    from numscope.sinks.mlflow import MlflowSink

    active = getattr(library, "active_run", lambda: None)()
    return MlflowSink(place=to.place) if rank == 0 or active is not None else Standby(lambda: MlflowSink(place=to.place))


class GuardedSink:
    """Passes everything to a sink until the sink raises; then logs the error once and passes nothing more.

    A disk that is full or away may come back: it is said, and the sink is tried again with what comes next.

    Args:
        name: of the sink in the log.
        say: takes a message and its level of Python's logging.
    """

    def __init__(self, sink: Sink, name: str, say: Callable[[str, int], None]) -> None:
        self.sink = sink
        self.name = name
        self.failed = False
        self._say = say
        self._said: set[str] = set()

    def write(self, observations: Sequence[Observation]) -> None:
        self._do(self.sink.write, observations)

    def flush(self) -> None:
        self._do(self.sink.flush)

    def describe(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Pass on this rank's layers known so far, each as JSON values by name, if the sink takes them."""
        self._do(call_if_there, self.sink, "describe", layers)

    def alert(self, alert: Alert) -> None:
        """Pass on an alert, if the sink takes them."""
        self._do(call_if_there, self.sink, "alert", alert)

    def told(self, alert: Alert) -> None:
        """Pass on an alert that this rank tells for all ranks that have it, to a sink that stands by."""
        self._do(call_if_there, self.sink, "told", alert)

    def finding(self, finding: Finding, report: str) -> None:
        """Pass on a finding, if the sink takes them."""
        self._do(call_if_there, self.sink, "finding", finding, report)

    def settle(self) -> None:
        """A finding is about to end the run: what was sent has to arrive."""
        self._do(call_if_there, self.sink, "settle")

    def close(self) -> None:
        self._do(self.sink.close)

    def _do(self, method: Callable[..., None], *args: object) -> None:
        if self.failed:
            return
        try:
            method(*args)
        except ours(OSError) as error:
            self._fail(error, may_come_back(error, was_there=True))
        except ours() as error:  # whatever it is, also in the user's own logger: the run goes on
            self._fail(error, False)

    def _fail(self, error: Exception, tries_again: bool) -> None:
        self.failed = not tries_again
        why = str(getattr(error, "strerror", ""))
        if tries_again and why in self._said:
            return
        self._said.add(why)
        what = "can't be written for now, and is tried again" if tries_again else "is off from here on"
        self._say(f"{self.name} {what}: it raised {type(error).__name__}: {error}. Training goes on.", logging.WARNING)


class Sinks:
    """What goes to every sink of a process, the script's own runs of Weights & Biases and MLflow included.

    Args:
        opened: as ``open_sinks`` gives them.
        loggers: what it was given; libraries among them have a sink already.
        say: takes a message and its level of Python's logging.
    """

    def __init__(self, opened: Sequence[GuardedSink], loggers: Sequence[object], say: Callable[[str, int], None]) -> None:
        self._sinks = [*opened, GuardedSink(ActiveRuns(loggers), "The script's own run", say)]

    def alert(self, alert: Alert) -> None:
        for sink in self._sinks:
            sink.alert(alert)

    def told(self, alert: Alert) -> None:
        """Of an alert that this rank tells for all that have it, to sinks that stand by."""
        for sink in self._sinks:
            sink.told(alert)

    def finding(self, finding: Finding, report: str) -> None:
        for sink in self._sinks:
            sink.finding(finding, report)

    def settle(self) -> None:
        """A finding is about to end the run: what was sent has to arrive."""
        for sink in self._sinks:
            sink.settle()

    def flush(self) -> None:
        for sink in self._sinks:
            sink.flush()

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
