"""Findings about the facts of a host by themselves (phase 0), and about those that should be equal, decided by majority (and phase 2)."""

from __future__ import annotations

import contextlib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings import capital, finding, listed, named, pasted
from numscope.doctor.meet.sockets import is_loopback
from numscope.doctor.records import Confidence, DoctorFinding, Examined, ExamPhase, Severity

SHM_BYTES = 64 << 20  # the default of container runtimes
SHM_PER_RANK_BYTES = 32 << 20  # NCCL's buffers between ranks of a host, plus a DataLoader's tensors
MEMLOCK_BYTES = 1 << 30
NOFILE = 1024
_INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
CLOCK_S = 1.0  # larger offsets are reported: logs, certificates and caches suffer from them
_ABSENT = "nothing"
_UNSET = "not set"
# Set by the launcher per rank or host, so they are expected to differ.
_OWN = re.compile(
    r"TORCHELASTIC_(?!RUN_ID|MAX_RESTARTS)|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|MASTER_ADDR|UCX_NET_DEVICES"
)
_ESSENTIAL = ("torch version", "nccl version")  # different ones work together only by luck
_MINOR = ("transformers version", "accelerate version", "triton version", "numscope version")

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


@dataclass(frozen=True, slots=True)
class DifferingFact:
    """A value that differs between ranks."""

    id: str  # its finding's
    subject: str  # name of the value: ``torch version``, ``NCCL_ALGO``
    majority: str  # the value of more than half of the ranks; "" for a tie
    others: Mapping[str, tuple[int, ...]]  # by other value, the ranks that have it; for a tie, all values

    @property
    def tie(self) -> bool:
        return not self.majority

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that differ; all of them for a tie."""
        return tuple(sorted(rank for ranks in self.others.values() for rank in ranks))


def compared(examined: Examined, blame: Blame) -> Iterator[DoctorFinding]:
    """Findings from the comparison of facts and clocks."""
    yield from (_finding(difference, blame) for difference in differences(examined))
    off = clocks(examined)
    if off:
        evidence = [
            f"rank {rank} on {blame.host(rank)}: {abs(offset):,.1f} s {'ahead of' if offset > 0 else 'behind'} the others"
            for rank, offset in off.items()
        ]
        confidence: Confidence = "certain" if len(examined.roster) > 2 else "likely"
        seconds = f"{max(map(abs, off.values())):,.1f}"
        yield blame.finding("clock-skew", ranks=off, evidence=evidence, confidence=confidence, seconds=seconds)
    for rank, result in sorted(examined.of(ExamPhase.COMPARE).items()):
        interface = result.data.get("interface", {})
        if interface.get("address") and not interface.get("name") and not interface.get("error"):
            why = "gloo and NCCL announce an address of their own interface, which others can't reach behind address translation"
            yield blame.finding("address-translated", ranks=(rank,), evidence=(why,), address=interface["address"])


def differences(examined: Examined) -> list[DifferingFact]:
    """All differences between the facts of the ranks, the most harmful first. A fact that a rank lacks is not a difference."""
    facts = {rank: result.data for rank, result in sorted(examined.of(ExamPhase.FACTS).items())}
    used = {rank: result.data.get("interface", {}) for rank, result in examined.of(ExamPhase.COMPARE).items()}

    def each(fact: str, value: Callable[[Any], object] = str) -> dict[int, str]:
        return {rank: str(value(data[fact])) for rank, data in facts.items() if fact in data}

    def named_values(fact: str, spelled: Callable[[str | None], str]) -> list[tuple[str, dict[int, str]]]:
        names = sorted({name for data in facts.values() for name in data.get(fact, {})})
        return [(name, {rank: spelled(data[fact].get(name)) for rank, data in facts.items() if fact in data}) for name in names]

    versions = named_values("versions", lambda value: _ABSENT if value is None else value)
    environment = named_values("environment", lambda value: _UNSET if value is None else repr(value))
    mtus = {rank: str(each["mtu"]) for rank, each in used.items() if each.get("mtu") and not each["name"].startswith("lo")}
    values = (
        *(("version-mismatch", f"{name} version", of) for name, of in versions),
        ("version-mismatch", "GPU driver version", each("gpus", lambda gpus: gpus.get("driver", _ABSENT))),
        *(("environment-differs", name, of) for name, of in environment if not _OWN.match(name)),
        ("gpus-differ", "GPUs", each("gpus", _gpus)),
        ("mtu-differs", "MTU of the interface used", mtus),
        ("limits-differ", "memlock limit", each("limits", lambda limits: _limit(limits["memlock_bytes"]))),
        ("limits-differ", "open files limit", each("limits", lambda limits: _limit(limits["nofile"]))),
        ("hosts-differ", "architecture", each("machine")),
        ("hosts-differ", "usable CPUs", each("cpus", lambda cpus: cpus.get("quota", cpus["usable"]))),
        ("hosts-differ", "kernel", each("kernel")),
    )
    return [found for id, subject, of in values if (found := split(of, id, subject)) is not None]


def split(values: Mapping[int, str], id: str, subject: str) -> DifferingFact | None:
    """The difference in a value by rank; None if all ranks have the same."""
    ranks: dict[str, tuple[int, ...]] = {}
    for value, own in groupby(sorted(values, key=lambda rank: (values[rank], rank)), key=values.__getitem__):
        ranks[value] = tuple(own)
    if len(ranks) < 2:
        return None
    majority = next((value for value, own in ranks.items() if len(own) * 2 > len(values)), "")
    return DifferingFact(id, subject, majority, {value: own for value, own in ranks.items() if value != majority})


def clocks(examined: Examined) -> dict[int, float]:
    """Seconds by which a rank's clock is ahead of (positive) or behind the median, where that exceeds ``CLOCK_S``."""
    offsets = {rank: float(entry.get("offset_s", 0.0)) for rank, entry in examined.roster.items()}
    if len(offsets) < 2:
        return {}
    middle = statistics.median_low(sorted(offsets.values()))
    return {rank: offset - middle for rank, offset in sorted(offsets.items()) if abs(offset - middle) > CLOCK_S}


