"""Hosts for tests: network namespaces on one bridge, each with its own name, /etc/hosts and firewall, and faults to inject.

Needs root, network namespaces and iptables. What a machine can't do is told in one sentence by ``missing()``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.doctor.fleet import VARIABLES
from tests.warm import COLD

_numbers = itertools.count()
_EPHEMERAL = "32768:60999"
# Linux: struct ifreq and ETHTOOL_SGSO, _STSO, _STXCSUM; the tool itself is not everywhere.
_OFFLOADS_OFF = """
import fcntl, socket, struct, sys, array
for command in (0x24, 0x1f, 0x17):
    value = array.array("B", struct.pack("II", command, 0))
    request = struct.pack("16sP", sys.argv[1].encode(), value.buffer_info()[0]) + bytes(16)
    fcntl.ioctl(socket.socket(), 0x8946, request)
"""


@functools.cache
def missing() -> str:
    """Why hosts can't be made here; "" where they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "iptables", "tc", "unshare"):
        if not shutil.which(tool):
            return f"the command {tool} is not installed"
    try:
        with Network(1) as network:
            network.hosts[0].refuse(1)
    except subprocess.CalledProcessError as error:
        return f"namespaces can't be made here: {' '.join(error.cmd[:6])}: {error.stderr.strip()}"
    return ""


def command(*words: str) -> str:
    """Runs a command that must succeed.

    Raises: CalledProcessError.
    """
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


@dataclass
class Host:
    """One namespace: ``eth0`` on the network's bridge, a host name, names of all hosts in /etc/hosts."""

    name: str
    namespace: str
    address: str
    port_of_bridge: str  # the other end of eth0
    switch: str
    names: dict[str, str] = field(default_factory=dict)
    shm_bytes: int = 0

    def inside(self, *words: str) -> str:
        return command("ip", "netns", "exec", self.namespace, *words)

    def resolve(self, name: str, address: str | None) -> None:
        """Says in this host's /etc/hosts what a name resolves to; None: it does not."""
        self.names.pop(name, None)
        if address is not None:
            self.names[name] = address
        folder = Path("/etc/netns") / self.namespace
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["127.0.0.1 localhost", *(f"{where} {which}" for which, where in self.names.items())]
        (folder / "hosts").write_text("\n".join(lines) + "\n")
        (folder / "resolv.conf").write_text("")  # nobody to ask: an unknown name fails at once, as without DNS

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A process on this host, its output piped, in a process group of its own."""
        setup = f"hostname {self.name}"
        if self.shm_bytes:
            setup += f" && mount -t tmpfs -o size={self.shm_bytes} tmpfs /dev/shm"
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "unshare", "-u", "sh", "-c", setup + ' && exec "$@"', "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**VARIABLES, **(environment or {})},
            start_new_session=True,
        )

    # Faults. Those of a firewall act on what comes in, and on new connections only, as a firewall that knows connections does.

    def drop(self, ports: str | int) -> None:
        """New connections to these ports (``4711`` or ``1000:2000``) get no answer."""
        self._filter("-p", "tcp", "--syn", "--dport", str(ports), "-j", "DROP")

    def drop_ephemeral(self) -> None:
        """New connections to ports that the kernel hands out get no answer; datagrams neither."""
        self.drop(_EPHEMERAL)
        self._filter("-p", "udp", "--dport", _EPHEMERAL, "-j", "DROP")

    def refuse(self, port: int) -> None:
        self._filter("-p", "tcp", "--syn", "--dport", str(port), "-j", "REJECT", "--reject-with", "tcp-reset")

    def drop_from(self, other: Host) -> None:
        """Nothing that another host sends comes in; what this one sends it gets through."""
        self._filter("-s", other.address, "-j", "DROP")

    def cut(self) -> None:
        """Nothing comes in or goes out, and nobody is told."""
        self._filter("-j", "DROP")
        self.inside("iptables", "-w", "-I", "OUTPUT", "-o", "eth0", "-j", "DROP")

    def lose(self, probability: float) -> None:
        """Packets that come in are lost at random. They are single ones, not those that the kernel has put together."""
        self._filter("-m", "statistic", "--mode", "random", "--probability", str(probability), "-j", "DROP")

    def slow(self, rate: str = "50mbit") -> None:
        """What goes out does so at that rate."""
        self.inside("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k", "latency", "200ms")

    def shrink_path(self, mtu: int) -> None:
        """The switch's port takes smaller packets than this host believes, and tells nobody."""
        command("ip", "-n", self.switch, "link", "set", self.port_of_bridge, "mtu", str(mtu))

    def add_interface(self, name: str, address: str) -> None:
        """An interface that leads nowhere, like a container engine's bridge without containers."""
        self.inside("ip", "link", "add", name, "type", "bridge")
        self.inside("ip", "address", "add", address, "dev", name)
        self.inside("ip", "link", "set", name, "up")

    def single_packets(self) -> None:
        """Hands each packet to the wire by itself, with its checksum: loss, MTU and relays then act as on real wires."""
        self.inside(COLD, "-c", _OFFLOADS_OFF, "eth0")
        command("ip", "netns", "exec", self.switch, COLD, "-c", _OFFLOADS_OFF, self.port_of_bridge)

    def _filter(self, *rule: str) -> None:
        self.inside("iptables", "-w", "-I", "INPUT", "-i", "eth0", *rule)  # a host's way to itself stays open


