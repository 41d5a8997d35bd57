"""MLflow: statistics as metrics, alerts as tags, findings as tags with their reports as artifacts."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from numscope.records.alert import Alert
from numscope.records.faults import ours, told
from numscope.records.finding import Finding
from numscope.records.observation import Names, Observation
from numscope.records.words import escape
from numscope.sinks.destinations import scripts_run
from numscope.sinks.loggers import Sink
from numscope.sinks.outbox import PATIENCE_S, Outbox

PREFIX = "numscope/"
MAX_BATCH = 1000  # metrics that a tracking server takes at once
MAX_KEY = 250
MAX_TAG = 5000
MAX_PARAMS = 100  # at once
NEW_S = 60.0  # wait for a run of our own as it ends: MLflow may be making the tables of a new database
_REFUSED = re.compile(r"[^\w.\- :]", re.ASCII)
_BRACKETS = re.compile(r"\[([^\]]*)\]")

log = logging.getLogger("numscope")


class MlflowSink(Sink):
    """Logs the metric ``<tensor>.<stat>/<layer>``, without histograms, which MLflow lacks.

    All is sent from a thread; a failure shows with a later call or at the end.

    Args:
        run_id: the run to log to; None: the script's active run, else a new one, which does not become active.
        place: an experiment's name or a tracking server's address, for a new run. The script's run is used unless the address differs.
        names: of the metrics; ``te``: behind ``numscope/``.
    """

    def __init__(self, run_id: str | None = None, place: str = "", names: Names = "grouped") -> None:
        self._place = place
        self._names: Names = names
        self._prefix = PREFIX if names == "te" else ""
        if run_id is None and (active := scripts_run("mlflow")) is not None:
            elsewhere = is_address(place) and place != sys.modules["mlflow"].get_tracking_uri()
            run_id = None if elsewhere else active.info.run_id
        self._run_id = run_id
        self._is_ours = run_id is None
        self._client: Any = None
        self._num_alerts: Counter[str] = Counter()  # by rule
        self._num_findings = 0
        self._outbox = Outbox("numscope-mlflow")

    def write(self, observations: Sequence[Observation]) -> None:
        now = int(time.time() * 1000)
        metrics = [
            (f"{self._prefix}{seen.named(label, self._names)}", value, now, seen.step)
            for seen in observations
            for label, value in seen.values.items()
            if isinstance(value, int | float)
        ]
        if metrics:
            self._outbox.put(partial(self._send, metrics))

    def parameters(self, values: Mapping[str, str]) -> None:
        """Log them as ``numscope/<name>``, but for those that the run has: MLflow lets none be changed."""
        self._outbox.put(partial(self._log_parameters, {key_of(f"{PREFIX}{name}"): value for name, value in values.items()}))

    def alert(self, alert: Alert) -> None:
        """Set the rule's tag, ``numscope/alert.<rule>``, to its latest alert, with how many there were."""
        self._num_alerts[alert.rule] += 1
        num = self._num_alerts[alert.rule]
        self._tag(f"alert.{alert.rule}", f"{escape(alert.line())}{f' ({num} so far)' if num > 1 else ''}")

    def finding(self, finding: Finding, report: str) -> None:
        """Set the tag ``numscope/finding`` to the finding's headline, and keep its report as ``numscope/finding-<n>.txt``."""
        self._num_findings += 1
        self._tag("finding", escape(finding.headline()))
        file = f"numscope/finding-{self._num_findings}.txt"
        self._outbox.put_news(lambda: self._with_run("log_text", report, file))

    def settle(self) -> None:
        self._outbox.settle()

    def close(self) -> None:
        status = "FAILED" if self._num_findings else "FINISHED"
        last = (lambda: self._with_run("set_terminated", status)) if self._is_ours else None
        self._outbox.drain(NEW_S if self._is_ours else PATIENCE_S, last=last)
        if self._outbox.num_left_out:
            raise RuntimeError(f"the tracking server was too slow: {self._outbox.num_left_out} batches of metrics were left out")

    def _tag(self, name: str, text: str) -> None:
        self._outbox.put_news(lambda: self._with_run("set_tag", key_of(f"{PREFIX}{name}"), text[:MAX_TAG]))

    def _opened(self) -> str:
        """On the outbox's thread: loading the library takes a second or two."""
        if self._client is None:
            import mlflow

            uri = self._place if is_address(self._place) else mlflow.get_tracking_uri()
            self._client = mlflow.MlflowClient(tracking_uri=uri)
        if self._run_id is None:
            # A fluent start_run would become the script's active run.
            self._run_id = self._client.create_run(self._experiment()).info.run_id
        assert self._run_id is not None
        return self._run_id

    def _experiment(self) -> str:
        if self._place and not is_address(self._place):
            known = self._client.get_experiment_by_name(self._place)
            return str(self._client.create_experiment(self._place) if known is None else known.experiment_id)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
        known = self._client.get_experiment_by_name(name) if name else None
        return os.environ.get("MLFLOW_EXPERIMENT_ID", "0") if known is None else str(known.experiment_id)

    def _send(self, metrics: Sequence[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for start in range(0, len(metrics), MAX_BATCH):
            self._with_run("log_batch", [Metric(key_of(name), *rest) for name, *rest in metrics[start : start + MAX_BATCH]])

    def _log_parameters(self, values: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        run_id = self._opened()
        try:
            known = self._client.get_run(run_id).data.params
            news = [Param(key, value) for key, value in values.items() if key not in known]
            for start in range(0, len(news), MAX_PARAMS):
                self._client.log_batch(run_id, params=news[start : start + MAX_PARAMS])
        except ours() as error:  # statistics and findings may arrive all the same
            log.warning("MLflow has not taken all of the run's parameters: %s", told(error))

    def _with_run(self, method: str, *args: object) -> None:
        run_id = self._opened()
        getattr(self._client, method)(run_id, *args)


def is_address(place: str) -> bool:
    """Whether a destination's place is a tracking server's or a store's address; else it is an experiment's name."""
    return "://" in place or place.startswith(("databricks", "file:"))


def key_of(name: str) -> str:
    """A key that MLflow accepts, also as a file's path: ``weight[a]`` becomes ``weight.a``, other characters ``_``."""
    group, slash, rest = name.partition("/")
    rest = _REFUSED.sub("_", _BRACKETS.sub(r".\1", rest))
    key = _REFUSED.sub("_", _BRACKETS.sub(r".\1", group)) + slash + (rest if rest.strip(".") else "_" * max(1, len(rest)))
    if len(key) > MAX_KEY:
        key = f"{key[: MAX_KEY - 17]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return key
