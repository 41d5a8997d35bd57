"""Says at the end of a run how many tests were left out because hosts can't be made here, and why: a pass without them is half a pass."""

from __future__ import annotations

import pytest

from tests.doctor import netns


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reason = netns.missing()
    left_out = [report for report in terminalreporter.getreports("skipped") if reason and reason in str(report.longrepr)]
    if left_out:
        terminalreporter.write_line(f"doctor: {len(left_out)} tests between hosts were not run: {reason}")
