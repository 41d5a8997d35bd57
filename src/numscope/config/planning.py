"""From a configuration and files of the user's own to a plan and its plug-ins; loads no torch."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from numscope.config.plan import Plan
from numscope.plugins import loading as plugins
from numscope.plugins.loading import Plugins
from numscope.records.errors import UsageError


def plan_of(config: str | os.PathLike[str] | Mapping[str, Any], features: plugins.Paths = ()) -> tuple[Plan, Plugins]:
    """What a configuration asks for, and what plug-ins (files and folders with statistics, features, loggers, rules) give to it.

    Raises: UsageError that lists everything wrong with the configuration, and of what is wrong with the features.
    """
    from numscope.summary.statistics import STATISTICS

    found = plugins.load(features, taken=STATISTICS)
    try:
        return plan_with(found, config), found
    except UsageError as error:
        left_out = [text for text, level in found.messages if level >= logging.ERROR]  # why a name is not known
        if not left_out:
            raise
        raise UsageError("\n".join((*left_out, str(error)))) from None


def plan_with(found: Plugins, config: str | os.PathLike[str] | Mapping[str, Any], text: str | None = None) -> Plan:
    """What a configuration asks for with plug-ins that are loaded already.

    Args:
        text: the file's, if it has been read already.

    Raises: UsageError.
    """
    from numscope.config import load
    from numscope.summary.statistics import STATISTICS

    return load(config, customs=found.features, statistics={**STATISTICS, **found.statistics}, rules=found.rules, text=text)
