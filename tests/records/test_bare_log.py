"""Warnings on stderr where nobody has configured logging."""

from __future__ import annotations

import logging

import pytest

from numscope.records.bare_log import BareLog


@pytest.mark.parametrize("text", ["half is left out", "numscope: half is left out", "numscope half is left out"])
def test_warnings_have_one_beginning_where_no_logging_is_configured(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, root = logging.getLogger("numscope"), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(log, "handlers", [one for one in log.handlers if isinstance(one, BareLog)])
    log.warning(text)
    log.info("for nobody")
    assert capsys.readouterr().err == "numscope: half is left out\n"
    root.addHandler(logging.NullHandler())  # the program's own
    log.warning(text)
    assert capsys.readouterr().err == ""
