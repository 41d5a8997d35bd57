"""Phases 4 to 7: each runs in this rank's child, as ``child/`` documents."""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases.children import Child
from numscope.doctor.phases.context import Context
from numscope.doctor.records import Phase


def run(phase: Phase, context: Context) -> dict[str, Any]:
    """Has the child run a phase. Phase 7 needs no other rank, so a fresh child runs it if the first one is gone.

    Raises: PhaseFailed.
    """
    settings, identity = context.settings, context.identity
    members = sorted(context.alive or context.roster or (identity.rank,))
    host = context.roster.get(members[0], {})
    listen = host.get("listen", {})  # its address is that of --ifname, if given
    sizes = sorted(settings.sizes)
    arguments = {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "local_world_size": identity.local_world_size,
        "members": members,
        "sizes": sizes[:2] if settings.quick else sizes,
        "quick": settings.quick,
        "backend": settings.backend,
        "store": {"rank": members[0], "address": listen.get("address") or host.get("address", ""), "port": listen.get("store_port", 0)},
    }
    child = context.kept.get("child")
    if child is None or (phase is Phase.COMPUTE and child.ended):
        if child is not None:
            child.close()
        child = context.kept["child"] = Child(identity, settings, store=child is None)
    return child.run(phase, arguments, context.deadline, context.say)
