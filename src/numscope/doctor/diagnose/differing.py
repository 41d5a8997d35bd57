"""Findings about differences between ranks that should be equal, decided by majority (phases 0 and 2)."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings import capital, listed, named
from numscope.doctor.records import Confidence, DoctorFinding, Examined, ExamPhase, Severity

CLOCK_S = 1.0  # larger offsets are reported: logs, certificates and caches suffer from them
_ABSENT = "nothing"
_UNSET = "not set"
# Set by the launcher per rank or host, so they are expected to differ.
_OWN = re.compile(
    r"TORCHELASTIC_(?!RUN_ID|MAX_RESTARTS)|CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|MASTER_ADDR|UCX_NET_DEVICES"
)
_ESSENTIAL = ("torch version", "nccl version")  # different ones work together only by luck
_MINOR = ("transformers version", "accelerate version", "triton version", "numscope version")


@dataclass(frozen=True, slots=True)
class Difference:
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


def differences(examined: Examined) -> list[Difference]:
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


def split(values: Mapping[int, str], id: str, subject: str) -> Difference | None:
    """The difference in a value by rank; None if all ranks have the same."""
    ranks: dict[str, tuple[int, ...]] = {}
    for value, own in groupby(sorted(values, key=lambda rank: (values[rank], rank)), key=values.__getitem__):
        ranks[value] = tuple(own)
    if len(ranks) < 2:
        return None
    majority = next((value for value, own in ranks.items() if len(own) * 2 > len(values)), "")
    return Difference(id, subject, majority, {value: own for value, own in ranks.items() if value != majority})


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


def _finding(difference: Difference, blame: Blame) -> DoctorFinding:
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
