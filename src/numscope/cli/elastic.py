"""Writes what ended a process where torchrun looks for it, so that torchrun's own last words name the operation and the line."""

from __future__ import annotations

import os

from numscope.cli.uncaught import exit_status, hide_our_frames, keep_own_frames
from numscope.records.errors import NonFiniteError
from numscope.records.finding import Finding
from numscope.report.stderr import say


def tell_torchrun(error: BaseException, finding: Finding | None) -> None:
    """Writes the error to ``TORCHELASTIC_ERROR_FILE``, as ``torch.distributed.elastic``'s ``@record`` does; nothing without torchrun.

    Args:
        error: what ends the process. One of the script's own is only written where there is a finding.
        finding: what an error of the script's own comes from.
    """
    ours = exit_status(error) is not None
    if "TORCHELASTIC_ERROR_FILE" not in os.environ or not (ours or finding):
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    root = error
    while (before := root.__cause__ or root.__context__) is not None:
        root = before
    if finding is not None and not ours:
        root.__cause__ = NonFiniteError(finding)
    try:
        raise error
    except BaseException:  # it is the error in flight that is written
        (keep_own_frames if ours else hide_our_frames)(error)
        try:
            get_error_handler().record_exception(error)
        except OSError as fault:
            say(f"numscope: torchrun is not told the finding: {fault}")
    finally:
        root.__cause__ = None
