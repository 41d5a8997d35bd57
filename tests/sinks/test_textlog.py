"""The statistics log, read back as text."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from numscope.records.errors import UsageError
from numscope.sinks.logs import TextLog, text_of
from tests.sinks.seen import observation
from tests.warm import COLD

LINE = re.compile(r"INFO - (\S+) \t\t\t\t iteration=(\d{6,}) \t\t\t\t value=(\S+)")


def written(log_dir: Path, rank: int = 0) -> str:
    return (log_dir / "debug_statistics_logs" / f"globalrank-{rank}.log").read_text(encoding="utf-8")


def test_line_is_as_documented(tmp_path: Path) -> None:
    log = TextLog(tmp_path, 3)
    log.write([observation(100, "decoder.1.mlp.fc1", max=2.5, l1_norm=3e-7)])
    assert written(tmp_path, 3) == (
        "INFO - decoder.1.mlp.fc1_activation_max \t\t\t\t iteration=000100 \t\t\t\t value=2.5\n"
        "INFO - decoder.1.mlp.fc1_activation_l1_norm \t\t\t\t iteration=000100 \t\t\t\t value=3e-07\n"
    )
    log.close()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 / 3, "0.333333333"),
        (3e-7, "3e-07"),  # four decimals would show 0.0000
        (16777217.0, "16777217"),  # above float32's whole numbers
        (12345678901, "12345678901"),  # counts keep all their digits
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (0.0, "0"),
        (1e-45, "1e-45"),
    ],
)
def test_value_has_nine_significant_digits(value: float, text: str) -> None:
    assert text_of(value) == text


def test_histogram_is_one_line_of_its_non_empty_bins(tmp_path: Path) -> None:
    counts = [0.0] * 256
    counts[0], counts[115], counts[116], counts[255] = 3.0, 34.0, 50.0, 1.0
    log = TextLog(tmp_path, 0)
    log.write([observation(exponents=counts)])
    assert written(tmp_path).endswith("_exponents \t\t\t\t iteration=000000 \t\t\t\t value=-127:3,-12:34,-11:50,128:1\n")
    log.close()


def test_value_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    log = TextLog(tmp_path, 0)
    log.write([observation(mean=None, max=1.0)])
    assert [match[1] for match in LINE.finditer(written(tmp_path))] == ["fc1_activation_max"]
    log.close()


def test_layer_name_cannot_end_a_line_or_color_a_terminal(tmp_path: Path) -> None:
    log = TextLog(tmp_path, 0)
    log.write([observation(0, "evil\nINFO - fc9\x1b[31m", max=1.0)])
    text = written(tmp_path)
    assert text.count("\n") == 1
    assert r"evil\nINFO - fc9\x1b[31m_activation_max" in text
    log.close()


def test_restarted_job_appends(tmp_path: Path) -> None:
    for step in (1, 2):
        log = TextLog(tmp_path, 0)
        log.write([observation(step, max=1.0)])
        log.close()
    assert [match[2] for match in LINE.finditer(written(tmp_path))] == ["000001", "000002"]


def test_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^log_dir: got '.*file', expected a folder that can be written to: .*Not a directory"):
        TextLog(tmp_path / "file", 0)


def test_killed_process_has_written_every_step_it_was_through_with(tmp_path: Path) -> None:
    code = (
        "import sys; from numscope.sinks.logs import TextLog; from tests.sinks.seen import observation\n"
        "log = TextLog(sys.argv[1], 0)\n"
        "for step in range(5):\n"
        "    log.write([observation(step, max=1.0)])\n"
        "print('through', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([COLD, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "through\n"
        os.kill(process.pid, signal.SIGKILL)
    assert [int(match[2]) for match in LINE.finditer(written(tmp_path))] == [0, 1, 2, 3, 4]
