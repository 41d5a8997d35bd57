"""The watch of ``numscope run`` on every model of a process and of its child processes."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from multiprocessing import current_process
from typing import TYPE_CHECKING

from numscope.cli.child_processes import Children, ChildReport
from numscope.cli.import_hook import when_imported
from numscope.cli.script import Watch
from numscope.cli.stops import Stop, Stops
from numscope.config.options import WatchOptions, serve
from numscope.records.errors import UsageError
from numscope.records.finding import Finding, Kind
from numscope.records.words import count
from numscope.report import page
from numscope.report.delivery import Delivery
from numscope.report.stderr import say
from numscope.scope.coverage import Watched
from numscope.scope.last_line import last_line, next_step
from numscope.sinks.destinations import destination

if TYPE_CHECKING:
    from torch import nn

    from numscope.scope.autowatch import AutoWatch


class TorchWatch(Watch):
    """Watches every model of this process, from the moment the script has imported torch."""

    def __init__(self, options: WatchOptions, recipe: str | None = None, folder: str = "") -> None:
        self._options = options
        self._recipe = recipe  # what the models' linear layers are converted to
        self._folder = folder  # for a child process's report; "" in the process that the user started
        self._owner = os.getpid()
        self._children = Children(partial(TorchWatch, options, recipe), folder)
        self._auto: AutoWatch | None = None
        self._armed = False
        self._met_any = False
        self._words = ""
        self._stops = Stops(lambda: 0 if self._auto is None else self._auto.coverage.num_steps)

    def arm(self) -> None:
        self._armed = True
        self._stops.listen()
        self._children.arm()
        when_imported("torch", self._enter)

    def _enter(self) -> None:
        if os.getpid() != self._owner:  # a process that the script forked, such as a data loader's worker
            return
        from numscope.cli.preparing import preparation  # loads click and YAML, which a child process of the script does without
        from numscope.scope.autowatch import AutoWatch

        self._prepare = preparation(self._recipe, self._options.config, self._options.features)
        self._auto = AutoWatch(self._options, prepare=self._met)
        self._auto.__enter__()
        serve(True)

    def _met(self, model: nn.Module) -> None:
        if self._folder and not self._met_any:
            self._met_any = True
            self._write(ChildReport(Watched(), ended=False))
            assert self._auto is not None
            self._auto.options = _apart(self._options)
        if self._prepare is not None:
            self._prepare(model)

    def status_of(self, error: BaseException) -> int | None:
        """The status that numscope's own error ends the process with, also one that a child process has raised; None for another error."""
        status = super().status_of(error)
        if status is None and hasattr(error, "error_pid"):  # torch.multiprocessing.ProcessException
            return next((one.status for one in self._children.reports() if one.status), None)
        return status

    @property
    def finding(self) -> Finding | None:
        """The first one of this process that is about a value that is not finite."""
        findings = [] if self._auto is None else self._auto.coverage.findings
        return next((finding for finding in findings if finding.kind != Kind.DEAD_GRADIENTS), None)

    def stop_behind(self, error: BaseException | None) -> Stop | None:
        return self._stops.behind(error)

    def finish(self, error: BaseException | None) -> int | None:
        self._stops.close()
        before = self.finding
        try:
            if self._auto is not None:
                self._auto.finish(error)
        finally:
            serve(False)
            reports = list(self._children.reports())
            alone = self.finding is not before  # at the end, other ranks are not asked
            self._words = self._sum_up(reports, alone, error) if self._armed else ""
            if self._armed and not self._folder and not isinstance(error, UsageError):
                self._write_empty(reports)
            self._children.close()
            for one in reports:
                if one.page is not None:
                    page.due(one.page)
        return next((one.status for one in reports if one.status and not one.raised), None)

    def _write_empty(self, reports: list[ChildReport]) -> None:
        """The files that were asked for, where nothing was watched: a CI uploads them in any case."""
        asked = self._options.json is not None or self._options.sarif is not None
        if asked and not any(watched.models for watched in (self._watched(), *(one.watched for one in reports))):
            rank = int(os.environ.get("RANK") or 0)
            Delivery(self._options.json, None, "", rank, sarif=self._options.sarif).close([], [], [], 0, 0)

    def last_words(self) -> str:
        """The summary of what was watched, and the next command to type; "" on ranks other than the first that have nothing to add."""
        return self._words

    def report_end(self, status: int, *, raised: bool) -> None:
        watched = self._watched()
        if watched.models or watched.gaps or status:
            self._write(ChildReport(watched, status, raised, page=page.take()))

    def _write(self, report: ChildReport) -> None:
        try:
            report.write(self._folder)
        except OSError:  # the script has ended before
            if report.ended:
                say(last_line(report.watched, (), ""))

    def _watched(self) -> Watched:
        watched = Watched() if self._auto is None else self._auto.coverage.watched()
        watched.gaps += self._children.gaps
        return watched

    def _sum_up(self, reports: list[ChildReport], alone: bool, error: BaseException | None) -> str:
        own = self._watched()
        left = self._children.running() | {one.pid for one in reports if not one.ended}
        if left and not any(one.status for one in reports):  # a process that stops the run ends the others
            own.gaps.append(f"{count(len(left), 'child process')} to the end: still at work, or killed")
        rank = own.rank if own.models else int(os.environ.get("RANK") or 0)
        if rank and own.models and not own.gaps and not alone:
            return ""
        if self._auto is None:
            why = "this process never imported torch"
        elif isinstance(error, UsageError):
            why = "the error above stopped it"
        elif self._auto.num_calls:
            why = "the modules that were called have no parameters"
        else:
            why = "no torch.nn.Module was called"
        seen = [one.watched for one in reports]
        return "\n".join(filter(None, (last_line(own, seen, why), next_step(self._options.log_dir, (own, *seen)))))


def _apart(options: WatchOptions) -> WatchOptions:
    """For a child process that trains by itself, as rank 0: its files have names of their own."""
    from numscope.config.loading import plan_of
    from numscope.distributed.agree import spread

    if spread():
        return options
    name = f"child{'-'.join(map(str, current_process()._identity))}"
    folder = options.log_dir and os.path.join(options.log_dir, name)
    if options.log_dir is None and options.config is not None and plan_of(options.config, options.features)[0].parts:
        from numscope.inspect.recorder import DEFAULT_LOG_DIR

        folder = os.path.join(DEFAULT_LOG_DIR, name)
        say(f"numscope: statistics are written to {folder}")
    stem, suffix = os.path.splitext(options.json or "")
    sarif, end = os.path.splitext(options.sarif or "")
    loggers = tuple(str(destination(one).below(name)) if isinstance(one, str) else one for one in options.loggers)
    return replace(
        options,
        json=options.json and f"{stem}-{name}{suffix}",
        sarif=options.sarif and f"{sarif}-{name}{end}",
        log_dir=folder,
        loggers=loggers,
    )