class Network:
    """Hosts ``node0`` … on a bridge of their own, away from this machine's network and firewall. Gone after ``close()``, whatever happened.

    Args:
        num_hosts: how many.
        mtu: of all interfaces.
    """

    def __init__(self, num_hosts: int, mtu: int = 1500) -> None:
        mark = f"nsd{os.getpid()}-{next(_numbers)}"
        self._switch = f"{mark}-s"
        self._namespaces: list[str] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._relays: list[_Relay] = []
        self.hosts: list[Host] = []
        try:
            self._namespace(self._switch)
            command("ip", "-n", self._switch, "link", "add", "br0", "mtu", str(mtu), "type", "bridge")
            command("ip", "-n", self._switch, "link", "set", "br0", "up")
            for number in range(num_hosts):
                self._add(f"node{number}", f"{mark}-{number}", f"192.168.77.{number + 1}", f"port{number}", mtu)
            for host, other in itertools.product(self.hosts, self.hosts):
                host.resolve(other.name, other.address)
        except BaseException:
            self.close()
            raise

    def _namespace(self, name: str) -> None:
        command("ip", "netns", "add", name)
        self._namespaces.append(name)
        command("ip", "-n", name, "link", "set", "lo", "up")

    def _add(self, name: str, namespace: str, address: str, port: str, mtu: int) -> None:
        self._namespace(namespace)
        inside = ("ip", "-n", namespace)
        command(
            *inside, "link", "add", "eth0", "mtu", str(mtu), "type", "veth", "peer", "name", port, "mtu", str(mtu), "netns", self._switch
        )
        command("ip", "-n", self._switch, "link", "set", port, "master", "br0", "up")
        command(*inside, "address", "add", f"{address}/24", "dev", "eth0")
        command(*inside, "link", "set", "eth0", "up")
        command(*inside, "route", "add", "default", "via", "192.168.77.254")
        self.hosts.append(Host(name, namespace, address, port, self._switch))

    def start(self, host: Host, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A process on a host that does not outlive the network."""
        process = host.start(*words, environment=environment)
        self._processes.append(process)
        return process

    def delay(self, host: Host, seconds: float) -> None:
        """Each packet of a host takes longer, both ways: a relay of raw packets stands between it and the bridge."""
        host.single_packets()
        for other in self.hosts:
            other.single_packets()
        self._relays.append(_Relay(host, seconds))

    def close(self) -> None:
        """Ends the processes and takes the namespaces away."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for relay in self._relays:
            relay.close()
        for name in self._namespaces:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
            for pid in pids:  # children in process groups of their own
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)
        self._processes.clear()
        self._namespaces.clear()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Ended:
    """A process that came to its end.

    Args:
        code: its exit code; None: it had to be killed at the bound.
        seconds: since its start.
    """

    code: int | None
    seconds: float
    stdout: str
    stderr: str


