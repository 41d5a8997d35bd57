"""Which row of the statistics a finding is about, and what it and its culprit are called there."""

from __future__ import annotations

from collections.abc import Mapping

from numscope.records.finding import Finding
from numscope.records.site import Phase, Site

LOSS = "loss"


def tensor_of(phase: Phase, slot: str) -> str:
    """The name in statistics of a slot: ``activation`` for ``input[0]``, ``wgrad[bias]`` for ``grad bias``."""
    is_gradient = slot.startswith("grad ")
    name, bracket, rest = slot.removeprefix("grad ").partition("[")
    if name == "input":
        kind = "dgrad" if is_gradient else "activation"
    elif name == "output":
        kind = "gradient" if is_gradient else "output"
    elif phase is Phase.LOSS:
        kind = LOSS
    else:
        return ("wgrad" if is_gradient else "weight") + ("" if name == "weight" else f"[{name}]")
    return kind if not bracket or rest == "0]" else f"{kind}[{rest}"


def layer_of(site: Site, model: str) -> str:
    """The name in statistics of a site's layer: the model itself stands there under its class."""
    if site.phase is Phase.LOSS and not site.cls:
        return LOSS
    return site.module or site.cls or model


def row_of(finding: Finding, rows: Mapping[tuple[str, str], int]) -> int:
    """The row of a finding's site, or of another tensor of its layer; -1 if there is none."""
    layer = layer_of(finding.site, finding.model)
    exact = rows.get((layer, tensor_of(finding.site.phase, finding.site.slot)))
    if exact is not None:
        return exact
    return next((row for (name, _), row in rows.items() if name == layer), -1)
