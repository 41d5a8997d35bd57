"""Examinations as the hub would hand them to diagnosis, made from a few words: what is not said is healthy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from numscope.doctor.phases.rounds import ALL_NODES, ALL_RANKS, partners
from numscope.doctor.records import Examined, ExamPhase, Identity, PhaseResult, Settings, to_json

ALL = (0, 1, 2, 3, 4, 5, 6, 7)
Cells = Mapping[tuple[int, int], Mapping[str, Any]]


def facts(host: str, address: str, **other: Any) -> dict[str, Any]:
    """Of a host without GPUs."""
    return {
        "hostname": host,
        "system": "Linux",
        "kernel": "6.1.0",
        "machine": "x86_64",
        "name": {"name": host, "addresses": [address], "loopback": False, "error": "", "seconds": 0.001},
        "interfaces": {"lo": {"addresses": ["127.0.0.1"], "mtu": 65536}, "eth0": {"addresses": [address], "mtu": 1500}},
        "shm": {"size_bytes": 64 << 30, "free_bytes": 60 << 30},
        "limits": {"memlock_bytes": -1, "nofile": 65536},
        "cpus": {"count": 64, "usable": 64},
        "versions": {"python": "3.11.7", "numscope": "0.1.0", "torch": "2.13.0"},
        "environment": {},
        "gpus": {"status": "none", "error": "", "devices": []},
        "infiniband": {},
        "errors": {},
        **other,
    }


def examination(
    num_nodes: int = 4,
    per_node: int = 1,
    *,
    phases: Iterable[int] = ALL,
    links: Cells | None = None,
    heard: Callable[[int, int], bool] = lambda one, other: True,
    own_facts: Mapping[int, Mapping[str, Any]] | None = None,
    pairs: Cells | None = None,
    compute: Mapping[int, float] | None = None,
    settings: Settings | None = None,
) -> Examined:
    """A job of ``num_nodes`` hosts named node0, node1, …

    Args:
        links: by (from node, to node) what phase 3's cell has otherwise.
        heard: whether datagrams of a node come to another.
        own_facts: by rank what phase 0 has otherwise.
        pairs: by (sender, receiver) what phase 5's pair has otherwise.
        compute: by rank seconds of the compute probe, instead of 1.
    """
    size = num_nodes * per_node
    hosts = [f"node{rank // per_node}" for rank in range(size)]
    roster = {
        rank: {
            "identity": to_json(Identity(rank, size, rank % per_node, per_node, rank // per_node, num_nodes, hosts[rank], "torchrun")),
            "address": f"10.0.0.{rank // per_node + 1}",
            "seen": f"10.0.0.{rank // per_node + 1}",
            "listen": {"address": f"10.0.0.{rank // per_node + 1}", "port": 40000 + rank},
            "offset_s": 0.001 * (rank % 100),
        }
        for rank in range(size)
    }
    results = []
    for phase in phases:
        for rank in range(size):
            make = _DATA.get(phase, lambda **_: {})
            data = make(
                rank=rank, num_nodes=num_nodes, per_node=per_node, links=links or {}, heard=heard, own_facts=own_facts or {},
                pairs=pairs or {}, compute=compute or {},
            )  # fmt: skip
            cells = [*data.get("cells", ()), *data.get("pairs", ())]
            bad = [cell for cell in cells if cell["status"] not in ("ok", "skipped") or cell.get("ephemeral", "ok") != "ok"]
            error = f"{len(bad)} of {len(cells)} do not work" if bad else ""
            results.append(PhaseResult(ExamPhase(phase), rank, "failed" if bad else "ok", seconds=0.125, error=error, data=data))
    return Examined(settings or Settings(), size, roster, results, (), {"reached": True, "seconds": 2.5})


def without_rank(examined: Examined, rank: int, phase: int, doing: str = "connect to node0", how: str = "silent") -> Examined:
    """The same, with a rank that was lost in a phase."""
    error = "no heartbeat for 5.0 s" if how == "silent" else "its connection was closed"
    results = [result for result in examined.results if result.rank != rank or result.phase < phase]
    lost = PhaseResult(ExamPhase(phase), rank, "silent", seconds=5.0, doing=doing, error=error, data={"how": how})
    later = [PhaseResult(p, rank, "skipped", error=error) for p in sorted({r.phase for r in examined.results}) if p > phase]
    return replace(examined, results=[*results, lost, *later])


def failed(examined: Examined, phase: int, rank: int, error: str, **data: Any) -> Examined:
    """The same, with a rank's phase failed."""
    results = list(examined.results)
    (at,) = (at for at, result in enumerate(results) if (result.phase, result.rank) == (phase, rank))
    results[at] = replace(results[at], status="failed", error=error, data={**results[at].data, **data})
    return replace(examined, results=results)


