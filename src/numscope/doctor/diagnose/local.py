"""Findings about the facts of a host by themselves, without comparison (phase 0)."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings import finding, listed, pasted
from numscope.doctor.meet.sockets import is_loopback
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase

SHM_BYTES = 64 << 20  # the default of container runtimes
SHM_PER_RANK_BYTES = 32 << 20  # NCCL's buffers between ranks of a host, plus a DataLoader's tensors
MEMLOCK_BYTES = 1 << 30
NOFILE = 1024
_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")

Facts = Mapping[str, Any]


def local_facts(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Findings about single hosts: one per check, with an evidence line for each group of hosts."""
    facts = {rank: result.data for rank, result in sorted(examined.of(ExamPhase.FACTS).items()) if result.data}
    for id, look in CHECKS.items():
        ranks_of: dict[str, list[int]] = defaultdict(list)
        for rank, data in facts.items():
            with contextlib.suppress(KeyError, TypeError, ValueError):  # a fact that could not be obtained
                ranks_of[look(data, examined, rank)].append(rank)
        ranks_of.pop("", None)
        ranks = sorted(rank for each in ranks_of.values() for rank in each)
        if ranks:
            hosts = sorted(blame.hosts_of(ranks))
            address = str(examined.roster.get(ranks[0], {}).get("address", "")) or "ADDRESS"
            yield finding(
                id,
                ranks=ranks,
                hosts=hosts,
                evidence=[f"{listed(sorted({blame.host(r) or f'rank {r}' for r in each}))}: {what}" for what, each in ranks_of.items()],
                expected=examined.expected,
                entry=pasted(f"{address} {(hosts or [''])[0]}"),
                ifname=_ifname(ranks, examined),
            )


def _ifname(ranks: Sequence[int], examined: Examined) -> str:
    """Selects the interface by which others reach these ranks, if it is the same for all."""
    compared = examined.of(ExamPhase.COMPARE)
    names = {compared[rank].data.get("interface", {}).get("name", "") for rank in ranks if rank in compared} - {"", "lo"}
    name = names.pop() if len(names) == 1 else ""
    return f"export NCCL_SOCKET_IFNAME={pasted(name)} GLOO_SOCKET_IFNAME={pasted(name)}" if name else ""


def _several_hosts(examined: Examined) -> bool:
    hosts = ((entry["identity"].get("hostname"), entry["identity"].get("node")) for entry in examined.roster.values())
    first = next(hosts, None)
    return any(host != first for host in hosts)


def _ranks_on_host(examined: Examined, rank: int) -> int:
    return int(examined.roster.get(rank, {}).get("identity", {}).get("local_world_size", 1))


def _loopback_name(data: Facts, examined: Examined, rank: int) -> str:
    name = data["name"]
    if not name["loopback"] or not _several_hosts(examined):
        return ""
    if all(is_loopback(str(entry.get("address", ""))) for entry in examined.roster.values()):
        return ""  # "nodes" on one machine reach each other that way
    return f"{name['name']} resolves to {listed(name['addresses'])}"


def _shm(data: Facts, examined: Examined, rank: int) -> str:
    size, free, ranks = int(data["shm"]["size_bytes"]), int(data["shm"]["free_bytes"]), _ranks_on_host(examined, rank)
    if size <= SHM_BYTES:
        return f"/dev/shm has {size / 2**20:,.0f} MiB"
    short = free < SHM_PER_RANK_BYTES * ranks
    return f"/dev/shm has {free / 2**20:,.0f} of {size / 2**20:,.0f} MiB free, for {ranks} ranks" if short else ""


def _memlock(data: Facts, examined: Examined, rank: int) -> str:
    limit, devices = int(data["limits"]["memlock_bytes"]), data["infiniband"]
    return f"memlock is {limit:,} bytes, and there is {listed(devices)}" if devices and 0 <= limit < MEMLOCK_BYTES else ""


def _nofile(data: Facts, examined: Examined, rank: int) -> str:
    limit, wanted = int(data["limits"]["nofile"]), max(NOFILE, 4 * examined.expected)
    return f"the limit is {limit:,} open files, {wanted:,} are needed" if 0 <= limit < wanted else ""


def _interface_missing(data: Facts, examined: Examined, rank: int) -> str:
    wanted = {name: data["environment"].get(name, "") for name in _INTERFACE_NAMES}
    wrong = [f"{name}={value}" for name, value in wanted.items() if value and not _matching(value, data["interfaces"])]
    return f"{' and '.join(wrong)}, but the interfaces are {listed(sorted(data['interfaces']))}" if wrong else ""


def _wrong_interface(data: Facts, examined: Examined, rank: int) -> str:
    address = str(examined.roster[rank]["address"])
    used = [name for name, facts in data["interfaces"].items() if address in facts["addresses"]]
    if not used or not _several_hosts(examined):
        return ""
    reason = f"but other hosts reach it at {address} on {used[0]}"
    reasons = []
    for name in _INTERFACE_NAMES:
        wanted = data["environment"].get(name, "")
        matching = _matching(wanted, data["interfaces"]) if wanted else used
        if matching and used[0] not in matching:
            reasons.append(f"{name}={wanted}, {reason}")
    addresses = data["name"]["addresses"]
    if "GLOO_SOCKET_IFNAME" not in data["environment"] and addresses and not data["name"]["loopback"] and address not in addresses:
        reasons.append(f"its name {data['name']['name']} resolves to {listed(addresses)}, {reason}")
    return "; ".join(reasons)


def _matching(wanted: str, interfaces: Mapping[str, Any]) -> list[str]:
    """The interfaces that NCCL_SOCKET_IFNAME selects: prefixes; exact names after ``=``; all others after ``^``."""
    exclude = wanted.startswith("^")
    words = wanted.removeprefix("^").removeprefix("=").split(",")
    exact = wanted.removeprefix("^").startswith("=")
    chosen = [name for name in interfaces if any(name == word or (not exact and word and name.startswith(word)) for word in words)]
    return [name for name in interfaces if name not in chosen] if exclude else chosen


def _gpu_query(status: str) -> Callable[[Facts, Examined, int], str]:
    return lambda data, examined, rank: str(data["gpus"]["error"]) if data["gpus"]["status"] == status else ""


def _too_many_ranks(data: Facts, examined: Examined, rank: int) -> str:
    gpus, ranks = len(data["gpus"]["devices"]), _ranks_on_host(examined, rank)
    return f"{gpus} GPUs for {ranks} ranks" if 0 < gpus < ranks else ""


# By finding what looks for it in a rank's facts: returns what is wrong, or "". Raises KeyError, TypeError or ValueError for a missing fact.
CHECKS: dict[str, Callable[[Facts, Examined, int], str]] = {
    "name-resolves-to-loopback": _loopback_name,
    "name-unresolved": lambda data, examined, rank: f"{data['name']['name']}: {data['name']['error']}" if data["name"]["error"] else "",
    "wrong-interface": _wrong_interface,
    "interface-missing": _interface_missing,
    "shm-too-small": _shm,
    "gpu-query-failed": _gpu_query("failed"),
    "gpu-query-hung": _gpu_query("timeout"),
    "ranks-exceed-gpus": _too_many_ranks,
    "memlock-too-small": _memlock,
    "nofile-too-small": _nofile,
}
