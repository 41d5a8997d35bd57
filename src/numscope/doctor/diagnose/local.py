"""What the facts of a host say by themselves (phase 0), without comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings.telling import finding, listed, named
from numscope.doctor.phases.facts import is_loopback
from numscope.doctor.records import Examined, Finding

SHM_BYTES = 64 << 20  # what container runtimes give by default
SHM_A_RANK_BYTES = 32 << 20  # NCCL's buffers between ranks of a host, with a DataLoader's tensors beside them
MEMLOCK_BYTES = 1 << 30
NOFILE = 1024
_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def local_facts(examined: Examined, blame: Blame) -> list[Finding]:
    """Findings about hosts alone."""
    facts = {rank: result.data for rank, result in sorted(examined.of(0).items()) if result.data}
    several = len(set(blame.hosts.values())) > 1
    found: list[Finding] = []
    for name, look in _LOOKS.items():
        by_word: dict[str, list[int]] = defaultdict(list)
        for rank, data in facts.items():
            try:
                word = look(data, examined, rank, several)
            except (KeyError, TypeError, ValueError):
                continue  # a fact that could not be had
            if word:
                by_word[word].append(rank)
        # One finding for all hosts that have it, an evidence line each.
        if by_word:
            ranks = sorted(rank for each in by_word.values() for rank in each)
            hosts = sorted({blame.hosts.get(rank, "") for rank in ranks})
            lines = [f"{listed(sorted({blame.hosts.get(r, f'rank {r}') for r in each}))}: {word}" for word, each in by_word.items()]
            found.append(_said(name, ranks, hosts, lines, facts[ranks[0]], examined, several))
    return found


def _said(
    name: str, ranks: list[int], hosts: list[str], lines: list[str], data: Mapping[str, Any], examined: Examined, several: bool
) -> Finding:
    where = listed(hosts)
    remedy: tuple[str, ...]
    if name == "name-resolves-to-loopback":
        address = str(examined.roster.get(ranks[0], {}).get("address", "")) or "ADDRESS"
        return finding(
            name,
            f"The name of {where} means the host itself there: gloo, which takes the name's address, can't be reached from other hosts.",
            ranks=ranks,
            hosts=hosts,
            evidence=lines,
            confidence="certain",
            remedy=(
                f"echo '{address} {hosts[0]}' | sudo tee -a /etc/hosts  # and take {hosts[0]} out of its 127.0.1.1 line",
                *_ifname(ranks, examined),
            ),
        )
    if name == "name-unresolved":
        address = str(examined.roster.get(ranks[0], {}).get("address", "")) or "ADDRESS"
        return finding(
            name,
            f"The name of {where} does not resolve on the host itself.",
            ranks=ranks,
            hosts=hosts,
            evidence=lines,
            confidence="certain",
            remedy=(f"echo '{address} {hosts[0]}' | sudo tee -a /etc/hosts",),
        )
    if name == "shm-too-small":
        evidence = [*lines, f"{len(ranks)} ranks are on {where}"] if several else lines
        remedy = (
            "docker run --shm-size=8g …  # or --ipc=host",
            "mount -o remount,size=8g /dev/shm",
            "export NCCL_SHM_DISABLE=1  # slower, but starts",
        )
        return finding(
            name, f"/dev/shm of {where} is too small.", ranks=ranks, hosts=hosts, evidence=evidence, confidence="likely", remedy=remedy
        )
    if name == "memlock-too-small":
        remedy = ("ulimit -l unlimited", "echo '* - memlock unlimited' | sudo tee -a /etc/security/limits.conf")
        summary = f"{where} may lock too little memory for InfiniBand."
        return finding(name, summary, ranks=ranks, hosts=hosts, evidence=lines, remedy=remedy)
    if name == "nofile-too-small":
        summary = f"{named(ranks).capitalize()} may open too few files for a job of {examined.expected} ranks."
        return finding(name, summary, ranks=ranks, hosts=hosts, evidence=lines, remedy=("ulimit -n 65536",))
    if name == "interface-missing":
        summary = f"{where}: an interface that the environment names is not there."
        return finding(name, summary, ranks=ranks, hosts=hosts, evidence=lines, confidence="certain", remedy=_ifname(ranks, examined))
    if name == "wrong-interface":
        summary = f"{where}: gloo or NCCL would use another interface than the one by which other hosts reach it."
        return finding(name, summary, ranks=ranks, hosts=hosts, evidence=lines, confidence="likely", remedy=_ifname(ranks, examined))
    if name in ("gpu-query-failed", "gpu-query-hung"):
        summary = f"{where}: the GPU driver {'does not answer' if name.endswith('hung') else 'reports an error'}."
        remedy = (*(f"srun --exclude={host} …" for host in hosts[:1]), "nvidia-smi -q  # on that host; sudo dmesg | grep -i xid")
        return finding(name, summary, ranks=ranks, hosts=hosts, evidence=lines, confidence="certain", remedy=remedy)
    if name == "ranks-exceed-gpus":
        summary = f"{where} has fewer GPUs than ranks."
        return finding(
            name, summary, ranks=ranks, hosts=hosts, evidence=lines, confidence="certain", remedy=("torchrun --nproc_per_node gpu …",)
        )
    return finding(name, f"{where}: {lines[0].partition(': ')[2]}.", ranks=ranks, hosts=hosts, evidence=lines)


def _ifname(ranks: list[int], examined: Examined) -> tuple[str, ...]:
    """The interface by which others reach these ranks, as lines to paste."""
    compared = examined.of(2)
    names = {compared[rank].data.get("interface", {}).get("name", "") for rank in ranks if rank in compared} - {"", "lo"}
    name = names.pop() if len(names) == 1 else ""
    return (f"export NCCL_SOCKET_IFNAME={name} GLOO_SOCKET_IFNAME={name}",) if name else ()


def _loopback_name(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    name = data["name"]
    if all(is_loopback(str(entry.get("address", ""))) for entry in examined.roster.values()):
        return ""  # "nodes" on one machine, which reach each other that way
    return f"{name['name']} is {listed(name['addresses'])} there" if several and name["loopback"] else ""


def _unresolved_name(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    return f"{data['name']['name']}: {data['name']['error']}" if data["name"]["error"] else ""


def _shm(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    size, free = int(data["shm"]["size_bytes"]), int(data["shm"]["free_bytes"])
    ranks = int(examined.roster.get(rank, {}).get("identity", {}).get("local_world_size", 1))
    if size <= SHM_BYTES:
        return f"/dev/shm has {size / 2**20:,.0f} MiB"
    if free < SHM_A_RANK_BYTES * ranks:
        return f"/dev/shm has {free / 2**20:,.0f} MiB free of {size / 2**20:,.0f}, for {ranks} ranks"
    return ""


def _memlock(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    limit = int(data["limits"]["memlock_bytes"])
    return (
        f"memlock is {limit:,} bytes, and there is {listed(data['infiniband'])}"
        if data["infiniband"] and 0 <= limit < MEMLOCK_BYTES
        else ""
    )


def _nofile(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    limit, wanted = int(data["limits"]["nofile"]), max(NOFILE, 4 * examined.expected)
    return f"{limit:,} open files, {wanted:,} are wanted" if 0 <= limit < wanted else ""


def _interface_missing(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    told = []
    for name in _INTERFACE_NAMES:
        wanted = data["environment"].get(name, "")
        if wanted and not _matching(wanted, data["interfaces"]):
            told.append(f"{name}={wanted}, there are {listed(sorted(data['interfaces']))}")
    return "; ".join(told)


def _wrong_interface(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    if not several:
        return ""
    address = str(examined.roster[rank]["address"])
    used = [name for name, facts in data["interfaces"].items() if address in facts["addresses"]]
    if not used:
        return ""
    told = []
    for name in _INTERFACE_NAMES:
        wanted = data["environment"].get(name, "")
        matching = _matching(wanted, data["interfaces"]) if wanted else used
        if matching and used[0] not in matching:
            told.append(f"{name}={wanted}, but others reach it at {address} on {used[0]}")
    addresses = data["name"]["addresses"]
    if "GLOO_SOCKET_IFNAME" not in data["environment"] and addresses and not data["name"]["loopback"] and address not in addresses:
        told.append(f"its name {data['name']['name']} is {listed(addresses)}, but others reach it at {address} on {used[0]}")
    return "; ".join(told)


def _matching(wanted: str, interfaces: Mapping[str, Any]) -> list[str]:
    """The interfaces that a word of NCCL_SOCKET_IFNAME allows: prefixes, exact after ``=``, all others after ``^``."""
    exclude = wanted.startswith("^")
    words = wanted.removeprefix("^").removeprefix("=").split(",")
    exact = wanted.removeprefix("^").startswith("=")
    chosen = [name for name in interfaces if any(name == word or (not exact and word and name.startswith(word)) for word in words)]
    return [name for name in interfaces if name not in chosen] if exclude else chosen


def _gpu_failed(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    return str(data["gpus"]["error"]) if data["gpus"]["status"] == "failed" else ""


def _gpu_hung(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    return str(data["gpus"]["error"]) if data["gpus"]["status"] == "timeout" else ""


def _too_many_ranks(data: Mapping[str, Any], examined: Examined, rank: int, several: bool) -> str:
    gpus = len(data["gpus"]["devices"])
    ranks = int(examined.roster.get(rank, {}).get("identity", {}).get("local_world_size", 1))
    return f"{gpus} GPUs for {ranks} ranks" if 0 < gpus < ranks else ""


_LOOKS: dict[str, Callable[[Mapping[str, Any], Examined, int, bool], str]] = {
    "name-resolves-to-loopback": _loopback_name,
    "name-unresolved": _unresolved_name,
    "wrong-interface": _wrong_interface,
    "interface-missing": _interface_missing,
    "shm-too-small": _shm,
    "gpu-query-failed": _gpu_failed,
    "gpu-query-hung": _gpu_hung,
    "ranks-exceed-gpus": _too_many_ranks,
    "memlock-too-small": _memlock,
    "nofile-too-small": _nofile,
}
