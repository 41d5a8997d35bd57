"""The faults that are injected between real hosts, and what the doctor must say of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.doctor.netns import Host, Network, silent_server

PORT = 29517  # outside of the range that the kernel hands out; the hosts are empty, so it is free
DEADLINE_S = 60.0
TORCH_DEADLINE_S = 120.0
TORCH_SCALE = 1.5  # several processes that import torch at once need more than a second
# Missing ranks are waited for; a phase of links has 8 s, one of torch's 24 to 30 s. Two more seconds each are promised.
MEETING_SCALE = 0.5  # of time limits, where only the rendezvous matters: it then takes 7 s
MEETING_S, LINKS_S, TORCH_S = 7.2, 7.9, 30.0
START_S = 6.0  # processes to start, phases that are not concerned, and a machine that does other things too


@dataclass(frozen=True)
class Fault:
    """One fault.

    Args:
        name: of the test.
        says: what is wrong, for the table.
        finding: that must be made; "" where nothing is wrong.
        ranks, hosts, links: that the finding must name, all of them and no others; None: not asked.
        code: exit code of every process that ends by itself.
        within_s: seconds from the start until all have ended.
        inject: done before the processes start.
        during: by host, when it is at a phase's module (``links``) or function (``children:run_in_child``), a command that its shell
            does; $PPID is the rank's process.
        in_child: a fault of the ranks' torch processes, as in planted/sitecustomize.py.
        environment, words: of the processes of a host.
        installed: versions of packages, by what a host's Python says of them.
        absent: hosts where nothing is started.
        stopped: hosts whose processes do not end by themselves.
        told_by: hosts that must say the finding: 0 hosts the hub.
        torchrun: ranks get torchrun's environment, so that rank 0's own process hosts the hub, and each host has one process.
        phases, deadline_s, scale: of the doctor; the scale is that of time limits.
        of_network: torch's own words for it are recorded too.
        also: findings that may stand beside it.
    """

    name: str
    says: str
    finding: str
    within_s: float
    ranks: tuple[int, ...] | None = None
    hosts: tuple[str, ...] | None = None
    links: tuple[tuple[str, str], ...] | None = None
    code: int = 1
    num_hosts: int = 3
    inject: Callable[[Network, contextlib.ExitStack], None] = lambda network, stack: None
    during: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    in_child: str = ""
    environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    installed: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    told_by: tuple[int, ...] = (0,)
    torchrun: bool = True
    phases: str = "links"
    deadline_s: float = DEADLINE_S
    scale: float = 1.0
    of_network: bool = True
    also: tuple[str, ...] = ()


def _each(act: Callable[[Host], None], *numbers: int) -> Callable[[Network, contextlib.ExitStack], None]:
    return lambda network, stack: [act(network.hosts[number]) for number in numbers] and None


def _served(says: bytes = b"") -> Callable[[Network, contextlib.ExitStack], None]:
    def inject(network: Network, stack: contextlib.ExitStack) -> None:
        stack.enter_context(silent_server(network, network.hosts[0], PORT, says))

    return inject


def _single(then: Callable[[Network], None]) -> Callable[[Network, contextlib.ExitStack], None]:
    """Faults of single packets need packets that are single."""

    def inject(network: Network, stack: contextlib.ExitStack) -> None:
        for host in network.hosts:
            host.single_packets()
        then(network)

    return inject


_HTTP = b"HTTP/1.0 400 Bad Request\r\nServer: nginx\r\nContent-Length: 0\r\n\r\n"
_STOP, _KILL = "kill -STOP $PPID", "kill -KILL $PPID"
_CUT = "iptables -w -I INPUT -i eth0 -j DROP; iptables -w -I OUTPUT -o eth0 -j DROP"

FAULTS = (
    Fault("healthy", "nothing", "", 20.0, code=0, torchrun=False),
    # who comes and who stays
    Fault(
        "rank-never-starts",
        "a rank never starts",
        "rank-missing",
        MEETING_S + START_S,
        ranks=(2,),
        absent=(2,),
        scale=MEETING_SCALE,
    ),
    Fault(
        "rank-dies",
        "a rank's process dies in the middle of a phase",
        "rank-died",
        LINKS_S + START_S,
        ranks=(2,),
        hosts=("node2",),
        during={2: ("links", _KILL)},
        torchrun=False,
    ),
    *(
        Fault(
            f"rank-stops-in-{phase}",
            f"a rank's process hangs (SIGSTOP) in phase {number} ({phase})",
            "rank-silent",
            MEETING_S + START_S,
            ranks=(1,),
            hosts=("node1",),
            during={1: (phase, _STOP)},
            stopped=(1,),
            phases=f"{phase},links",
        )
        for number, phase in ((2, "compare"), (3, "links"))
    ),
    Fault(
        "rank-stops-in-backend",
        "a rank's process hangs (SIGSTOP) in phase 4 (backend)",
        "rank-silent",
        2 * MEETING_S + TORCH_S + START_S,
        ranks=(1,),
        hosts=("node1",),
        during={1: ("children:run_in_child", _STOP)},
        stopped=(1,),
        phases="backend",
        deadline_s=TORCH_DEADLINE_S,
        num_hosts=2,
        of_network=False,
    ),
    Fault(
        "rank-0-dies",
        "rank 0's process dies, and the hub in it",
        "hub-died",
        LINKS_S + START_S,
        ranks=(0,),
        during={0: ("links", _KILL)},
        stopped=(0,),
        told_by=(1, 2),
    ),
    Fault(
        "rank-0-stops",
        "rank 0's process hangs (SIGSTOP), and the hub in it",
        "hub-silent",
        LINKS_S + START_S,
        ranks=(0,),
        during={0: ("links", _STOP)},
        stopped=(0,),
        told_by=(1, 2),
    ),
    Fault(
        "two-claim-one-rank",
        "two nodes claim one number",
        "rank-duplicate",
        MEETING_S + START_S,
        hosts=("node1", "node2"),
        also=("rank-missing",),
        environment={2: {"RANK": "1"}},
        scale=MEETING_SCALE,
    ),
    Fault(
        "world-sizes-disagree",
        "world sizes disagree",
        "world-size-differs",
        MEETING_S + START_S,
        hosts=("node2",),
        also=("rank-missing",),
        environment={2: {"WORLD_SIZE": "4"}},
        scale=MEETING_SCALE,
    ),
    # the way to the hub
    Fault(
        "name-is-loopback",
        "rank 0's host resolves to 127.0.1.1 on a node",
        "hub-loopback",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=lambda network, stack: network.hosts[1].resolve("node0", "127.0.1.1"),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "name-is-unknown",
        "rank 0's host does not resolve on a node",
        "hub-unresolved",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=lambda network, stack: network.hosts[1].resolve("node0", None),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "hub-refused",
        "rank 0's port is refused",
        "hub-refused",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=_each(lambda host: host.refuse(PORT), 0),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "hub-dropped",
        "rank 0's port is dropped",
        "hub-dropped",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=_each(lambda host: host.drop(PORT), 0),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "hub-port-silent",
        "a silent listener has rank 0's port",
        "hub-port-silent",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=_served(),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "hub-port-http",
        "an HTTP server has rank 0's port",
        "hub-port-http",
        MEETING_S + START_S,
        links=(("node1", "node0"),),
        inject=_served(_HTTP),
        told_by=(1,),
        num_hosts=2,
        torchrun=False,
        scale=MEETING_SCALE,
    ),
    Fault(
        "hub-port-taken",
        "a silent listener has rank 0's port, said by rank 0's node",
        "hub-port-in-use",
        MEETING_S + START_S,
        hosts=("node0",),
        inject=_served(),
        num_hosts=2,
        absent=(1,),
        of_network=False,
        torchrun=False,
    ),
    # links
    Fault(
        "ephemeral-ports-dropped",
        "only ephemeral ports are dropped, on one node",
        "ephemeral-ports-blocked",
        LINKS_S + START_S,
        hosts=("node1",),
        inject=_each(lambda host: host.drop_ephemeral(), 1),
    ),
    Fault(
        "one-direction-dropped",
        "one direction of one link is dropped",
        "one-way-link",
        LINKS_S + START_S,
        links=(("node1", "node2"),),
        inject=lambda network, stack: network.hosts[2].drop_from(network.hosts[1]),
    ),
    Fault(
        "node-cut-off",
        "one node is cut off in the middle of a run",
        "rank-silent",
        LINKS_S + START_S + 4.0,
        ranks=(2,),
        hosts=("node2",),
        during={2: ("links", _CUT)},
        stopped=(2,),
        also=("node-unreachable",),
    ),
    Fault(
        "node-slow",
        "one node sends with 50 Mbit/s",
        "link-slow",
        LINKS_S + START_S,
        code=0,
        hosts=("node1",),
        inject=_each(lambda host: host.slow("50mbit"), 1),
    ),
    Fault(
        "node-lossy",
        "1 % of what comes to one node is lost",
        "link-lossy",
        LINKS_S + START_S,
        code=0,
        hosts=("node1",),
        inject=_single(lambda network: network.hosts[1].lose(0.01)),
    ),
    Fault(
        "mtu-mismatch",
        "the path to one node takes smaller packets than the nodes believe",
        "mtu-mismatch",
        LINKS_S + START_S,
        hosts=("node1",),
        inject=_single(lambda network: network.hosts[1].shrink_path(1300)),
    ),
    Fault(
        "wrong-interface",
        "--ifname is an interface that leads nowhere and has the same address everywhere",
        "wrong-address",
        LINKS_S + START_S,
        inject=_each(lambda host: host.add_interface("docker0", "172.17.0.1/16"), 0, 1, 2),
        words={number: ("--ifname", "docker0") for number in range(3)},
        environment={number: {"GLOO_SOCKET_IFNAME": "docker0"} for number in range(3)},
    ),
    Fault(
        "interface-missing",
        "--ifname is an interface that one node does not have",
        "interface-missing",
        LINKS_S + START_S,
        ranks=(1,),
        hosts=("node1",),
        inject=_each(lambda host: host.add_interface("ib0", "10.9.9.9/24"), 0, 2),
        words={1: ("--ifname", "ib0")},
        of_network=False,
    ),
    Fault(
        "gloo-told-wrong-interface",
        "GLOO_SOCKET_IFNAME of one node is an interface that leads nowhere",
        "wrong-interface",
        LINKS_S + START_S,
        code=0,
        hosts=("node1",),
        inject=_each(lambda host: host.add_interface("docker0", "172.17.0.1/16"), 1),
        environment={1: {"GLOO_SOCKET_IFNAME": "docker0"}},
        also=("environment-differs",),
    ),
    # what hosts have
    Fault(
        "versions-differ",
        "torch has another version on one rank",
        "version-mismatch",
        LINKS_S + START_S,
        ranks=(2,),
        installed={2: {"torch": "1.13.0"}},
        of_network=False,
    ),
    Fault(
        "environment-differs",
        "NCCL_* differs on one rank",
        "environment-differs",
        LINKS_S + START_S,
        code=0,
        ranks=(2,),
        environment={2: {"NCCL_ALGO": "Ring"}},
        of_network=False,
    ),
    Fault(
        "own-name-is-loopback",
        "a node's own name resolves to 127.0.1.1 there",
        "name-resolves-to-loopback",
        LINKS_S + START_S,
        code=0,
        hosts=("node1",),
        inject=lambda network, stack: network.hosts[1].resolve("node1", "127.0.1.1"),
    ),
    Fault(
        "small-shm",
        "/dev/shm is small on one node",
        "shm-too-small",
        LINKS_S + START_S,
        code=0,
        hosts=("node1",),
        inject=_each(lambda host: setattr(host, "shm_bytes", 1 << 20), 1),
        of_network=False,
    ),
    # what torch's processes do
    Fault(
        "payload-corrupted",
        "payloads of one rank come changed",
        "payload-corrupted",
        2 * TORCH_S + START_S,
        ranks=(1,),
        in_child="corrupt:rank=1",
        phases="pairs",
        deadline_s=TORCH_DEADLINE_S,
        scale=TORCH_SCALE,
        of_network=False,
    ),
    Fault(
        "torch-hangs",
        "a rank's torch process hangs in a transfer",
        "child-hung",
        3 * TORCH_S + START_S,
        ranks=(1,),
        hosts=("node1",),
        num_hosts=2,
        in_child="hang:phase=5,rank=1",
        phases="pairs",
        deadline_s=TORCH_DEADLINE_S,
        scale=TORCH_SCALE,
        of_network=False,
    ),
    Fault(
        "torch-dies",
        "a rank's torch process dies in a collective",
        "child-died",
        3 * TORCH_S + START_S,
        ranks=(1,),
        hosts=("node1",),
        num_hosts=2,
        in_child="die:phase=6,rank=1",
        phases="collectives",
        deadline_s=TORCH_DEADLINE_S,
        scale=TORCH_SCALE,
        of_network=False,
    ),
    Fault(
        "rank-slow",
        "one rank computes slowly",
        "rank-slow",
        2 * TORCH_S + START_S,
        code=0,
        ranks=(1,),
        in_child="slow:rank=1,factor=6",
        num_hosts=2,
        phases="compute",
        deadline_s=180.0,
        scale=2 * TORCH_SCALE,
        of_network=False,
    ),
)
