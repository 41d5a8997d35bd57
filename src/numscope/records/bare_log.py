"""How warnings of the logger ``numscope`` look on stderr where the program has not configured logging: Python would print them bare."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

_NAME = "numscope: "


class BareLog(logging.StreamHandler):  # type: ignore[type-arg]  # generic since Python 3.11
    """Prints warnings with the name in front, and nothing where the program has handlers of its own."""

    def __init__(self) -> None:
        logging.Handler.__init__(self, logging.WARNING)

    @property
    def stream(self) -> TextIO:  # as it is by then: a program may replace it
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers and logging.getLogger("numscope").handlers == [self]:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        return worded(super().format(record))


def worded(text: str) -> str:
    """With the name in front."""
    return text if text.startswith(_NAME) else _NAME + text.removeprefix("numscope ")


def install() -> None:
    """Give the logger its handler, unless it has one."""
    log = logging.getLogger("numscope")
    if not log.handlers:
        log.addHandler(BareLog())
