"""What two runs were started with, and what of it is not the same."""

from __future__ import annotations

from numscope.page.recorded import Recorded

MAX_SETTING = 4000  # characters

Differing = list[tuple[str, str, str]]  # name, A's value and B's; "" where a run has none


def settings_of(recorded: Recorded) -> dict[str, str]:
    """The last attempt's, in the order in which they matter: what was run, with what, on what."""
    last, found = recorded.last_attempt, last_environment(recorded)
    versions = {f"version of {name}": value for name, value in recorded.versions.items()}
    told = {"command": recorded.command, "configuration": str(last.get("config", "")), "model": recorded.model}
    told |= {"world size": str(last.get("world_size", "")), **versions, **found}
    return {name[:200]: value[:MAX_SETTING] for name, value in told.items()}


def last_environment(recorded: Recorded) -> dict[str, str]:
    told = recorded.last_attempt.get("environment")
    return {str(name): str(value) for name, value in told.items()} if isinstance(told, dict) else {}


def differing(a: Recorded, b: Recorded) -> Differing:
    """What is not the same. Facts that one run did not record at all are no difference."""
    left, right = settings_of(a), settings_of(b)
    asked = dict.fromkeys([*left, *right])
    if not (last_environment(a) and last_environment(b)):
        asked = {name: None for name in asked if name in left and name in right}
    return [(name, left.get(name, ""), right.get(name, "")) for name in asked if left.get(name, "") != right.get(name, "")]
