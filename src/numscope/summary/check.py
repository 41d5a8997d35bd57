"""A look at one value in the middle of a user's own code."""

from __future__ import annotations

import logging
import os
import sys

from torch import Tensor

from numscope.summary.dispatch import describe, summarize
from numscope.summary.state import Groups, Summary

_log = logging.getLogger("numscope")


def check(tensor: Tensor, context: str = "") -> bool:
    """Whether the tensor holds a nan or inf; if so, one warning of the logger ``numscope`` says how many and where the caller stands.

    Without any logging set up, Python prints that warning on stderr.

    Args:
        tensor: any; what cannot be read (meta, no tensor at all) holds nothing bad.
        context: words for the report, such as ``after layer_norm``.

    Returns:
        True when a nan or inf is there.

    *Cost:* one pass over memory; a host sync for a tensor on a device.
    """
    try:
        found = summarize(tensor, Groups.HEALTH)
        if not found.num_nan + found.num_pos_inf + found.num_neg_inf:
            return False
        what = describe(tensor)
    except Exception as error:  # never the user's training for a look at it
        _log.debug("check: %s", error)
        return False
    caller = sys._getframe(1)
    file = caller.f_code.co_filename
    place = f"{file if file.startswith('<') else os.path.abspath(file)}:{caller.f_lineno}"  # "<stdin>" is in no folder
    _log.warning("%s%s (%s) at %s", f"{context}: " if context else "", _sentence(found), what, place, stacklevel=2)
    return True


def _sentence(found: Summary) -> str:
    counts = ((found.num_nan, "nan"), (found.num_pos_inf, "inf"), (found.num_neg_inf, "-inf"))
    text = f"{', '.join(f'{count:,} {word}' for count, word in counts if count)} of {found.numel:,} elements"
    if found.abs_max is None:
        return f"{text}, none finite"
    low = 0.0 if found.num_zero or found.abs_min is None else found.abs_min
    return f"{text}, finite magnitudes {low:.2e} to {found.abs_max:.2e}"
