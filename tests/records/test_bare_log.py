"""Warnings on stderr where nobody has configured logging."""

from __future__ import annotations

import logging

import pytest

from numscope.records import faults
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


def test_what_a_scripts_own_filter_raises_at_our_records_reaches_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """Filters made for records of the script's alone, which have a field of its own."""
    assert faults.ours()  # which sees to it
    handler = logging.StreamHandler()
    handler.addFilter(lambda record: record.rank == 0)  # type: ignore[attr-defined]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        logging.getLogger("numscope").warning("numscope can't see %d of them", 3)
        with pytest.raises(AttributeError):
            logging.getLogger("train").warning("the script's own record without its field")
    finally:
        root.removeHandler(handler)
    assert capsys.readouterr().err == "numscope: can't see 3 of them\n"
