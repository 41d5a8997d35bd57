"""What ``explain`` can find: stable ids, one sentence each. The table in the documentation is made from this."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from numscope.doctor.findings import telling
from numscope.doctor.findings.catalog import CATALOG as LIVE
from numscope.doctor.findings.catalog import Entry

# What the examination of a live job can find too has the same id. A log tells of it when it has done harm.
_SHARED = (
    LIVE["version-mismatch"],
    LIVE["interface-missing"],
    replace(LIVE["name-unresolved"], severity="fault", sentence="A host name of the job does not resolve."),
    LIVE["name-resolves-to-loopback"],
    replace(LIVE["shm-too-small"], severity="fault"),
    replace(LIVE["memlock-too-small"], severity="fault"),
    replace(LIVE["could-not-tell"], consequence=True),
)

_ENTRIES = (
    *_SHARED,
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
    Entry("gloo-connect-failed", "fault", "gloo could not connect all ranks with each other."),
    Entry("gloo-timeout", "fault", "A rank waited in a gloo collective for another that did not come.", consequence=True),
    Entry(
        "gloo-peer-closed",
        "fault",
        "Another rank closed its gloo connection: it died, or left, before this one was done.",
        consequence=True,
    ),
)

CATALOG: dict[str, Entry] = {entry.id: entry for entry in _ENTRIES}
assert len(CATALOG) == len(_ENTRIES), "an id stands twice"

finding = partial(telling.finding, catalog=CATALOG)
