"""Which sinks a run gets, and what becomes of one that fails."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import numscope
from numscope.page.frame import load
from numscope.records.alert import Alert
from numscope.records.errors import UsageError
from numscope.records.observation import Observation
from numscope.sinks.loggers import BaseLogger, Logger, Sink
from numscope.sinks.logs import DebugLog
from numscope.sinks.parquet import ParquetSink
from numscope.sinks.part_files import PartFiles
from tests.sinks.seen import ALERT, observation, opened


class Kept(BaseLogger):
    def __init__(self) -> None:
        self.lines: list[tuple[str, float, int]] = []

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.lines.append((name, value, iteration))


class OnlyLogScalar:
    """What a user of another tool brings: no base class, no flush, no close."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.names.append(name)


class Failing(BaseLogger):
    def __init__(self) -> None:
        self.calls = 0

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self.calls += 1
        raise ConnectionError("the dashboard is away")


class Held:
    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.closed = False

    def write(self, observations: Sequence[Observation]) -> None:
        self.seen += observations

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Said(DebugLog):
    """Keeps warnings."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(None, 0)
        self._said = said

    def say(self, text: str, level: int = logging.INFO) -> None:
        self._said.append(text)


def files(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.rglob("*") if path.is_file()}


def test_folder_gets_text_and_parquet(tmp_path: Path) -> None:
    sinks = opened(log_dir=tmp_path)
    sinks.write([observation(max=1.0)])
    sinks.close()
    assert files(tmp_path) == {"debug_statistics_logs", "statistics", "ranks", tmp_path.name}


def test_text_can_be_left_out(tmp_path: Path) -> None:
    sinks = opened(log_dir=tmp_path, text=False)
    sinks.close()
    assert "debug_statistics_logs" not in files(tmp_path)


def test_without_a_folder_there_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sinks = opened()
    sinks.write([observation(max=1.0)])
    sinks.close()
    assert files(tmp_path) == set()


def test_logger_hears_every_number_under_its_name() -> None:
    kept = Kept()
    sink = opened(loggers=[kept])
    sink.write([observation(7, max=2.0, num_nan=3, mean=None, exponents=[1.0] * 256), observation(7, "fc2", "wgrad", std=0.5)])
    assert kept.lines == [("fc1_activation_max", 2.0, 7), ("fc1_activation_num_nan", 3, 7), ("fc2_wgrad_std", 0.5, 7)]


def test_logger_needs_log_scalar_alone() -> None:
    logger = OnlyLogScalar()
    assert isinstance(logger, Logger)
    sink = opened(loggers=[logger])
    sink.write([observation(max=1.0)])
    sink.flush()
    sink.close()
    assert logger.names == ["fc1_activation_max"]


def test_sink_of_ones_own_gets_observations() -> None:
    held = Held()
    assert isinstance(held, Sink)
    sinks = opened(loggers=[held])
    seen = observation(max=1.0)
    sinks.describe([{"name": "fc1"}])  # it does not want to know
    sinks.write([seen])
    sinks.close()
    assert held.seen == [seen]
    assert held.closed


def test_logger_that_raises_is_disabled_and_that_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failing, kept, log = Failing(), Kept(), DebugLog(tmp_path, 0)
    sinks = opened(loggers=[failing, kept], log=log)
    for step in range(3):
        sinks.write([observation(step, max=1.0)])
    sinks.close()
    assert failing.calls == 1
    assert len(kept.lines) == 3
    sentence = "The logger Failing is off from here on: it raised ConnectionError: the dashboard is away. Training goes on."
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [sentence]
    assert (tmp_path / "debug_logs" / "globalrank-0.log").read_text().count(sentence) == 1


def test_interrupt_passes_through_a_guard() -> None:
    class Interrupted(Held):
        def write(self, observations: Sequence[Observation]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened(loggers=[Interrupted()]).write([])


@pytest.mark.parametrize(
    ("loggers", "message"),
    [
        (
            ["wandbb"],
            r"^loggers\[0\]: got 'wandbb', expected an object with log_scalar.*, or one of tensorboard.*mlflow.* Did you mean 'wandb'\?$",
        ),
        ([Kept], r"^loggers\[0\]: got the class Kept, expected .* Make one first: Kept\(…\)\.$"),
        ([Held, 3], r"^loggers\[0\]: got the class Held, expected "),
        (
            [3],
            r"^loggers\[0\]: got 3, expected an object with log_scalar\(name, value, iteration\), TensorBoard's writer, a sink with write, "
            "flush and close, or one of",
        ),
    ],
)
def test_what_is_no_logger_is_a_usage_error(loggers: list[object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(loggers=loggers)


def test_without_pyarrow_there_are_text_logs_and_one_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from numscope.sinks.logs import DebugLog\n"
        "from tests.sinks.seen import observation, opened\n"
        "sinks = opened(log_dir=sys.argv[1], log=DebugLog(sys.argv[1], 0))\n"
        "sinks.write([observation(max=1.0)]); sinks.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    sentence = (
        "no Parquet files for this run, only text logs: pyarrow is not installed. "
        "For `numscope stats` and `numscope.load`: pip install 'numscope[runs]'."
    )
    assert done.stderr == f"numscope: {sentence}\n"
    assert sentence in (tmp_path / "debug_logs" / "globalrank-0.log").read_text()
    assert files(tmp_path) == {"debug_logs", "debug_statistics_logs"}


def test_asking_for_a_logger_that_is_not_installed_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['wandb'] = None\nfrom tests.sinks.seen import opened\n"
    code += "opened(loggers=['wandb'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UsageError: loggers: got 'wandb', but wandb is not installed. Install it: pip install 'numscope[wandb]'." in done.stderr


def test_opening_loads_no_library_that_was_not_asked_for() -> None:
    absent = ("pyarrow", "tensorboard", "wandb", "mlflow", "torch", "numpy")
    code = f"import numscope.sinks.opening, sys; print([m for m in {absent} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_full_disk_is_said_once_and_recording_goes_on_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, said = True, []
    original = PartFiles.write

    def write(self: PartFiles, *args: Any) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, *args)

    monkeypatch.setattr(PartFiles, "write", write)
    sink = opened(loggers=[ParquetSink(tmp_path, 0, {}, flush_s=0.0)], log=Said(said))
    for step in range(5):
        full = step < 3
        sink.write([observation(step=step)])
        sink.flush()
    sink.close()
    assert len(said) == 1 and "tried again" in said[0] and "No space left" in said[0]
    assert load(tmp_path).step.tolist() == [0, 1, 2, 3, 4]


def test_rows_of_a_disk_that_stays_full_are_dropped_before_they_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    monkeypatch.setattr(PartFiles, "write", write)
    parquet = ParquetSink(tmp_path, 0, {}, flush_s=0.0, flush_cells=100)
    sink = opened(loggers=[parquet], log=Said(said))
    for step in range(1000):
        sink.write([observation(step=step)])
        sink.flush()
        assert len(parquet._fields) <= 900
    sink.close()
    assert len(said) == 2 and "are dropped" in said[1]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_is_full_at_the_start_costs_the_files_and_not_the_run(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch._dynamo  # it makes a folder when it is imported

    def makedirs(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "makedirs", makedirs)
    options = {"config": {"s": {"enabled": True, "layers": {"layer_types": "all"}, "statistics": {"enabled": True, "stats": ["max"]}}}}
    options["config"]["s"]["statistics"]["tensors"] = ["weight"]
    if number == errno.EACCES:  # the user's to mend
        with pytest.raises(UsageError, match="expected a folder that can be written to"):
            numscope.watch(nn.Linear(2, 2), log_dir=str(tmp_path / "logs"), **options)
        return
    with numscope.watch(model := nn.Linear(2, 2), log_dir=str(tmp_path / "logs"), **options):
        model(torch.ones(1, 2)).sum().backward()
        torch.optim.SGD(model.parameters(), 0.1).step()


def test_a_folder_in_which_no_run_can_be_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "statistics").symlink_to("/dev/null")
    with pytest.raises(UsageError, match=r"log_dir: got '.*', expected a folder that can be written to: "):
        opened(log_dir=tmp_path)


def test_logger_that_takes_alerts_gets_them_and_one_that_fails_at_them_is_off(caplog: pytest.LogCaptureFixture) -> None:
    class Mine:
        def __init__(self) -> None:
            self.taken: list[Alert] = []

        def log_scalar(self, name: str, value: float, iteration: int, **kwargs: object) -> None: ...

        def log_alert(self, alert: Alert) -> None:
            self.taken.append(alert)
            if len(self.taken) > 1:
                raise RuntimeError("no more")

    mine = Mine()
    sink = opened(loggers=[mine])
    for _ in range(3):
        sink.alert(ALERT)
    assert mine.taken == [ALERT, ALERT]
    assert "The logger Mine is off from here on: it raised RuntimeError: no more." in caplog.text


def test_destination_that_is_named_twice_is_opened_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    named = [f"tensorboard:{tmp_path}/a", f"tensorboard:{tmp_path}/b", f"tensorboard:{tmp_path}/./a"]
    sinks = opened(loggers=named)
    sinks.alert(ALERT)
    sinks.close()
    assert sorted(path.parent.name for path in tmp_path.rglob("events.*")) == ["a", "b"]
