"""What differs between ranks that should be equal (phase 2), as findings."""

from __future__ import annotations

from numscope.doctor.diagnose.blame import Blame
from numscope.doctor.findings.telling import finding, listed, named
from numscope.doctor.phases.compare import ABSENT, Difference, clocks, differences
from numscope.doctor.records import Examined, Finding, Severity

_IDS = {
    "version": "version-mismatch",
    "environment": "environment-differs",
    "gpus": "gpus-differ",
    "mtu": "mtu-differs",
    "limit": "limits-differ",
    "cpus": "hosts-differ",
    "system": "hosts-differ",
}
_ESSENTIAL = ("torch version", "nccl version")  # the ranks can't work together, or only by luck
_MINOR = ("transformers version", "accelerate version", "triton version", "numscope version")


def compared(examined: Examined, blame: Blame) -> list[Finding]:
    """Findings by comparison of facts and clocks."""
    found = [_finding(difference, examined, blame) for difference in differences(examined)]
    off = clocks(examined)
    if off:
        hosts = {blame.hosts.get(rank, "") for rank in off}
        lines = [
            f"rank {rank} on {blame.hosts.get(rank, '')}: {abs(offset):,.1f} s {'before' if offset > 0 else 'behind'} the others"
            for rank, offset in off.items()
        ]
        found.append(
            finding(
                "clock-skew",
                f"The clock of {listed(sorted(hosts))} is off by up to {max(map(abs, off.values())):,.1f} s.",
                ranks=off,
                hosts=hosts,
                evidence=lines,
                confidence="certain" if len(examined.roster) > 2 else "likely",
                remedy=("sudo chronyc makestep  # or: sudo timedatectl set-ntp true",),
            )
        )
    for rank, result in sorted(examined.of(2).items()):
        interface = result.data.get("interface", {})
        if interface.get("address") and not interface.get("name") and not interface.get("error"):
            found.append(
                finding(
                    "address-translated",
                    f"Rank {rank} on {blame.hosts.get(rank, '')} is seen as {interface['address']}, which none of its interfaces has.",
                    ranks=(rank,),
                    hosts=(blame.hosts.get(rank, ""),),
                    evidence=("gloo and NCCL tell the others an address of their own interface: behind a translation nobody reaches it",),
                )
            )
    return found


def _finding(difference: Difference, examined: Examined, blame: Blame) -> Finding:
    ranks = difference.ranks
    hosts = {blame.hosts.get(rank, "") for rank in ranks}
    lines = [f"{named(ranks)} ({_hosts(ranks, blame)}): {value}" for value, ranks in difference.others.items()]
    if difference.tie:
        summary = f"{difference.subject} differs, and no value has a majority: {listed(difference.others)}."
    else:
        lines.append(f"all others: {difference.majority}")
        who = f"{named(ranks).capitalize()} ({_hosts(ranks, blame)})"
        summary = f"{who}: {difference.subject} is {listed(difference.others)}, on the others {difference.majority}."
    severity: Severity | None = None
    if difference.kind == "version" and difference.subject not in _ESSENTIAL:
        severity = "note" if difference.subject in _MINOR else "degraded"
    return finding(
        _IDS[difference.kind],
        summary,
        ranks=ranks,
        hosts=hosts,
        evidence=lines,
        confidence="certain" if not difference.tie else "likely",
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
        return (
            (f"unset {difference.subject}",)
            if difference.majority == "not set"
            else (f"export {difference.subject}={difference.majority}",)
        )
    if difference.kind == "mtu":
        return (f"sudo ip link set dev INTERFACE mtu {difference.majority}",)
    return ()


def _hosts(ranks: tuple[int, ...], blame: Blame) -> str:
    return listed(sorted({blame.hosts.get(rank, "") for rank in ranks}), 4)
