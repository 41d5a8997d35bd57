"""All that the doctor can find: stable ids, their usual severity, a sentence each. The table in the documentation is made from this."""

from __future__ import annotations

from dataclasses import dataclass

from numscope.doctor.records import Severity


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding.

    Args:
        severity: fault: training does not start, or not rightly. degraded: it runs, and worse than it could. note: worth knowing.
            Something degraded is a fault where it is what made a phase fail.
        hardware: not verified on hardware that shows it.
        consequence: some other fault usually comes first; beside a cause it is a note.
    """

    id: str
    severity: Severity
    sentence: str
    hardware: bool = False
    consequence: bool = False


_ENTRIES = (
    # the way to the hub
    Entry("hub-unresolved", "fault", "The name of the hub's host does not resolve here."),
    Entry("hub-loopback", "fault", "The name of the hub's host means this host itself here, and the hub is on another one."),
    Entry("hub-refused", "fault", "The hub's port refuses connections: nothing listens there, or a firewall says so."),
    Entry("hub-dropped", "fault", "Packets to the hub's port vanish: a firewall."),
    Entry("hub-unreachable", "fault", "No route leads to the hub's host."),
    Entry("hub-port-silent", "fault", "Something takes connections at the hub's port and says nothing."),
    Entry("hub-port-http", "fault", "A web server listens at the hub's port."),
    Entry("hub-port-foreign", "fault", "Something else listens at the hub's port."),
    Entry("hub-of-another-job", "fault", "The doctor of another job listens at the hub's port."),
    Entry("hub-port-taken", "fault", "The hub can't listen at its port: it is taken."),
    Entry("hub-died", "fault", "The process of the hub, rank 0's or its launcher's, died."),
    Entry("hub-silent", "fault", "The process of the hub, rank 0's or its launcher's, says nothing any more."),
    Entry("hub-strangers", "note", "Connections that hold no token of this job were shown out: a port scanner, or another job."),
    # who comes, and who stays
    Entry("rank-missing", "fault", "A rank never came."),
    Entry("rank-died", "fault", "A rank's process ended in the middle of the examination."),
    Entry("rank-silent", "fault", "A rank's heartbeat stopped: its process hangs, or its host is cut off."),
    Entry("rank-stuck", "fault", "A rank's heart beats, but it does not get done with a phase that asks nobody else."),
    Entry("rank-duplicate", "fault", "Two processes claim one rank or node number."),
    Entry("rank-out-of-range", "fault", "A process says a rank that can't be."),
    Entry("world-size-differs", "fault", "Ranks were told different world sizes."),
    # facts of a host
    Entry("name-resolves-to-loopback", "degraded", "A host's own name means 127.x there, so that gloo can't be reached from other hosts."),
    Entry("name-unresolved", "degraded", "A host's own name does not resolve there."),
    Entry("wrong-interface", "note", "gloo, NCCL or the doctor would use another interface than that by which hosts reach each other."),
    Entry("interface-missing", "fault", "NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names an interface that is not there."),
    Entry("shm-too-small", "degraded", "/dev/shm is too small for the ranks of the host."),
    Entry("memlock-too-small", "degraded", "The limit of locked memory is too small for InfiniBand.", hardware=True),
    Entry("nofile-too-small", "degraded", "The limit of open files is too small for the number of ranks."),
    Entry("gpu-query-failed", "fault", "nvidia-smi reports an error.", hardware=True),
    Entry("gpu-query-hung", "fault", "nvidia-smi does not end: the GPU driver hangs.", hardware=True),
    Entry("ranks-exceed-gpus", "degraded", "A host has fewer GPUs than ranks."),
    # differences
    Entry("version-mismatch", "fault", "Ranks have different versions of torch or NCCL (degraded or a note for what matters less)."),
    Entry("environment-differs", "degraded", "Ranks have different values of NCCL_*, TORCH_*, GLOO_*, …"),
    Entry("gpus-differ", "degraded", "Hosts have different kinds or numbers of GPUs."),
    Entry("mtu-differs", "degraded", "Hosts have different MTUs on the interface used."),
    Entry("limits-differ", "note", "Ranks have different limits of locked memory or open files."),
    Entry("hosts-differ", "note", "Hosts have different CPUs, kernels or architectures."),
    Entry("clock-skew", "degraded", "Clocks differ by more than a second."),
    Entry("address-translated", "degraded", "A rank is seen at an address that none of its interfaces has.", hardware=True),
    # links
    Entry("node-unreachable", "fault", "A node reaches no other and none reaches it."),
    Entry("node-inbound-blocked", "fault", "Nothing comes in at a node, though what it sends arrives."),
    Entry("node-outbound-blocked", "fault", "What a node sends arrives nowhere, though others' packets come to it."),
    Entry("link-broken", "fault", "Two nodes do not reach each other."),
    Entry("one-way-link", "fault", "Packets from one node to another do not arrive; the other direction works."),
    Entry("links-failing", "fault", "Several links fail, and no single explanation is simpler than all others."),
    Entry("network-split", "fault", "The network fell into parts, each of which works."),
    Entry("network-blocked", "fault", "No node reaches any other, though all reach the hub."),
    Entry("ephemeral-ports-blocked", "fault", "A firewall lets some ports pass, not those freshly opened, as gloo and NCCL do."),
    Entry("mtu-mismatch", "fault", "Small packets pass, large ones do not."),
    Entry("wrong-address", "fault", "Something else answers at the address that a rank told the others."),
    Entry("process-silent", "fault", "A host's kernel takes connections, and the rank's process says nothing."),
    Entry("host-talks-not-to-itself", "fault", "Ranks of one host do not reach each other."),
    Entry("link-slow", "degraded", "A node or link has far less bandwidth than the others."),
    Entry("link-lossy", "degraded", "A node or link loses packets."),
    Entry("link-late", "degraded", "A node or link has far longer round trips than the others."),
    # torch
    Entry("child-died", "fault", "A rank's torch process died."),
    Entry("child-hung", "fault", "A rank's torch process hung and was killed."),
    Entry("backend-rank-missing", "fault", "A rank did not come to torch's process group."),
    Entry("store-unreachable", "fault", "Torch's store can't be reached, though the hub can."),
    Entry("backend-impossible", "fault", "NCCL was asked for, and a rank has no GPU of its own or no NCCL in its torch."),
    Entry("gloo-start-failed", "fault", "gloo does not start."),
    Entry("nccl-start-failed", "fault", "NCCL does not start."),
    Entry("payload-corrupted", "fault", "Data arrive with other bits than were sent."),
    Entry("rank-exchanges-nothing", "fault", "A rank or host exchanges no data with anybody over torch's backend."),
    Entry("pair-failed", "fault", "Two ranks or hosts exchange no data over torch's backend, while each does with others."),
    Entry("pairs-failing", "fault", "Several pairs exchange no data, and no single explanation is simpler than all others."),
    Entry("pair-slow", "degraded", "Transfers of a rank or pair are slower than those of the others."),
    Entry("collective-wrong", "fault", "A collective's result is wrong."),
    Entry("collective-unstable", "note", "The same sum has other bits from one time or rank to the next."),
    Entry("collective-failed", "fault", "A collective does not end."),
    Entry("memory-unavailable", "fault", "Memory of the device can't be allocated."),
    # speed
    Entry("rank-slow", "degraded", "A rank computes or copies memory more slowly than the others."),
    Entry("host-busy", "note", "A rank is held up by something else that runs on its host."),
    Entry("slower-than-baseline", "degraded", "Something is slower than in the report given as baseline."),
    # what the doctor does not know
    Entry("could-not-tell", "fault", "Something failed, and what was seen does not say whose fault it is."),
    Entry("incomplete", "note", "Not all that was asked for was examined."),
)

CATALOG: dict[str, Entry] = {entry.id: entry for entry in _ENTRIES}
assert len(CATALOG) == len(_ENTRIES), "an id stands twice"