def _gpus(gpus: Mapping[str, Any]) -> str:
    names = Counter(str(device["name"]) for device in gpus["devices"])
    return ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) or "none"


def _limit(value: int) -> str:
    return "none" if value < 0 else f"{value:,}"


def _finding(difference: DifferingFact, blame: Blame) -> DoctorFinding:
    ranks, subject, majority = difference.ranks, difference.subject, difference.majority
    lines = [f"{_who(own, blame)}: {value}" for value, own in difference.others.items()]
    summary = f"{subject} differs, and no value has a majority: {listed(difference.others)}."
    remedy: tuple[str, ...] = ()
    if not difference.tie:
        lines.append(f"all others: {majority}")
        summary = f"{capital(_who(ranks, blame))}: {subject} is {listed(difference.others)}; on the others it is {majority}."
        remedy = _remedy(difference.id, subject, majority)
    severity: Severity | None = None
    if difference.id == "version-mismatch" and subject not in _ESSENTIAL:
        severity = "note" if subject in _MINOR else "degraded"
    confidence: Confidence = "likely" if difference.tie else "certain"
    more = {"confidence": confidence, "severity": severity, "remedy": remedy, "summary": summary}
    return blame.finding(difference.id, ranks=ranks, evidence=lines, **more)


def _remedy(id: str, subject: str, majority: str) -> tuple[str, ...]:
    package = subject.removesuffix(" version")
    if id == "version-mismatch" and majority != _ABSENT and package not in ("python", "GPU driver", "nccl", "cuda-runtime"):
        return (f"pip install {package}=={majority}",)
    if id == "environment-differs":
        return (f"unset {subject}" if majority == _UNSET else f"export {subject}={majority}",)
    return (f"sudo ip link set dev INTERFACE mtu {majority}",) if id == "mtu-differs" else ()


def _who(ranks: tuple[int, ...], blame: Blame) -> str:
    return f"{named(ranks)} ({listed(sorted(blame.hosts_of(ranks)), 4)})"
