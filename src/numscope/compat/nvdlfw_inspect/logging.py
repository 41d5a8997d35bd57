"""``nvdlfw_inspect.logging``: what loggers of a user's own derive from."""

from __future__ import annotations

from typing import Any

from numscope.sinks.loggers import BaseLogger

__all__ = ["BaseLogger", "wrap_tensorboard_writer"]


class _Wrapped(BaseLogger):
    def __init__(self, tb_writer: Any) -> None:
        self._writer = tb_writer

    def log_scalar(self, name: str, value: float, iteration: int, **kwargs: Any) -> None:
        self._writer.add_scalar(name, value, iteration)


def wrap_tensorboard_writer(tb_writer: Any) -> BaseLogger:
    """TensorBoard's writer as a logger."""
    return _Wrapped(tb_writer)
