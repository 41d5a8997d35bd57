"""Two runs beside each other: where they begin to differ, which modules drift, which settings are not the same."""

from __future__ import annotations

from typing import Any

from numscope.page.payload import command_of
from numscope.page.recorded import Recorded
from numscope.records.errors import UsageError
from numscope.runs.diff import compare

MAX_STEPS = 2000
MAX_MODULES = 12
MAX_SETTING = 4000  # characters


def comparison_of(a: Recorded, b: Recorded) -> dict[str, Any]:
    """What a page shows of two runs' comparison, JSON-ready; ``problem`` says why their numbers can't be compared, else it is empty."""
    told: dict[str, Any] = {"problem": "", "settings": _settings(a, b)}
    try:
        found = compare(a.path, b.path, top=MAX_MODULES).document()
    except UsageError as error:
        return {**told, "problem": str(error)}
    kept = ("first", "origin", "modules", "num_nonfinite", "nonfinite", "first_unequal", "dtypes")
    steps = [step for step in found["steps"] if step["num_diverging"]]
    return {
        **told,
        **{name: found[name] for name in kept},
        "num_steps": len(found["steps"]),
        "num_diverging_steps": len(steps),
        "steps": steps[:MAX_STEPS],
        "only": [len(found["only_a"]), len(found["only_b"])],
    }


def _settings(a: Recorded, b: Recorded) -> list[list[str]]:
    """Name, A's and B's value of each setting that differs."""
    sides = [_of_one(one) for one in (a, b)]
    names = dict.fromkeys([*sides[0], *sides[1]])
    rows = ([name, *(side.get(name, "") for side in sides)] for name in names)
    return [row for row in rows if row[1] != row[2]]


def _of_one(recorded: Recorded) -> dict[str, str]:
    last = recorded.attempts[-1] if recorded.attempts else {}
    versions = last.get("versions")
    told = {f"version of {name}": str(value) for name, value in versions.items()} if isinstance(versions, dict) else {}
    told |= {"model": recorded.model, "command": command_of(last.get("command")), "world size": str(last.get("world_size", ""))}
    told["configuration"] = str(last.get("config", ""))
    return {name[:200]: value[:MAX_SETTING] for name, value in told.items()}
