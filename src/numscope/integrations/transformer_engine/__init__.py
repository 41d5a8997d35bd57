"""Transformer Engine: its modules' tensors into our summaries, sinks and findings, by features over nvdlfw-inspect."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from numscope.integrations.transformer_engine import collecting
from numscope.integrations.transformer_engine.collecting import findings

__all__ = ["feature_dirs", "findings"]


def feature_dirs(
    *,
    log_dir: str | os.PathLike[str] | None = None,
    tb_writer: Any = None,
    loggers: Sequence[Any] = (),
    default_logging: bool = True,
) -> list[str]:
    """Folders for ``nvdlfw_inspect.api.initialize(feature_dirs=…)``: ours, and Transformer Engine's own where it is installed.

    Configurations may then ask for ``NumscopeStats`` and ``NumscopeNonFinite`` in the namespace ``transformer_engine``. Steps end with
    ``nvdlfw_inspect.api.step``, all of it with ``end_debug``.

    Args:
        log_dir: folder for our logs and the run's files; None: the one that nvdlfw-inspect has.
        tb_writer: TensorBoard's writer, on the ranks that have one.
        loggers: objects with ``log_scalar``; ``"wandb"``, ``"mlflow"``. nvdlfw-inspect's own loggers get the same statistics.
        default_logging: our text log too.
    """
    collecting.prepare(log_dir=log_dir, tb_writer=tb_writer, loggers=tuple(loggers), text=default_logging)
    ours = os.path.join(os.path.dirname(__file__), "features")
    spec = importlib.util.find_spec("transformer_engine")  # looks for it, does not import it
    theirs = [os.path.join(place, "debug", "features") for place in (spec.submodule_search_locations or () if spec else ())]
    return [*(place for place in theirs if os.path.isdir(place)), ours]
