"""Findings and alerts without statistics: one set of sinks for all models of a process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import numscope
from numscope.records.alert import Alert
from numscope.records.errors import NonFiniteError, UsageError
from numscope.records.finding import Finding
from numscope.sinks.loggers import BaseLogger
from tests.sinks.seen import ALERT


class Kept(BaseLogger):
    def __init__(self) -> None:
        self.findings: list[tuple[Finding, str]] = []
        self.alerts: list[str] = []
        self.num_closed = 0

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        raise AssertionError("there are no statistics")

    def log_alert(self, alert: Alert) -> None:
        self.alerts.append(alert.rule)

    def log_finding(self, finding: Finding, report: str) -> None:
        self.findings.append((finding, report))

    def close(self) -> None:
        self.num_closed += 1


def diverge(model: torch.nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.log(model(torch.zeros(1, 2)).sum() * 0).backward()
    optimizer.step()


def test_logger_gets_findings_with_their_reports_and_alerts() -> None:
    kept, model = Kept(), torch.nn.Linear(2, 1)
    with pytest.raises(NonFiniteError) as caught, numscope.watch(model, loggers=[kept]) as scope:
        scope._watch.alerting.desk.post([ALERT])
        diverge(model)
    ((finding, report),) = kept.findings
    assert finding == caught.value.finding
    assert "\nCulprit  aten.log (loss)\n" in report and "\x1b" not in report
    assert kept.alerts == [ALERT.rule]
    assert kept.num_closed == 1


def test_watches_of_several_models_share_their_sinks() -> None:
    kept = Kept()
    models = [torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)]
    first, second = (numscope.watch(model, loggers=[kept], on_nonfinite="warn") for model in models)
    first.close()
    assert kept.num_closed == 0
    diverge(models[1])
    second.close()
    assert len(kept.findings) == 1
    assert kept.num_closed == 1


def test_logger_that_raises_loses_neither_the_finding_nor_the_run() -> None:
    class Failing(Kept):
        def log_finding(self, finding: Finding, report: str) -> None:
            raise ConnectionError("away")

    model = torch.nn.Linear(2, 1)
    with pytest.raises(NonFiniteError), numscope.watch(model, loggers=[Failing()]):
        diverge(model)


def test_what_is_no_destination_is_refused_and_nothing_stays_on_the_model() -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(UsageError, match=r"^loggers\[0\]: got 'tensorbord:x', expected .* Did you mean 'tensorboard'\?$"):
        numscope.watch(model, loggers="tensorbord:x")
    assert not model._forward_hooks and not model._forward_pre_hooks


SLOW = """
import sys, time, torch, numscope
from numscope.sinks.mlflow import MlflowSink

def slowly(self):
    time.sleep(1)
    self._client = self
    return "run"

MlflowSink._opened = slowly
MlflowSink.parameters = lambda self, values: None  # for which it would load MLflow
MlflowSink.settle = lambda self: self._outbox.settle(0.1)
for method in ("set_tag", "log_text", "set_terminated"):
    setattr(MlflowSink, method, lambda self, run, *args, method=method: print(method, *args, flush=True))
model = torch.nn.Linear(2, 1)
scope = numscope.watch(model, loggers="mlflow", on_nonfinite=sys.argv[1])
torch.log(model(torch.zeros(1, 2)).sum() * 0).backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
if sys.argv[2] == "exit":
    sys.exit(7)
if sys.argv[2] == "error":
    raise ValueError("the script's own")
if sys.argv[2] == "close":
    scope.close()
"""


ENDS = [("raise", "", 1), ("warn", "exit", 7), ("warn", "error", 1), ("warn", "", 0), ("warn", "close", 0)]


@pytest.fixture(scope="module")
def slow_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], subprocess.Popen[str]]]:
    """All at once, since each waits for its service."""
    with contextlib.ExitStack() as stack:
        runs = {}
        for mode, end, _ in ENDS:
            folder, pipe = tmp_path_factory.mktemp("slow"), subprocess.PIPE
            run = subprocess.Popen([sys.executable, "-c", SLOW, mode, end], cwd=folder, stdout=pipe, stderr=pipe, text=True)
            runs[mode, end] = stack.enter_context(run)
            stack.callback(run.kill)
        yield runs


@pytest.mark.parametrize(("mode", "end", "status"), ENDS)
def test_finding_reaches_a_service_that_is_slower_to_start_than_the_run_ends(mode: str, end: str, status: int, slow_runs: Any) -> None:
    out, err = slow_runs[mode, end].communicate(timeout=100)
    assert slow_runs[mode, end].returncode == status, err
    told = out.splitlines()
    assert [line for line in told if line.startswith("set_tag numscope/finding ")], (told, err)
    assert any(line.startswith("log_text ") for line in told)
    assert told[-1] == "set_terminated FAILED"
    assert "may not have arrived" not in err
