"""Findings about differences between ranks that should be equal (phase 2)."""

from __future__ import annotations

from collections.abc import Iterator

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings import capital, listed, named
from numscope.doctor.phases.compare import ABSENT, Difference, clocks, differences
from numscope.doctor.records import Examined, Finding, Phase, Severity

_IDS = {
    "version": "version-mismatch",
    "environment": "environment-differs",
    "gpus": "gpus-differ",
    "mtu": "mtu-differs",
    "limit": "limits-differ",
    "cpus": "hosts-differ",
    "system": "hosts-differ",
}
_ESSENTIAL = ("torch version", "nccl version")  # different ones work together only by luck
_MINOR = ("transformers version", "accelerate version", "triton version", "numscope version")


def compared(examined: Examined, blame: Blame) -> Iterator[Finding]:
    """Findings from the comparison of facts and clocks."""
    yield from (_finding(difference, blame) for difference in differences(examined))
    off = clocks(examined)
    if off:
        hosts = sorted(blame.hosts_of(off))
        yield blame.finding(
            "clock-skew",
            f"The clock on {listed(hosts)} is off by up to {max(map(abs, off.values())):,.1f} s.",
            ranks=off,
            evidence=[
                f"rank {rank} on {blame.host(rank)}: {abs(offset):,.1f} s {'ahead of' if offset > 0 else 'behind'} the others"
                for rank, offset in off.items()
            ],
            confidence="certain" if len(examined.roster) > 2 else "likely",
            remedy=("sudo chronyc makestep  # or: sudo timedatectl set-ntp true",),
        )
    for rank, result in sorted(examined.of(Phase.COMPARE).items()):
        interface = result.data.get("interface", {})
        if interface.get("address") and not interface.get("name") and not interface.get("error"):
            yield blame.finding(
                "address-translated",
                f"Rank {rank} on {blame.host(rank)} connects from {interface['address']}, which none of its interfaces has.",
                ranks=(rank,),
                evidence=("gloo and NCCL announce an address of their own interface, which others can't reach behind address translation",),
            )


def _finding(difference: Difference, blame: Blame) -> Finding:
    ranks = difference.ranks
    lines = [f"{_who(ranks, blame)}: {value}" for value, ranks in difference.others.items()]
    if difference.tie:
        summary = f"{difference.subject} differs, and no value has a majority: {listed(difference.others)}."
    else:
        lines.append(f"all others: {difference.majority}")
        values = f"{difference.subject} is {listed(difference.others)}; on the others it is {difference.majority}"
        summary = f"{capital(_who(ranks, blame))}: {values}."
    severity: Severity | None = None
    if difference.kind == "version" and difference.subject not in _ESSENTIAL:
        severity = "note" if difference.subject in _MINOR else "degraded"
    return blame.finding(
        _IDS[difference.kind],
        summary,
        ranks=ranks,
        evidence=lines,
        confidence="likely" if difference.tie else "certain",
        remedy=_remedy(difference),
        severity=severity,
    )


def _remedy(difference: Difference) -> tuple[str, ...]:
    if difference.tie or difference.majority == ABSENT:
        return ()
    package, _, what = difference.subject.partition(" ")
    if difference.kind == "version" and what == "version" and package not in ("python", "GPU", "nccl", "cuda-runtime"):
        return (f"pip install {package}=={difference.majority}",)
    if difference.kind == "environment":
        unset = difference.majority == "not set"
        return (f"unset {difference.subject}" if unset else f"export {difference.subject}={difference.majority}",)
    if difference.kind == "mtu":
        return (f"sudo ip link set dev INTERFACE mtu {difference.majority}",)
    return ()


def _who(ranks: tuple[int, ...], blame: Blame) -> str:
    return f"{named(ranks)} ({listed(sorted(blame.hosts_of(ranks)), 4)})"
