"""``nvdlfw_inspect.api``: its ``initialize``; all else is the same as in ``numscope.compat.debug_tool``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from numscope.compat import debug_session as sessions
from numscope.compat.debug_session import Config
from numscope.compat.debug_tool import (
    end_debug,
    explain_features,
    get_tensor_reduction_group,
    infer_and_assign_layer_names,
    initialize_training_step,
    list_features,
    log_message,
    log_tensor_stats,
    set_tensor_reduction_group,
    step,
)
from numscope.records.errors import UsageError

__all__ = [
    "end_debug",
    "explain_features",
    "get_tensor_reduction_group",
    "infer_and_assign_layer_names",
    "initialize",
    "initialize_training_step",
    "list_features",
    "log_message",
    "log_tensor_stats",
    "set_tensor_reduction_group",
    "step",
]

DEBUG_FILE = "nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-{rank}.log"
TEXT_FILE = "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-{rank}.log"


def initialize(
    config_file: Config = "",
    feature_dirs: str | Sequence[str] | None = None,
    statistics_logger: Any = None,
    log_dir: str | os.PathLike[str] = ".",
    init_training_step: int = 0,
    tb_writer: Any = None,
    default_logging_enabled: bool = False,
) -> None:
    """Begin: models are watched from their first call on, whether they are built before or after this.

    Args:
        config_file: a YAML file's path, or the same as a dict; None or "": nothing is watched, the run is the bare one.
        feature_dirs: files and folders with statistics, features, loggers and rules by numscope's decorators.
        statistics_logger: anything with ``log_scalar(name, value, iteration, **kwargs)``.
        log_dir: folder for ``nvdlfw_inspect_logs``, ``nvdlfw_inspect_statistics_logs`` and the run's files.
        init_training_step: number of the first step.
        tb_writer: TensorBoard's writer, on the ranks that have one.
        default_logging_enabled: write the text log of statistics also with a logger or a writer; without either it is always written.

    Raises: UsageError for anything wrong in the configuration, and a second call; at the first step, where a section selects no layer.

    *Cost:* on scheduled steps one pass over each selected tensor, else the bare model.
    """
    if statistics_logger is not None and (isinstance(statistics_logger, type) or not hasattr(statistics_logger, "log_scalar")):
        raise UsageError(f"statistics_logger: got {statistics_logger!r}, expected an object with log_scalar(name, value, iteration).")
    alone = tb_writer is None and statistics_logger is None
    sessions.begin(
        "initialize",
        config_file,
        log_dir=log_dir,
        tb_writer=tb_writer,
        default_logging=default_logging_enabled or alone,
        loggers=() if statistics_logger is None else (statistics_logger,),
        features=feature_dirs or (),
        first_step=init_training_step,
        debug_file=DEBUG_FILE,
        text_file=TEXT_FILE,
    )
