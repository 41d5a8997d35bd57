"""MLflow: statistics as metrics of the active run."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from numscope.records.alert import Alert
from numscope.records.observation import Observation
from numscope.records.words import escape
from numscope.sinks.protocol import Sink

PREFIX = "numscope/"
MAX_BATCH = 1000  # metrics that a tracking server takes at once
MAX_WAITING = 64  # batches in flight before a step waits for the oldest
MAX_KEY = 250
MAX_TAG = 5000
_REFUSED = re.compile(r"[^\w.\- :]", re.ASCII)
_BRACKETS = re.compile(r"\[([^\]]*)\]")


class MlflowSink(Sink):
    """Logs the metric ``numscope/<layer>_<tensor>_<stat>``, without histograms, which MLflow lacks.

    Metrics are sent from a thread; a failure shows with a later batch or at the end.

    Args:
        run_id: the run to log to; None: the run active at the first write, else a new one, which does not become active.
    """

    def __init__(self, run_id: str | None = None) -> None:
        self._run_id = run_id
        self._is_ours = False
        self._client: Any = None
        self._num_alerts: Counter[str] = Counter()  # by rule
        self._waiting: deque[Future[Any]] = deque()
        # MLflow's own asynchronous logging has ten threads, which deliver steps in any order.
        self._thread = ThreadPoolExecutor(1, "numscope-mlflow")

    def write(self, observations: Sequence[Observation]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [
            Metric(metric_key(f"{seen.name}_{label}"), value, now, seen.step)
            for seen in observations
            for label, value in seen.values.items()
            if isinstance(value, int | float)
        ]
        if not metrics:
            return
        run_id = self._opened()
        for start in range(0, len(metrics), MAX_BATCH):
            self._waiting.append(self._thread.submit(self._client.log_batch, run_id, metrics=metrics[start : start + MAX_BATCH]))
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > MAX_WAITING):
            self._waiting.popleft().result()

    def alert(self, alert: Alert) -> None:
        """Set the rule's tag, ``numscope/alert.<rule>``, to its latest alert, with how many there were."""
        self._num_alerts[alert.rule] += 1
        num = self._num_alerts[alert.rule]
        text = f"{escape(alert.line())}{f' ({num} so far)' if num > 1 else ''}"
        run_id = self._opened()
        self._waiting.append(self._thread.submit(self._client.set_tag, run_id, metric_key(f"alert.{alert.rule}"), text[:MAX_TAG]))

    def close(self) -> None:
        while self._waiting:
            self._waiting.popleft().result()
        self._thread.shutdown()
        if self._is_ours:
            self._client.set_terminated(self._run_id)

    def _opened(self) -> str:
        if self._client is None:
            import mlflow

            self._client = mlflow.MlflowClient()
            active = mlflow.active_run()
            if self._run_id is None and active is not None:
                self._run_id = active.info.run_id
        if self._run_id is None:
            # MLflow's default experiment. A fluent start_run would become the script's active run.
            experiment = os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
            self._run_id = self._client.create_run(experiment).info.run_id
            self._is_ours = True
        assert self._run_id is not None
        return self._run_id


def metric_key(name: str) -> str:
    """A key that MLflow accepts, also as a file name: ``weight[a]`` becomes ``weight.a``, other characters ``_``."""
    key = PREFIX + _REFUSED.sub("_", _BRACKETS.sub(r".\1", name))
    if len(key) > MAX_KEY:
        key = f"{key[: MAX_KEY - 17]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return key
