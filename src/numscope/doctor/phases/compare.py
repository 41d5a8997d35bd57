"""Phase 2: what a rank can only look up once it knows the others; ``diagnose/differing.py`` compares the ranks' facts."""

from __future__ import annotations

import os
from typing import Any

from numscope.doctor.phases import Context
from numscope.doctor.phases.facts import NAME_S, interfaces, resolve


def run(context: Context) -> dict[str, Any]:
    """Looks up what requires the roster. *Cost:* one name lookup, at most 2 s, whatever the number of ranks."""
    entry = context.roster.get(context.identity.rank, {})
    address = str(entry.get("address", ""))
    first = context.roster.get(0, {}).get("identity", {})
    name = os.environ.get("MASTER_ADDR") or str(first.get("hostname", ""))
    data: dict[str, Any] = {
        "interface": {"name": "", "mtu": 0, "address": address},
    }
    try:
        for interface, facts in interfaces().items():
            if address and address in facts["addresses"]:
                data["interface"] = {"name": interface, "mtu": facts.get("mtu", 0), "address": address}
    except OSError as error:
        data["interface"]["error"] = str(error)
    if name:
        context.announce(f"look up {name}")
        data["master"] = resolve(name, context.deadline.within(NAME_S * context.settings.timeout_scale))
    return data