def _facts(*, rank: int, per_node: int, own_facts: Mapping[int, Mapping[str, Any]], **_: Any) -> dict[str, Any]:
    return facts(f"node{rank // per_node}", f"10.0.0.{rank // per_node + 1}", **own_facts.get(rank, {}))


def _compare(*, rank: int, per_node: int, **_: Any) -> dict[str, Any]:
    return {"interface": {"name": "eth0", "mtu": 1500, "address": f"10.0.0.{rank // per_node + 1}"}}


def _links(*, rank: int, num_nodes: int, per_node: int, links: Cells, heard: Callable[[int, int], bool], **_: Any) -> dict[str, Any]:
    node = rank // per_node
    data: dict[str, Any] = {"node": node, "representative": node * per_node, "cells": [], "heard": {}, "loopback": None}
    if rank % per_node:
        return data
    for number, other in enumerate(partners(node, num_nodes, ALL_NODES[False])):
        if other is None:
            continue
        if heard(other, node):
            data["heard"][str(other * per_node)] = 3
        own = links.get((node, other), {})
        cell = {
            "from_node": node, "to_node": other, "from_rank": rank, "to_rank": other * per_node, "from_host": f"node{node}",
            "to_host": f"node{other}", "address": f"10.0.0.{other + 1}", "port": 40000 + other * per_node,
            "round": number, "status": "ok", "error": "",
        }  # fmt: skip
        if own.get("status", "ok") == "ok":
            cell |= {"connect_s": 1e-4, "rtt_s": 2e-4, "rtt_min_s": 1e-4, "payload_s": 1e-3, "bytes": 1 << 25, "bytes_per_s": 1e8}
            cell |= {"segments": 20000, "retransmitted": 0, "loss": 0.0, "ephemeral": "ok"}
        data["cells"].append(cell | dict(own))
    return data


def _backend(**_: Any) -> dict[str, Any]:
    return {
        "missing": [],
        "groups": {"gloo": {"seconds": 0.1, "error": ""}},
        "store": {"rank": 0, "address": "10.0.0.1", "port": 40000, "error": ""},
    }


def _pairs(*, rank: int, num_nodes: int, per_node: int, pairs: Cells, **_: Any) -> dict[str, Any]:
    told = []
    for peer in partners(rank, num_nodes * per_node, ALL_RANKS[False]):
        if peer is not None:
            own = dict(pairs.get((peer, rank), {}))
            corrupt = {"first_offset": 17, "num_bytes": 3, "num_bits": 5} if own.get("status") == "corrupt" else None
            received = [{"bytes": 1 << 20, "seconds": 0.01, "bytes_per_s": 1e8, "skipped": "", "corrupt": corrupt}]
            told.append({"peer": peer, "backend": "gloo", "round": 0, "status": "ok", "doing": "", "error": "", "received": received} | own)
    return {"missing": [], "pairs": told}


def _collectives(**_: Any) -> dict[str, Any]:
    return {"missing": [], "collectives": []}


def _compute(*, rank: int, compute: Mapping[int, float], **_: Any) -> dict[str, Any]:
    seconds = compute.get(rank, 1.0) * (1 + 0.01 * (rank % 3))
    times = {"repeats": 5, "min_s": seconds, "median_s": 1.05 * seconds, "max_s": 1.2 * seconds}
    gemm = {"n": 1024, **times, "flops_per_s": 2 * 1024**3 / seconds}
    copy = {"bytes": 1 << 26, **times, "bytes_per_s": (1 << 26) / seconds}
    return {"device": "cpu", "threads": 2, "load": 0.5, "gemm": gemm, "copy": copy}


_DATA: dict[int, Callable[..., dict[str, Any]]] = {
    0: _facts,
    2: _compare,
    3: _links,
    4: _backend,
    5: _pairs,
    6: _collectives,
    7: _compute,
}
