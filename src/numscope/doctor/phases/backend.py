"""Phase 4: starts torch's process group in this rank's child: always gloo, and NCCL if there are GPUs.

Before torch starts, each child registers in the store, so that a missing rank can be named (torch's own error does not name it). The
agent opened the store's socket before the rendezvous, so that its port is in the roster and no other process can take it.

``data``, as far as the phase got::

    torch       version
    import_s    seconds that importing torch took
    device      "cpu", or "cuda:<local rank>" if NCCL was started
    num_gpus    visible to this rank's child
    store       {"rank": that hosts it, "address", "port", "connect_s", "error": torch's own text, "" if it was reached}
    members     [ranks] of the process group, ascending
    missing     [ranks] whose child did not register in the store in time
    groups      {"gloo" | "nccl": {"seconds", "error": torch's own text or "", "skipped": why it was not started or "",
                 "not_ready": [ranks] whose group did not start, known only where ours did not start either,
                 "lacking": {rank: "gpu" (none of its own) | "nccl" (its torch has none)}, of all ranks that prevent NCCL from starting}}
    child       {"hung": killed by its agent at the deadline, "how": it ended, "doing": its current step, "doing_s": for how long,
                 "stderr": [its last lines]}; only if the child died or was killed; the same in phases 5 to 7
"""

from __future__ import annotations

from typing import Any

from numscope.doctor.phases import children
from numscope.doctor.phases.context import Context
from numscope.doctor.records import Phase


def run(context: Context) -> dict[str, Any]:
    """Starts the process group.

    Raises: PhaseFailed.
    """
    host = children.members(context)[0]
    entry = context.roster.get(host, {})
    listen = entry.get("listen", {})  # its address is that of --ifname, if given
    store = {"rank": host, "address": listen.get("address") or entry.get("address", ""), "port": listen.get("store_port", 0)}
    arguments = {**children.surroundings(context), "store": store}
    return children.of(context).run(Phase.BACKEND, arguments, context.deadline, context.say)
