"""Phase 2: what a rank can only look up once it knows the others; ``diagnose/differing_facts.py`` compares the ranks' facts."""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import Context
from numscope.doctor.phases.facts import interfaces


def run(context: Context) -> dict[str, Any]:
    """Looks up the interface at which others reach this rank."""
    address = str(context.roster.get(context.identity.rank, {}).get("address", ""))
    reached = {"name": "", "mtu": 0, "address": address}
    try:
        for name, facts in interfaces().items():
            if address and address in facts["addresses"]:
                reached |= {"name": name, "mtu": facts.get("mtu", 0)}
    except OSError as error:
        reached["error"] = str(error)
    return {"interface": reached}
