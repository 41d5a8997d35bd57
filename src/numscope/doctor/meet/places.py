"""Node numbers, assigned by the hub where ``--node-rank`` is not given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Places:
    """Which node has which number. The hub's own node was given these numbers of nodes and ranks, and is number 0."""

    def __init__(self, num_nodes: int, nproc: int, hostname: str) -> None:
        self._num_nodes = num_nodes
        self._nproc = nproc
        self._taken: dict[int, str] = {0: hostname}

    def assign(self, request: Mapping[str, Any], address: str) -> dict[str, Any]:
        """The answer to a node's request: its number, or why it gets none. With ``node_rank`` -1 it gets any."""
        who = f"{request['hostname']} ({address})"
        nodes, nproc, wish = request["nnodes"], request["nproc"], request["node_rank"]
        if (nodes, nproc) != (self._num_nodes, self._nproc):
            ours = f"--nnodes {self._num_nodes} --nproc {self._nproc}"
            return _refuse("world_size", f"{who} was started with --nnodes {nodes} --nproc {nproc}, {self._taken[0]} with {ours}")
        if wish >= nodes:
            return _refuse("rank", f"{who} was started with --node-rank {wish}, expected 0 to {nodes - 1}")
        if wish in self._taken:
            return _refuse("duplicate", f"{who} and {self._taken[wish]} both claim node number {wish}")
        free = [node for node in range(nodes) if node not in self._taken]
        if not free:
            return _refuse("duplicate", f"{who} is one node more than --nnodes {nodes}")
        node = wish if wish >= 0 else free[0]
        self._taken[node] = who
        return {"kind": "place", "node": node}


def _refuse(why: str, reason: str) -> dict[str, Any]:
    return {"kind": "refused", "why": why, "reason": reason}
