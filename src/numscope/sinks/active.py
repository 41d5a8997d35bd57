"""Alerts and findings to runs of Weights & Biases and MLflow that the script has begun, where nobody asked for statistics there."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from numscope.records.alert import Alert
from numscope.records.finding import Finding
from numscope.records.observation import Observation
from numscope.sinks.protocol import Sink

if TYPE_CHECKING:
    from numscope.sinks.mlflow import MlflowSink
    from numscope.sinks.wandb import WandbSink


class ActiveRuns(Sink):
    """Sends alerts and findings, and nothing else. It imports neither library: a script that has a run has imported its own.

    Args:
        without: loggers; libraries among them have a sink of their own.
    """

    def __init__(self, without: Collection[object] = ()) -> None:
        self._without = [one.partition(":")[0] for one in without if isinstance(one, str)]
        self._mlflow: dict[str, MlflowSink] = {}  # by run

    def write(self, observations: Sequence[Observation]) -> None:
        return None

    def alert(self, alert: Alert) -> None:
        """Send it to each run that is active now."""
        for sink in self._active():
            sink.alert(alert)

    def finding(self, finding: Finding, report: str) -> None:
        """Send it to each run that is active now."""
        for sink in self._active():
            sink.finding(finding, report)

    def settle(self) -> None:
        for sink in self._mlflow.values():
            sink.settle()

    def _active(self) -> Iterator[MlflowSink | WandbSink]:
        wandb = None if "wandb" in self._without else sys.modules.get("wandb")
        if getattr(wandb, "run", None) is not None:
            from numscope.sinks.wandb import WandbSink

            yield WandbSink(wandb.run)  # type: ignore[union-attr]
        mlflow = None if "mlflow" in self._without else sys.modules.get("mlflow")
        active = getattr(mlflow, "active_run", lambda: None)()
        if active is not None:
            from numscope.sinks.mlflow import MlflowSink

            run_id = active.info.run_id
            if run_id not in self._mlflow:
                self._mlflow[run_id] = MlflowSink(run_id)
            yield self._mlflow[run_id]

    def close(self) -> None:
        while self._mlflow:
            self._mlflow.popitem()[1].close()
