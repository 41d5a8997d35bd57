"""Where a process's alerts and findings go if no statistics are collected: one set of sinks, whatever the number of models."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from numscope.sinks.opening import Sinks, open_sinks

log = logging.getLogger("numscope")

_open: dict[tuple[Any, ...], Outlets] = {}  # by process and loggers


class Outlets(Sinks):
    """The sinks of one process, for all who have taken them; closed with the last.

    Args:
        loggers, tb_writer: as ``open_sinks`` takes them. The script's own runs hear too.
        log_dir: for what a library writes beside its runs.
    """

    def __init__(self, loggers: Sequence[object], tb_writer: Any, log_dir: str | None, rank: int) -> None:
        self._num_users = 0
        self._key: tuple[Any, ...] = ()
        named = open_sinks(log_dir=None, rank=rank, tb_writer=tb_writer, loggers=loggers, run={}, folder=log_dir)
        super().__init__(named, loggers, lambda text, level: log.log(level, "%s", text))

    @classmethod
    def take(cls, loggers: Sequence[object], tb_writer: Any, log_dir: str | None, rank: int) -> Outlets:
        """Those of this process; each who takes them closes them.

        Raises: UsageError for anything that is no logger.
        """
        key = (os.getpid(), *(one if isinstance(one, str) else id(one) for one in loggers), id(tb_writer))
        if key not in _open:
            _open[key] = cls(loggers, tb_writer, log_dir, rank)
            _open[key]._key = key
        _open[key]._num_users += 1
        return _open[key]

    def close(self) -> None:
        """Let go of them."""
        self._num_users -= 1
        if self._num_users == 0:
            self.end()

    def end(self) -> None:
        """Close them for all: the process ends."""
        if _open.pop(self._key, None) is self:
            super().close()
