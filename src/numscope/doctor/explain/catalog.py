"""All that ``explain`` can find: stable ids, one sentence each. The table in the documentation matches this one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from numscope.doctor.findings import wording
from numscope.doctor.findings.catalog import CATALOG as LIVE
from numscope.doctor.findings.catalog import Entry

# Findings that an examination of a live job can make too have the same id. A log mentions a condition only once it has caused harm.
_SHARED = (
    LIVE["version-mismatch"],
    LIVE["interface-missing"],
    replace(LIVE["name-unresolved"], severity="fault", sentence="A host name of the job does not resolve."),
    LIVE["name-resolves-to-loopback"],
    replace(LIVE["shm-too-small"], severity="fault"),
    replace(LIVE["memlock-too-small"], severity="fault"),
    replace(LIVE["cause-unknown"], consequence=True),
)

_ENTRIES = (
    *_SHARED,
    Entry("nccl-wrong-interface", "fault", "NCCL uses an interface that other hosts can't reach (loopback, container bridge, link-local)."),
    Entry(
        "nccl-socket-fallback",
        "degraded",
        "NCCL uses TCP sockets between hosts that have, or should have, InfiniBand or RoCE.",
        hardware=True,
    ),
    Entry("nccl-missing-ranks", "fault", "A communicator was never completed: some of its ranks did not join, or did not finish."),
    Entry("nccl-connect-failed", "fault", "NCCL could not connect to another rank's address."),
    Entry("nccl-peer-closed", "fault", "Another rank closed its connection: it died or exited before this one was done.", consequence=True),
    Entry("nccl-system-error", "fault", "A system call failed inside NCCL, and the log does not name it.", consequence=True),
    Entry("nccl-cuda-error", "fault", "A CUDA call failed inside NCCL.", hardware=True),
    Entry("nccl-duplicate-gpu", "fault", "Two ranks use the same GPU."),
    Entry("nccl-warning", "note", "NCCL issued a warning that no rule here covers."),
    Entry("gpu-out-of-memory", "fault", "A GPU ran out of memory.", hardware=True),
    Entry("gpu-fabric-manager", "fault", "The NVLink switches between a host's GPUs are not set up.", hardware=True),
    Entry("ib-gid", "fault", "The RoCE address (GID) in use does not lead to the other host.", hardware=True),
    Entry("gpu-xid", "fault", "The driver reported a GPU error (Xid).", hardware=True),
    Entry(
        "gpu-p2p-disabled",
        "degraded",
        "GPUs of the same host can't access each other's memory directly (ACS, IOMMU, virtualization).",
        hardware=True,
    ),
    Entry("ib-timeout", "fault", "A transfer over InfiniBand or RoCE was never acknowledged.", hardware=True),
    Entry("ib-transfer-failed", "fault", "A transfer over InfiniBand or RoCE failed.", hardware=True),
    Entry(
        "collective-mismatch",
        "fault",
        "Ranks called different collectives, or the same one with different sizes or dtypes, at the same point of the sequence.",
    ),
    Entry("rank-behind", "fault", "Some ranks never reached the collective in which the others wait."),
    Entry("collective-stuck", "fault", "All known ranks are in the same collective, and it does not finish.", consequence=True),
    Entry("flight-recorder-rank-missing", "note", "A rank of the job left no flight-recorder dump."),
    Entry("rank-killed", "fault", "A rank was killed by SIGKILL, usually by the kernel because memory ran out."),
    Entry("rank-crashed", "fault", "A rank crashed: segmentation fault, bus error, illegal instruction."),
    Entry("rank-aborted", "fault", "A rank ended itself by SIGABRT, as NCCL's watchdog and failed C++ assertions do.", consequence=True),
    Entry("rank-failed", "fault", "A rank's program raised an exception or ended with a non-zero exit code."),
    Entry("job-terminated", "fault", "All ranks were terminated from outside (SIGTERM): cancelled, preempted, or out of time."),
    Entry("host-out-of-memory", "fault", "The kernel or the scheduler killed a process because memory ran out."),
    Entry("port-in-use", "fault", "Another process uses the port of the rendezvous."),
    Entry("rendezvous-timeout", "fault", "Not all ranks or nodes joined the rendezvous in time."),
    Entry("rendezvous-unreachable", "fault", "The address of the rendezvous could not be reached."),
    Entry("gloo-connect-failed", "fault", "gloo could not connect all ranks with each other."),
    Entry("gloo-timeout", "fault", "A rank waited in a gloo collective for another rank that did not join it.", consequence=True),
    Entry(
        "gloo-peer-closed",
        "fault",
        "Another rank closed its gloo connection: it died or exited before this one was done.",
        consequence=True,
    ),
)

CATALOG: dict[str, Entry] = {entry.id: entry for entry in _ENTRIES}
assert len(CATALOG) == len(_ENTRIES), "an id is used twice"

finding = partial(wording.finding, catalog=CATALOG)
