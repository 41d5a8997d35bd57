"""The debug log, read back as text."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from numscope.records.errors import UsageError
from numscope.sinks.logs import DebugLog
from tests.sinks.seen import ALERT, ALERT_LINE


def written(log_dir: Path, rank: int = 0) -> list[str]:
    return (log_dir / "debug_logs" / f"globalrank-{rank}.log").read_text(encoding="utf-8").splitlines()


def test_line_has_time_level_and_text_and_is_there_at_once(tmp_path: Path) -> None:
    log = DebugLog(tmp_path, 7)
    log.say("Layer decoder.0.fc1: max, min of activation every 100 steps.")
    log.say("Loggers are off.", logging.WARNING)
    first, second = written(tmp_path, 7)
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(rf"{stamp} - INFO - Layer decoder\.0\.fc1: max, min of activation every 100 steps\.", first)
    assert re.fullmatch(rf"{stamp} - WARNING - Loggers are off\.", second)
    log.close()


def test_alert_is_a_warning_in_the_file_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = DebugLog(tmp_path, 0)
    log.alert(ALERT)
    log.close()
    assert (tmp_path / "debug_logs" / "globalrank-0.log").read_text(encoding="utf-8").endswith(f" - WARNING - alert: {ALERT_LINE}\n")
    assert not caplog.records  # the terminal has it already


def test_longer_text_is_indented_and_cannot_pass_for_a_line_of_its_own(tmp_path: Path) -> None:
    log = DebugLog(tmp_path, 0)
    log.say("Config:\nlayers:\n\ttab\x1b[31m")
    assert [line.partition(" - INFO - ")[2] or line for line in written(tmp_path)] == ["Config:", "    layers:", r"        tab\x1b[31m"]
    log.close()


def test_without_a_folder_python_logging_alone_hears_it(caplog: pytest.LogCaptureFixture) -> None:
    log = DebugLog(None, 0)
    with caplog.at_level(logging.INFO, "numscope"):
        log.say("Nothing matched.", logging.WARNING)
    log.close()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", "Nothing matched.")]


def test_told_after_close_harms_nobody(tmp_path: Path) -> None:
    log = DebugLog(tmp_path, 0)
    log.close()
    log.say("late")
    log.close()
    assert written(tmp_path) == []


def test_restarted_job_appends(tmp_path: Path) -> None:
    for text in ("first", "second"):
        log = DebugLog(tmp_path, 0)
        log.say(text)
        log.close()
    assert [line.rpartition(" ")[2] for line in written(tmp_path)] == ["first", "second"]


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^log_dir: got '.*file', expected a folder that can be written to"):
        DebugLog(tmp_path / "file", 0)


def test_full_disk_is_said_once_and_later_lines_are_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("no device that is always full")
    (tmp_path / "debug_logs").mkdir()
    (tmp_path / "debug_logs" / "globalrank-0.log").symlink_to(device)
    log = DebugLog(tmp_path, 0)
    log.say("one")
    log.say("two")
    log._file = (tmp_path / "room").open("w", 1)  # the disk has room again
    log.say("three")
    log.close()
    assert sum("can't write its debug log: [Errno 28]" in r.getMessage() for r in caplog.records) == 1
    assert (tmp_path / "room").read_text().endswith("three\n")
