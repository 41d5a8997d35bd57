"""A check of one value in a user's own code."""

from __future__ import annotations

import logging
import os
import sys

from torch import Tensor

from numscope.records.faults import ours
from numscope.records.places import place
from numscope.summary.dispatch import describe, summarize
from numscope.summary.state import Groups, Summary

_log = logging.getLogger("numscope")


def check(tensor: Tensor, context: str = "") -> bool:
    """Whether the tensor contains a nan or inf; if so, the logger ``numscope`` warns with their number and the caller's line.

    If logging is not configured, the warning is printed on stderr.

    Args:
        tensor: any value; one that cannot be read (a meta tensor, not a tensor) counts as clean.
        context: words for the warning, such as ``after layer_norm``.

    Returns:
        True if there is a nan or inf.

    *Cost:* one pass over memory; a host sync for a tensor on a device.
    """
    try:
        found = summarize(tensor, Groups.HEALTH)
        if not found.num_nan + found.num_pos_inf + found.num_neg_inf:
            return False
        what = describe(tensor)
    except ours() as error:  # a check must not end the training
        _log.debug("check: %s", error)
        return False
    caller = sys._getframe(1)
    file = caller.f_code.co_filename
    at = place(file if file.startswith("<") else os.path.abspath(file), caller.f_lineno)  # "<stdin>" is not in a folder
    _log.warning("%s%s (%s) at %s", f"{context}: " if context else "", _sentence(found), what, at, stacklevel=2)
    return True


def _sentence(found: Summary) -> str:
    counts = ((found.num_nan, "nan"), (found.num_pos_inf, "inf"), (found.num_neg_inf, "-inf"))
    text = f"{', '.join(f'{count:,} {word}' for count, word in counts if count)} of {found.numel:,} elements"
    if found.abs_max is None:
        return f"{text}, none finite"
    low = 0.0 if found.num_zero or found.abs_min is None else found.abs_min
    return f"{text}, finite magnitudes {low:.2e} to {found.abs_max:.2e}"
