"""Ray Train: each worker is watched, and the driver gets one finding."""

from __future__ import annotations

import functools
import inspect
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numscope.records.faults import ours, told

try:
    import ray
    from ray import train
except ImportError as error:
    raise ImportError(f"numscope.integrations.ray: {error}. Install it: pip install 'ray[train]'.") from error

from numscope.config.options import WatchOptions
from numscope.inspect.recorder import DEFAULT_LOG_DIR
from numscope.integrations.reports import Reports
from numscope.probe.patching import patch
from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.finding import Finding
from numscope.records.observation import Observation
from numscope.records.site import Phase
from numscope.report.text import plain_text, render
from numscope.scope.autowatch import AutoWatch
from numscope.sinks.loggers import Sink

log = logging.getLogger("numscope")
_ORDER = list(Phase)

SENT_S = 2.0  # the longest wait of a worker for its finding to be sent


class _ToBoard(Sink):
    """Sends a finding to the driver at once: a worker may be killed before its loop ends. Alerts are sent at the loop's end.

    *Cost:* at a finding the worker waits for ``SENT_S`` at most.
    """

    def __init__(self, board: Any) -> None:
        self._board = board

    def write(self, observations: Sequence[Observation]) -> None:
        return None

    def finding(self, finding: Finding, report: str) -> None:
        ray.wait([self._board.add.remote([finding], [])], timeout=SENT_S)

    def close(self) -> None:
        return None


class WatchedLoop:
    """A training loop for a trainer, with its workers' findings.

    Args:
        loop: the training loop.
        options: those of ``numscope.watch``.
    """

    def __init__(self, loop: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, loop)
        self.__signature__ = inspect.signature(loop)  # Ray looks whether it takes a configuration
        self._loop, self._options = loop, options
        self._board: Any = None
        self._told: tuple[list[Finding], list[Alert]] | None = None  # the board's latest answer

    @property
    def findings(self) -> list[Finding]:
        """Escaped findings, the earliest first; a finding that all ranks of a step agree on is here once."""
        return sorted(self._reported()[0], key=lambda finding: (finding.step, _ORDER.index(finding.phase), finding.rank))

    @property
    def finding(self) -> Finding | None:
        """The first of ``findings``."""
        return next(iter(self.findings), None)

    def report(self) -> str:
        """The finding as its worker has printed it; "" for none."""
        finding = self.finding
        return "" if finding is None else plain_text(render(finding), io.StringIO())

    @property
    def alerts(self) -> list[Alert]:
        """The workers' alerts, in the order of steps."""
        return sorted(self._reported()[1], key=lambda alert: alert.step)

    def _reported(self) -> tuple[list[Finding], list[Alert]]:
        if self._board is not None and not self._ask() and self._told is None:
            raise UsageError("watched(…): what the workers have found has gone with Ray's cluster. Read it before the cluster ends.")
        return self._told or ([], [])

    def _ask(self) -> bool:
        """Ask the board, which goes with Ray's cluster. Returns: whether it has answered."""
        if not ray.is_initialized():  # else asking would start a new cluster
            return False
        try:
            self._told = ray.get(self._board.all.remote())
        except ours():
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        if ray.is_initialized() and (self._board is None or not self._ask()):  # the trainer is sending the loop to workers
            self._board, self._told = ray.remote(num_cpus=0)(Reports).remote(), None

            def shutdown(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
                undo()
                self._ask()
                return original(*args, **kwargs)

            undo = patch(ray, "shutdown", shutdown)
        return {**self.__dict__, "_told": None}

    def __call__(self, *config: Any) -> Any:
        options = WatchOptions.of(**{**_log_place(self._options), **self._options})
        if self._board is not None:
            options = replace(options, loggers=(*options.loggers, _ToBoard(self._board)))
        watch = AutoWatch(options)
        try:
            with watch:
                return self._loop(*config)
        finally:
            if self._board is not None:
                alerts = [alert for scope in watch.scopes for alert in scope.alerts]
                try:
                    ray.get(self._board.add.remote(watch.coverage.findings, alerts))
                except ours() as error:  # the driver or its node may be gone: no reason for the loop to fail
                    log.warning("The driver could not be told what this worker has found: %s", told(error))


def watched(train_loop_per_worker: Callable[..., Any], **options: Any) -> WatchedLoop:
    """A training loop for ``TorchTrainer`` in which numscope watches each model that is called.

    Where a worker finds a non-finite value all workers stop, and ``trainer.fit()`` fails as with any error of the loop. What was found is
    then in ``findings`` of the loop that this returns. With ``on_nonfinite="warn"`` training goes on, and it is there as well.

    Args:
        train_loop_per_worker: as ``TorchTrainer`` takes it, with or without a configuration.
        options: those of ``numscope.watch``. Statistics go into the run's folder unless ``log_dir`` says otherwise.

    Raises: UsageError for a wrong option.
    """
    WatchOptions.of(**options)
    return WatchedLoop(train_loop_per_worker, options)


def _log_place(options: dict[str, Any]) -> dict[str, str]:
    """Ray's workers have a folder of their own, which goes: what is to last belongs to where the run is kept, if that is a folder."""
    if options.get("config") is None:
        return {}
    storage = train.get_context().get_storage()
    if getattr(storage.storage_filesystem, "type_name", "") != "local":
        return {"log_dir": DEFAULT_LOG_DIR}
    return {"log_dir": f"{storage.experiment_fs_path}/numscope"}
