"""What the facts about a host mean by themselves, without comparison (phase 0)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings import capital, finding, listed, named, pasted
from numscope.doctor.meet.sockets import is_loopback
from numscope.doctor.records import Confidence, Examined, Finding, Phase

SHM_BYTES = 64 << 20  # the default of container runtimes
SHM_PER_RANK_BYTES = 32 << 20  # NCCL's buffers between ranks of a host, plus a DataLoader's tensors
MEMLOCK_BYTES = 1 << 30
NOFILE = 1024
_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a host's facts."""

    id: str  # of its finding
    # returns what is wrong with a rank's facts, or "". Raises KeyError, TypeError or ValueError for a missing fact.
    look: Callable[[Facts, Examined, int], str]
    summary: str  # with ``{where}`` for the hosts, ``{who}`` for the ranks and ``{expected}`` for the world size
    # for the ranks with the problem; ``{pasted}`` is the first one's host, ``{entry}`` its line for /etc/hosts
    remedy: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    ifname: bool = False  # append the lines that select the right interface


def local_facts(examined: Examined, blame: Blame) -> Iterator[Finding]:
    """Findings about single hosts: one per check, with an evidence line for each group of hosts."""
    facts = {rank: result.data for rank, result in sorted(examined.of(Phase.FACTS).items()) if result.data}
    for check in CHECKS:
        ranks_of: dict[str, list[int]] = defaultdict(list)
        for rank, data in facts.items():
            try:
                ranks_of[check.look(data, examined, rank)].append(rank)
            except (KeyError, TypeError, ValueError):
                continue  # a fact that could not be obtained
        ranks_of.pop("", None)
        ranks = sorted(rank for each in ranks_of.values() for rank in each)
        if not ranks:
            continue
        hosts = sorted(blame.hosts_of(ranks))
        host, address = (hosts or [""])[0], str(examined.roster.get(ranks[0], {}).get("address", "")) or "ADDRESS"
        where = {
            "where": listed(hosts),
            "who": named(ranks),
            "expected": examined.expected,
            "pasted": pasted(host),
            "entry": pasted(f"{address} {host}"),
        }
        yield finding(
            check.id,
            capital(check.summary.format(**where)),
            *(line.format(**where) for line in check.remedy),
            *(_ifname(ranks, examined) if check.ifname else ()),
            ranks=ranks,
            hosts=hosts,
            evidence=[f"{listed(sorted({blame.host(r) or f'rank {r}' for r in each}))}: {what}" for what, each in ranks_of.items()],
            confidence=check.confidence,
        )


def _ifname(ranks: Sequence[int], examined: Examined) -> tuple[str, ...]:
    """Selects the interface by which others reach these ranks, if it is the same for all."""
    compared = examined.of(Phase.COMPARE)
    names = {compared[rank].data.get("interface", {}).get("name", "") for rank in ranks if rank in compared} - {"", "lo"}
    name = names.pop() if len(names) == 1 else ""
    return (f"export NCCL_SOCKET_IFNAME={pasted(name)} GLOO_SOCKET_IFNAME={pasted(name)}",) if name else ()


def _several_hosts(examined: Examined) -> bool:
    return len({(entry["identity"].get("hostname"), entry["identity"].get("node")) for entry in examined.roster.values()}) > 1


def _ranks_on_host(examined: Examined, rank: int) -> int:
    return int(examined.roster.get(rank, {}).get("identity", {}).get("local_world_size", 1))


def _loopback_name(data: Facts, examined: Examined, rank: int) -> str:
    name = data["name"]
    if all(is_loopback(str(entry.get("address", ""))) for entry in examined.roster.values()):
        return ""  # "nodes" on one machine reach each other that way
    return f"{name['name']} resolves to {listed(name['addresses'])}" if _several_hosts(examined) and name["loopback"] else ""


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
    told = []
    for name in _INTERFACE_NAMES:
        wanted = data["environment"].get(name, "")
        matching = _matching(wanted, data["interfaces"]) if wanted else used
        if matching and used[0] not in matching:
            told.append(f"{name}={wanted}, {reason}")
    addresses = data["name"]["addresses"]
    if "GLOO_SOCKET_IFNAME" not in data["environment"] and addresses and not data["name"]["loopback"] and address not in addresses:
        told.append(f"its name {data['name']['name']} resolves to {listed(addresses)}, {reason}")
    return "; ".join(told)


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


_GPU_REMEDY = ("srun --exclude={pasted} …", "nvidia-smi -q  # on that host; sudo dmesg | grep -i xid")
CHECKS = (
    Check(
        "name-resolves-to-loopback",
        _loopback_name,
        "{where} resolves its own name to a loopback address. gloo uses the name's address, so other hosts can't reach it.",
        ("echo {entry} | sudo tee -a /etc/hosts  # and remove {pasted} from its 127.0.1.1 line",),
        ifname=True,
    ),
    Check(
        "name-unresolved",
        lambda data, examined, rank: f"{data['name']['name']}: {data['name']['error']}" if data["name"]["error"] else "",
        "{where} can't resolve its own name.",
        ("echo {entry} | sudo tee -a /etc/hosts",),
    ),
    Check(
        "wrong-interface",
        _wrong_interface,
        "On {where}, gloo or NCCL would use a different interface than the one by which other hosts reach it.",
        confidence="likely",
        ifname=True,
    ),
    Check("interface-missing", _interface_missing, "On {where}, the environment names an interface that does not exist.", ifname=True),
    Check(
        "shm-too-small",
        _shm,
        "/dev/shm on {where} is too small.",
        (
            "docker run --shm-size=8g …  # or --ipc=host",
            "mount -o remount,size=8g /dev/shm",
            "export NCCL_SHM_DISABLE=1  # works, but slower",
        ),
        "likely",
    ),
    Check("gpu-query-failed", _gpu_query("failed"), "The GPU driver on {where} reports an error.", _GPU_REMEDY),
    Check("gpu-query-hung", _gpu_query("timeout"), "The GPU driver on {where} does not respond.", _GPU_REMEDY),
    Check("ranks-exceed-gpus", _too_many_ranks, "{where} has fewer GPUs than ranks.", ("torchrun --nproc_per_node gpu …",)),
    Check(
        "memlock-too-small",
        _memlock,
        "The limit on locked memory on {where} is too small for InfiniBand.",
        ("ulimit -l unlimited", "echo '* - memlock unlimited' | sudo tee -a /etc/security/limits.conf"),
        "likely",
    ),
    Check(
        "nofile-too-small",
        _nofile,
        "The limit on open files of {who} is too small for a job of {expected} ranks.",
        ("ulimit -n 65536",),
        "likely",
    ),
)