def wait(processes: Sequence[subprocess.Popen[str]], bound_s: float) -> list[Ended]:
    """All processes' ends; those that run longer than the bound are killed."""
    started = time.monotonic()
    texts: dict[int, bytearray] = {}
    owners: dict[int, subprocess.Popen[str]] = {}
    ended: dict[int, float] = {}
    for process in processes:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            texts[pipe.fileno()] = bytearray()
            owners[pipe.fileno()] = process
    killed = set()
    while len(ended) < len(processes):
        ready, _, _ = select.select(list(texts), [], [], 0.02)
        for number in ready:
            with contextlib.suppress(BlockingIOError):
                piece = os.read(number, 1 << 16)
                texts[number] += piece
        for process in processes:
            if process.pid not in ended and process.poll() is not None:
                ended[process.pid] = time.monotonic() - started
        if time.monotonic() - started > bound_s:
            for process in processes:
                if process.pid not in ended and process.pid not in killed:
                    killed.add(process.pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        time.sleep(0.005)
    for number in texts:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(number, 1 << 16):
                texts[number] += piece
    return [
        Ended(
            None if process.pid in killed else process.returncode,
            ended[process.pid],
            texts[process.stdout.fileno()].decode(errors="replace") if process.stdout else "",
            texts[process.stderr.fileno()].decode(errors="replace") if process.stderr else "",
        )
        for process in processes
    ]


_RELAY = """
import heapq, itertools, select, socket, sys, time
delay, (left, right) = float(sys.argv[1]), (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in "ab")
left.bind((sys.argv[2], 0)), right.bind((sys.argv[3], 0))
heap, order = [], itertools.count()
print("ready", flush=True)
while True:
    wait = max(0.0, heap[0][0] - time.monotonic()) if heap else None
    for ready in select.select([left, right], [], [], wait)[0]:
        packet, (_, _, kind, *_) = ready.recvfrom(65536)
        if kind != socket.PACKET_OUTGOING:
            heapq.heappush(heap, (time.monotonic() + delay, next(order), left if ready is right else right, packet))
    while heap and heap[0][0] <= time.monotonic():
        _, _, to, packet = heapq.heappop(heap)
        try:
            to.send(packet)
        except OSError:
            pass
"""


class _Relay:
    """Takes a host's cable out of the bridge, and carries its packets there itself, later."""

    def __init__(self, host: Host, seconds: float) -> None:
        switch = ("ip", "-n", host.switch)
        inner, outer = f"{host.port_of_bridge}i", f"{host.port_of_bridge}o"
        command(*switch, "link", "set", host.port_of_bridge, "nomaster", "promisc", "on")
        command(*switch, "link", "add", inner, "type", "veth", "peer", "name", outer)
        command(*switch, "link", "set", inner, "promisc", "on", "up")
        command(*switch, "link", "set", outer, "master", "br0", "up")
        words = ["ip", "netns", "exec", host.switch, COLD, "-c", _RELAY, str(seconds), host.port_of_bridge, inner]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def silent_server(network: Network, host: Host, port: int, says: bytes = b"") -> Iterator[None]:
    """Something else on a port: it takes connections and says nothing, or one thing to whoever speaks first."""
    code = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])), backlog=64)
print("ready", flush=True)
kept = []
while True:
    connection, _ = server.accept()
    kept.append(connection)
    if len(sys.argv) > 2:
        connection.recv(4096)
        connection.sendall(bytes.fromhex(sys.argv[2]))
        connection.close()
"""
    process = network.start(host, COLD, "-c", code, str(port), *([says.hex()] if says else []))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
