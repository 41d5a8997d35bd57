"""The environment variables by which the debug tool is switched on from outside: read once, checked, translated to a watch's options."""

from __future__ import annotations

import os

from numscope.records.errors import UsageError

ENABLED = "NV_DEBUG_TOOL_ENABLED"
CONFIG = "NV_DEBUG_TOOL_CONFIG"
LOG_DIR = "NV_DEBUG_TOOL_LOG_DIR"


def switched_on() -> dict[str, str] | None:
    """The options of a watch that the environment gives; None where the debug tool is off, whatever the other variables say.

    Returns: ``config``, without which the run collects nothing, and ``log_dir``, each if its variable is set.

    Raises: UsageError, where the switch is neither on nor off, or a path that was given is none.
    """
    switch = os.environ.get(ENABLED, "").strip()
    if switch not in ("", "0", "1"):
        hint = {"true": " Write 1.", "yes": " Write 1.", "on": " Write 1.", "false": " Write 0.", "no": " Write 0.", "off": " Write 0."}
        raise UsageError(f"{ENABLED}: got {switch!r}, expected 1 (on), 0 or nothing (off).{hint.get(switch.lower(), '')}")
    if switch != "1":
        return None
    config, log_dir = os.environ.get(CONFIG) or None, os.environ.get(LOG_DIR) or None
    if config is not None and not os.path.isfile(config):
        found = "a folder" if os.path.isdir(config) else "no such file"
        raise UsageError(f"{CONFIG}: got {config!r}, {found}, expected a YAML file's path. Leave it out for a run that collects nothing.")
    if log_dir is not None and os.path.exists(log_dir) and not os.path.isdir(log_dir):
        raise UsageError(f"{LOG_DIR}: got {log_dir!r}, a file, expected a folder's path.")
    return {name: value for name, value in (("config", config), ("log_dir", log_dir)) if value is not None}


_served = False


def serve(on: bool) -> None:
    """``numscope run`` watches each model of this process, by these variables among others; with False no longer."""
    global _served
    _served = on


def served() -> bool:
    """Whether what these variables ask for is done without the script's doing."""
    return _served
