"""Phase 4: torch's process group starts, in this rank's child: gloo always, NCCL too where there are GPUs.

Before torch is asked to meet, each child shows itself in the store, so that a rank that does not come has a name (torch's own error names
none). The store's socket was opened by the agent before the rendezvous, so that its port stands in the roster and nobody can take it.

``data``, as far as it came::

    torch       version
    import_s    seconds that importing torch took
    device      "cpu", or "cuda:<local rank>" where NCCL was started
    num_gpus    that this rank's child sees
    store       {"rank": that hosts it, "address", "port", "connect_s", "error": torch's own text, "" where it was reached}
    members     [ranks] of the process group, ascending
    missing     [ranks] whose child did not show itself in the store in time
    groups      {"gloo" | "nccl": {"seconds", "error": torch's own text or "", "skipped": why it was not started or "",
                 "not_ready": [ranks] that did not say that theirs stands, asked for only where ours does not,
                 "lacking": {rank: "gpu" (none of its own) | "nccl" (its torch has none)}, of all ranks that keep NCCL from being started}}
    child       {"hung": killed by its agent at the deadline, "how": it ended, "doing": what it was doing, "doing_s": since how long,
                 "stderr": [its last lines]}; only where the child died or was killed; so in phases 5 to 7
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context


def run(context: Context) -> dict[str, Any]:
    """Starts the process group.

    Raises: PhaseFailed.
    """
    host = children.members(context)[0]
    entry = context.roster.get(host, {})
    listen = entry.get("listen", {})  # its address is the one of --ifname, where that was given
    store = {"rank": host, "address": listen.get("address") or entry.get("address", ""), "port": listen.get("store_port", 0)}
    arguments = {**children.surroundings(context), "store": store}
    return children.of(context).run(4, arguments, context.deadline, context.say)
