"""What ``explain`` can find: stable ids, one sentence each. The table in the documentation is made from this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from numscope.doctor.records import Confidence, Finding, Severity


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding.

    Args:
        consequence: some other fault usually comes first; beside a cause it is a note.
        hardware: the rule rests on reconstructed samples: no hardware that shows it was at hand.
    """

    id: str
    severity: Severity
    sentence: str
    consequence: bool = False
    hardware: bool = False


_ENTRIES = (
    Entry("nccl-version-mismatch", "fault", "Ranks of one job run different versions of NCCL."),
    Entry("nccl-no-interface", "fault", "NCCL found no network interface that NCCL_SOCKET_IFNAME allows."),
    Entry(
        "nccl-wrong-interface",
        "fault",
        "NCCL is bound to an interface that other hosts cannot reach (loopback, container bridge, link-local).",
    ),
    Entry(
        "nccl-socket-fallback",
        "degraded",
        "NCCL uses TCP sockets between hosts that have, or are expected to have, InfiniBand or RoCE.",
        hardware=True,
    ),
    Entry("nccl-missing-ranks", "fault", "A communicator never became complete: some of its ranks did not come, or did not finish."),
    Entry("nccl-connect-failed", "fault", "NCCL could not connect to another rank's address."),
    Entry("nccl-peer-closed", "fault", "Another rank closed its connection: it died, or left, before this one was done.", consequence=True),
    Entry("nccl-system-error", "fault", "A system call failed inside NCCL, and the log does not say which.", consequence=True),
    Entry("nccl-cuda-error", "fault", "A CUDA call failed inside NCCL.", hardware=True),
    Entry("nccl-duplicate-gpu", "fault", "Two ranks use one GPU."),
    Entry("nccl-warning", "note", "NCCL warned of something that no rule here knows."),
    Entry("gpu-out-of-memory", "fault", "A GPU's memory is used up.", hardware=True),
    Entry("gpu-fabric-manager", "fault", "The switches between a host's GPUs (NVLink) are not set up.", hardware=True),
    Entry("ib-gid", "fault", "The RoCE address (GID) in use does not lead to the other host.", hardware=True),
    Entry("gpu-xid", "fault", "The driver reported an error of a GPU (Xid).", hardware=True),
    Entry(
        "gpu-p2p-disabled",
        "degraded",
        "GPUs of one host cannot reach each other's memory directly (ACS, IOMMU, virtualization).",
        hardware=True,
    ),
    Entry("ib-timeout", "fault", "A transfer over InfiniBand or RoCE was never acknowledged.", hardware=True),
    Entry("ib-transfer-failed", "fault", "A transfer over InfiniBand or RoCE ended with an error.", hardware=True),
    Entry("shm-too-small", "fault", "/dev/shm has no room for the shared memory that ranks of one host need."),
    Entry("memlock-too-small", "fault", "The limit of locked memory (ulimit -l) is too small for InfiniBand or RoCE.", hardware=True),
    Entry(
        "collective-mismatch",
        "fault",
        "Ranks called different collectives, or the same one with different sizes or dtypes, at one place in the sequence.",
    ),
    Entry("collective-behind", "fault", "Some ranks never came to the collective that the others wait in."),
    Entry("collective-stuck", "fault", "All ranks known are in the same collective and it does not end.", consequence=True),
    Entry("flight-recorder-rank-missing", "note", "A rank of the job left no flight-recorder dump."),
    Entry("rank-killed", "fault", "A rank was ended by SIGKILL from outside, most often by the kernel because memory ran out."),
    Entry("rank-crashed", "fault", "A rank crashed: segmentation fault, bus error, illegal instruction."),
    Entry("rank-aborted", "fault", "A rank ended itself by SIGABRT, as NCCL's watchdog and failed C++ assertions do.", consequence=True),
    Entry("rank-failed", "fault", "A rank's program raised an exception or ended with a non-zero exit code."),
    Entry("job-terminated", "fault", "All ranks were told to end from outside (SIGTERM): cancelled, preempted, or out of time."),
    Entry("host-out-of-memory", "fault", "The kernel or the scheduler ended a process because memory ran out."),
    Entry("port-in-use", "fault", "The port of the rendezvous is taken by another process."),
    Entry("rendezvous-timeout", "fault", "Not all ranks or nodes came to the rendezvous in time."),
    Entry("rendezvous-unreachable", "fault", "The address of the rendezvous could not be reached."),
    Entry("hostname-unresolved", "fault", "A host name of the job does not resolve."),
    Entry("hostname-loopback", "degraded", "A host name resolves to the loopback address, which other hosts cannot reach."),
    Entry("gloo-no-interface", "fault", "gloo found no interface of the name in GLOO_SOCKET_IFNAME."),
    Entry("gloo-connect-failed", "fault", "gloo could not connect all ranks with each other."),
    Entry("gloo-timeout", "fault", "A rank waited in a gloo collective for another that did not come.", consequence=True),
    Entry(
        "gloo-peer-closed",
        "fault",
        "Another rank closed its gloo connection: it died, or left, before this one was done.",
        consequence=True,
    ),
    Entry("could-not-tell", "fault", "Something failed, and these files do not say what.", consequence=True),
)

CATALOG: dict[str, Entry] = {entry.id: entry for entry in _ENTRIES}


def finding(
    id: str,
    summary: str,
    *,
    ranks: Iterable[int] = (),
    hosts: Iterable[str] = (),
    links: Iterable[tuple[str, str]] = (),
    evidence: Iterable[str] = (),
    confidence: Confidence = "likely",
    remedy: Iterable[str] = (),
    severity: Severity | None = None,
) -> Finding:
    """A finding of the catalog; its severity is the catalog's unless it is told."""
    return Finding(
        id=id,
        severity=CATALOG[id].severity if severity is None else severity,
        summary=summary,
        ranks=tuple(sorted(set(ranks))),
        hosts=tuple(sorted({host for host in hosts if host})),
        links=tuple(sorted(set(links))),
        evidence=tuple(dict.fromkeys(evidence)),
        confidence=confidence,
        remedy=tuple(remedy),
    )


def named(ranks: Iterable[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0, 1, 2``, ``ranks 0–6, 8 and 40 more``: what a sentence says of several ranks."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [w for run in runs for w in ([f"{run[0]}–{run[-1]}"] if len(run) > 2 else [str(number) for number in run])]
    left = len(words) - most
    text = ", ".join(words[:most]) + (f" and {left} more" if left > 0 else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {text}"
