"""The ids of all findings, with their usual severities. docs/doctor-json.md and docs/doctor-explain.md say what each one means.

Something degraded becomes a fault if it made a phase fail, or if a log mentions it, since logs do so only once it has caused harm.
"""

from __future__ import annotations

from numscope.doctor.records import Severity

_IDS: dict[Severity, str] = {
    # Training does not start, or not correctly.
    "fault": """
        hub-unresolved hub-loopback hub-refused hub-dropped hub-unreachable hub-port-silent hub-port-http hub-port-foreign hub-wrong-job
        hub-port-in-use hub-died hub-silent
        rank-missing rank-died rank-silent rank-stuck rank-duplicate rank-out-of-range world-size-differs
        interface-missing gpu-query-failed gpu-query-hung version-mismatch
        node-unreachable node-inbound-blocked node-outbound-blocked link-broken one-way-link links-failing network-split network-blocked
        ephemeral-ports-blocked mtu-mismatch wrong-address process-unresponsive loopback-blocked
        child-died child-hung backend-rank-missing store-unreachable backend-unavailable gloo-start-failed nccl-start-failed
        payload-corrupted rank-transfers-failing pair-failed pairs-failing collective-wrong collective-failed memory-unavailable
        cause-unknown
        nccl-wrong-interface nccl-missing-ranks nccl-connect-failed nccl-peer-closed nccl-system-error nccl-cuda-error nccl-duplicate-gpu
        gpu-out-of-memory gpu-fabric-manager gpu-xid ib-gid ib-timeout ib-transfer-failed
        collective-mismatch collective-stuck rank-behind rank-killed rank-crashed rank-aborted rank-failed job-terminated host-out-of-memory
        port-in-use rendezvous-timeout rendezvous-unreachable gloo-connect-failed gloo-timeout gloo-peer-closed
    """,
    # It runs, but worse than it could.
    "degraded": """
        name-resolves-to-loopback name-unresolved shm-too-small memlock-too-small nofile-too-small ranks-exceed-gpus
        environment-differs gpus-differ mtu-differs clock-skew address-translated
        link-slow link-lossy link-high-latency pair-slow rank-slow slower-than-baseline
        nccl-socket-fallback gpu-p2p-disabled
    """,
    # Worth knowing.
    "note": """
        hub-unauthenticated wrong-interface limits-differ hosts-differ collective-nondeterministic host-busy incomplete
        nccl-warning flight-recorder-rank-missing
    """,
}
CATALOG: dict[str, Severity] = {id: severity for severity, ids in _IDS.items() for id in ids.split()}
# Usually caused by another fault: next to a cause, these are notes.
CONSEQUENCES = frozenset(
    "cause-unknown nccl-peer-closed nccl-system-error collective-stuck rank-aborted gloo-timeout gloo-peer-closed".split()
)
