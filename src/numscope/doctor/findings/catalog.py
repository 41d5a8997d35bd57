"""All that an examination can find: stable ids, usual severities, one sentence each. The table in the documentation matches this one."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.doctor.records import Severity


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding.

    Args:
        severity: fault: training does not start, or not correctly. degraded: it runs, but worse than it could. note: worth knowing.
            Something degraded becomes a fault if it made a phase fail.
        hardware: not verified on hardware that shows it.
        consequence: usually caused by another fault; next to a cause it is a note.
    """

    id: str
    severity: Severity
    sentence: str
    hardware: bool = False
    consequence: bool = False


_ENTRIES = (
    # reaching the hub
    Entry("hub-unresolved", "fault", "The name of the hub's host does not resolve."),
    Entry("hub-loopback", "fault", "The name of the hub's host resolves to this host itself, but the hub is on another one."),
    Entry("hub-refused", "fault", "The hub's port refuses connections: nothing listens there, or a firewall rejects them."),
    Entry("hub-dropped", "fault", "Packets to the hub's port are dropped, probably by a firewall."),
    Entry("hub-unreachable", "fault", "There is no route to the hub's host."),
    Entry("hub-port-silent", "fault", "Something accepts connections at the hub's port but sends nothing."),
    Entry("hub-port-http", "fault", "A web server listens at the hub's port."),
    Entry("hub-port-foreign", "fault", "Another program listens at the hub's port."),
    Entry("hub-wrong-job", "fault", "The doctor of another job listens at the hub's port."),
    Entry("hub-port-in-use", "fault", "The hub can't listen at its port because another process uses it."),
    Entry("hub-died", "fault", "The process that hosted the hub (rank 0's or its launcher) died."),
    Entry("hub-silent", "fault", "The process that hosts the hub (rank 0's or its launcher) no longer responds."),
    Entry("hub-unauthenticated", "note", "Connections without this job's token were closed: a port scanner, or another job."),
    # joining and staying
    Entry("rank-missing", "fault", "A rank never joined."),
    Entry("rank-died", "fault", "A rank's process ended during the examination."),
    Entry("rank-silent", "fault", "A rank's heartbeat stopped: its process hangs, or its host is cut off."),
    Entry("rank-stuck", "fault", "A rank is alive but stuck in a phase that does not involve other ranks."),
    Entry("rank-duplicate", "fault", "Two processes claim the same rank or node number."),
    Entry("rank-out-of-range", "fault", "A process has a rank outside of the world size."),
    Entry("world-size-differs", "fault", "Ranks have different world sizes."),
    # facts about a host
    Entry("name-resolves-to-loopback", "degraded", "A host resolves its own name to 127.x, so other hosts can't reach gloo there."),
    Entry("name-unresolved", "degraded", "A host can't resolve its own name."),
    Entry("wrong-interface", "note", "gloo or NCCL would use a different interface than the one by which other hosts reach this host."),
    Entry("interface-missing", "fault", "NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or --ifname names an interface that does not exist."),
    Entry("shm-too-small", "degraded", "/dev/shm is too small for the ranks of a host."),
    Entry("memlock-too-small", "degraded", "The limit on locked memory is too small for InfiniBand.", hardware=True),
    Entry("nofile-too-small", "degraded", "The limit on open files is too small for the number of ranks."),
    Entry("gpu-query-failed", "fault", "nvidia-smi reports an error.", hardware=True),
    Entry("gpu-query-hung", "fault", "nvidia-smi hangs, which means that the GPU driver does.", hardware=True),
    Entry("ranks-exceed-gpus", "degraded", "A host has fewer GPUs than ranks."),
    # differences
    Entry("version-mismatch", "fault", "Ranks have different versions of torch or NCCL (other packages: degraded or a note)."),
    Entry("environment-differs", "degraded", "Ranks have different values of NCCL_*, TORCH_*, GLOO_* and similar variables."),
    Entry("gpus-differ", "degraded", "Hosts have different kinds or numbers of GPUs."),
    Entry("mtu-differs", "degraded", "Hosts have different MTUs on the interface in use."),
    Entry("limits-differ", "note", "Ranks have different limits on locked memory or open files."),
    Entry("hosts-differ", "note", "Hosts have different CPUs, kernels or architectures."),
    Entry("clock-skew", "degraded", "Clocks differ by more than a second."),
    Entry("address-translated", "degraded", "A rank connects from an address that none of its interfaces has.", hardware=True),
    # links
    Entry("node-unreachable", "fault", "A node reaches no other node, and no other node reaches it."),
    Entry("node-inbound-blocked", "fault", "A node receives nothing, although what it sends arrives."),
    Entry("node-outbound-blocked", "fault", "What a node sends never arrives, although it receives packets."),
    Entry("link-broken", "fault", "Two nodes do not reach each other."),
    Entry("one-way-link", "fault", "Packets or connections from one node to another do not arrive; the other direction works."),
    Entry("links-failing", "fault", "Several links fail, and no single explanation is simpler than all others."),
    Entry("network-split", "fault", "The network is split into parts that work internally but do not reach each other."),
    Entry("network-blocked", "fault", "No node reaches any other, although all reach the hub."),
    Entry("ephemeral-ports-blocked", "fault", "A firewall blocks ephemeral ports, which gloo and NCCL use, but not all ports."),
    Entry("mtu-mismatch", "fault", "Small packets pass, large ones do not."),
    Entry("wrong-address", "fault", "Something else answers at the address that a rank announced."),
    Entry("process-unresponsive", "fault", "A host's kernel accepts connections, but the rank's process does not respond."),
    Entry("loopback-blocked", "fault", "Ranks of the same host do not reach each other."),
    Entry("link-slow", "degraded", "A node or link has much less bandwidth than the others."),
    Entry("link-lossy", "degraded", "A node or link loses packets."),
    Entry("link-high-latency", "degraded", "A node or link has much longer round trips than the others."),
    # torch
    Entry("child-died", "fault", "A rank's torch process died."),
    Entry("child-hung", "fault", "A rank's torch process hung and was killed."),
    Entry("backend-rank-missing", "fault", "A rank did not join torch's process group."),
    Entry("store-unreachable", "fault", "Torch's store can't be reached, although the hub can."),
    Entry("backend-unavailable", "fault", "NCCL was requested, but a rank has no GPU of its own, or its torch has no NCCL."),
    Entry("gloo-start-failed", "fault", "gloo does not start."),
    Entry("nccl-start-failed", "fault", "NCCL does not start."),
    Entry("payload-corrupted", "fault", "Data arrives with different bits than were sent."),
    Entry("rank-transfers-failing", "fault", "All transfers of a rank or host over torch's backend fail."),
    Entry("pair-failed", "fault", "Transfers between two ranks or hosts over torch's backend fail, while others work."),
    Entry("pairs-failing", "fault", "Transfers between several pairs fail, and no single explanation is simpler than all others."),
    Entry("pair-slow", "degraded", "Transfers of a rank or pair are slower than those of the others."),
    Entry("collective-wrong", "fault", "A collective returns a wrong result."),
    Entry("collective-nondeterministic", "note", "Sums of the same numbers differ in their bits between repetitions or ranks."),
    Entry("collective-failed", "fault", "A collective hangs or fails."),
    Entry("memory-unavailable", "fault", "Memory on the device can't be allocated."),
    # speed
    Entry("rank-slow", "degraded", "A rank computes or copies memory more slowly than the others."),
    Entry("host-busy", "note", "Other load on its host slows a rank down."),
    Entry("slower-than-baseline", "degraded", "Something is slower than in the baseline report."),
    # limits of the examination
    Entry("cause-unknown", "fault", "Something failed, and the observations do not reveal the cause."),
    Entry("incomplete", "note", "Not everything that was requested was examined."),
)

CATALOG: dict[str, Entry] = {entry.id: entry for entry in _ENTRIES}
assert len(CATALOG) == len(_ENTRIES), "an id is used twice"
