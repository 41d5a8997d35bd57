"""Phase 3 between real network namespaces: each way in which a link can be broken has its own word, in the right direction."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from numscope.doctor.budget import Deadline
from numscope.doctor.meet.listener import PeerListener, datagram
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.phases.links import run
from numscope.doctor.records import Identity, Settings
from tests.doctor import netns

ROOT = Path(__file__).resolve().parents[2]
needs_hosts = pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "hosts can be made")

# One rank as the agent would run it; files stand for the hub.
RANK = """
import json, sys, time
from pathlib import Path
from numscope.doctor.budget import Deadline
from numscope.doctor.phases import Context, PhaseFailed
from numscope.doctor.records import Identity, Settings
from numscope.doctor.meet.listener import PeerListener
from numscope.doctor.phases import links, rounds

folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
roster_of, options = json.loads(sys.argv[4]), json.loads(sys.argv[5])

def put(name, value):
    (folder / (name + ".new")).write_text(json.dumps(value))
    (folder / (name + ".new")).rename(folder / name)

def wait(name):
    while not (folder / name).exists():
        time.sleep(0.01)
    return json.loads((folder / name).read_text())

settings = Settings(token="a job", quick=True, **options)
listener = PeerListener(settings, rank)
put(f"port{rank}", listener.port)
roster = {}
for other in range(world):
    port, entry = wait(f"port{other}"), roster_of[other]
    identity = {"rank": other, "world_size": world, "node": entry["node"], "hostname": f"node{entry['node']}"}
    roster[other] = {"identity": identity, "address": entry["address"], "listen": {"address": entry["address"], "port": port}}
said = []
me, kept = Identity(**roster[rank]["identity"]), {"listener": listener}
met = rounds.meetings({other: entry["node"] for other, entry in enumerate(roster_of)}, 8)[rank]
context = Context(me, settings, roster, Deadline(30.0), said.append, tuple(range(world)), met, kept)
began = time.monotonic()
try:
    data, error = links.run(context), ""
except PhaseFailed as failed:
    data, error = dict(failed.data), failed.sentence
put(f"result{rank}", {**data, "phase_error": error, "said": said, "seconds": time.monotonic() - began})
for other in range(world):
    wait(f"result{other}")
"""


def examine(
    network: netns.Network, folder: Path, nodes: list[int] | None = None, addresses: dict[int, str] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Phase 3 of ranks on the network's hosts: their data, with ``phase_error``, ``said`` and ``seconds``.

    Args:
        nodes: of each rank; one a host unless told.
        addresses: that are told of ranks, other than their hosts' own.
    """
    nodes = nodes or list(range(len(network.hosts)))
    entries = [{"node": node, "address": (addresses or {}).get(rank, network.hosts[node].address)} for rank, node in enumerate(nodes)]
    told = (json.dumps(entries), json.dumps({"endpoint": "node0:29517", **options}))
    python = (sys.executable, "-c", RANK, str(folder))
    environment = {"PYTHONPATH": str(ROOT / "src")}
    processes = [
        network.start(network.hosts[node], *python, str(rank), str(len(nodes)), *told, environment=environment)
        for rank, node in enumerate(nodes)
    ]
    for end in netns.wait(processes, 60.0):
        assert end.code == 0, end.stderr
    return [json.loads((folder / f"result{rank}").read_text()) for rank in range(len(nodes))]


def words(results: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    """The matrix: status by (from, to)."""
    return {(cell["from_node"], cell["to_node"]): cell["status"] for result in results for cell in result["cells"]}


def cell(results: list[dict[str, Any]], source: int, target: int) -> dict[str, Any]:
    return next(cell for cell in results[source]["cells"] if (cell["from_node"], cell["to_node"]) == (source, target))


@needs_hosts
def test_healthy_nodes_fill_the_matrix_in_both_directions(tmp_path: Path) -> None:
    with netns.Network(3) as network:
        results = examine(network, tmp_path, phases=[3])
        pairs = {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}
        assert words(results) == dict.fromkeys(pairs, "ok")
        for found in (cell(results, *pair) for pair in pairs):
            assert found["ephemeral"] == "ok"
            assert 0 < found["rtt_min_s"] <= found["rtt_s"]
            assert found["bytes_per_s"] > 0 and found["bytes"] > 0
            assert found["mss"] == 1448 and found["pmtu"] == 1500
            assert found["segments"] > 0 and found["loss"] < 0.005
        assert all(not result["phase_error"] for result in results)
        assert any(word.startswith("measure throughput to node1 (192.168.77.2:") for word in results[0]["said"])


@needs_hosts
def test_ranks_of_one_node_only_look_for_the_one_that_examines(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        results = examine(network, tmp_path, nodes=[0, 0, 1, 1])
        assert [result["representative"] for result in results] == [0, 0, 2, 2]
        assert [len(result["cells"]) for result in results] == [1, 0, 1, 0]
        assert [(result["loopback"] or {}).get("status") for result in results] == [None, "ok", None, "ok"]
        assert results[0]["cells"][0]["to_rank"] == 2


@needs_hosts
def test_dropped_ephemeral_ports_are_told_from_a_node_that_is_gone(tmp_path: Path) -> None:
    with netns.Network(3) as network:
        network.hosts[1].drop_ephemeral()
        network.hosts[2].cut()
        results = examine(network, tmp_path)
        assert words(results)[0, 1] == "dropped"
        assert cell(results, 0, 1)["known"] == "refused"  # packets to the hub's port number pass: nobody listens there
        assert words(results)[0, 2] in ("dropped", "unreachable")
        assert cell(results, 0, 2)["known"] in ("dropped", "unreachable")
        assert words(results)[1, 0] == "ok"
        assert results[0]["heard"].get("1", 0) > 0
        assert results[0]["phase_error"].startswith("node0 to node2 (192.168.77.3:")  # whom it meets first
        assert max(result["seconds"] for result in results) < 30.0


@needs_hosts
def test_one_direction_is_seen_by_the_datagrams_that_still_come(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        network.hosts[1].drop_from(network.hosts[0])
        results = examine(network, tmp_path)
        assert set(words(results).values()) <= {"dropped", "unreachable"}  # TCP needs both directions
        assert results[0]["heard"].get("1", 0) > 0
        assert results[1]["heard"] == {}


@needs_hosts
def test_new_connections_of_one_direction_refused_are_a_firewall(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        network.hosts[1].drop("1024:65535")
        results = examine(network, tmp_path)
        assert words(results) == {(0, 1): "dropped", (1, 0): "ok"}
        assert cell(results, 0, 1)["known"] == "dropped"


@needs_hosts
def test_slow_node_is_slow_in_what_it_sends(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        network.hosts[1].slow("50mbit")
        results = examine(network, tmp_path)
        assert words(results) == {(0, 1): "ok", (1, 0): "ok"}
        assert cell(results, 1, 0)["bytes_per_s"] < 8e6
        assert cell(results, 0, 1)["bytes_per_s"] > 2 * cell(results, 1, 0)["bytes_per_s"]


@needs_hosts
def test_lost_packets_are_counted(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        for host in network.hosts:
            host.single_packets()
        network.hosts[1].lose(0.03)
        results = examine(network, tmp_path)
        assert cell(results, 0, 1)["retransmitted"] > 0
        assert 0.01 < cell(results, 0, 1)["loss"] < 0.09
        assert cell(results, 0, 1)["segments"] > 500
        bursts = cell(results, 0, 1)["burst_losses"]
        assert sum(lost > 0 for _, lost in bursts) > len(bursts) / 2
        assert sum(segments for segments, _ in bursts) <= cell(results, 0, 1)["segments"]


@needs_hosts
def test_smaller_mtu_on_the_way_stalls_what_is_large(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        for host in network.hosts:
            host.single_packets()
        network.hosts[1].shrink_path(1300)
        results = examine(network, tmp_path)
        assert words(results) == {(0, 1): "stalled", (1, 0): "stalled"}
        assert cell(results, 0, 1)["rtt_s"] > 0
        assert "8 bytes pass, 65,536 do not" in cell(results, 0, 1)["error"]


@needs_hosts
def test_address_that_every_host_has_is_a_stranger(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        for host in network.hosts:
            host.add_interface("docker0", "172.17.0.1/16")
        results = examine(network, tmp_path, addresses={1: "172.17.0.1"})
        assert words(results)[1, 0] == "ok"
        assert words(results)[0, 1] == "stranger"
        assert "172.17.0.1 was announced as node1's address, but node0 has it too" in cell(results, 0, 1)["error"]


@needs_hosts
def test_delay_is_in_the_round_trip(tmp_path: Path) -> None:
    with netns.Network(2) as network:
        network.delay(network.hosts[1], 0.02)
        results = examine(network, tmp_path)
        assert words(results) == {(0, 1): "ok", (1, 0): "ok"}
        assert cell(results, 0, 1)["rtt_min_s"] >= 0.04  # it is on the way there and on the way back


def test_many_partners_that_say_nothing_cost_one_timeout() -> None:
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(16)]  # whose processes never accept
    listener = PeerListener(Settings(token="mine"), 0, "127.0.0.1")
    roster = {
        rank: {"identity": {"node": rank, "hostname": f"node{rank}"}, "listen": {"address": "127.0.0.1", "port": port}}
        for rank, port in enumerate([listener.port, *(each.getsockname()[1] for each in silent)])
    }
    settings, met = Settings(token="mine", timeout_scale=0.2), tuple(enumerate(range(1, 17)))
    context = Context(Identity(0, 17), settings, roster, Deadline(20.0), lambda what: None, meetings=met, kept={"listener": listener})
    try:
        began = time.monotonic()
        with pytest.raises(PhaseFailed) as failed:
            run(context)
        assert {cell["status"] for cell in failed.value.data["cells"]} == {"silent"}
        assert time.monotonic() - began < 8.0  # one after the other: 16 s
    finally:
        for each in (listener, *silent):
            each.close()


def test_listener_outlives_garbage_and_foreign_datagrams() -> None:
    listener = PeerListener(Settings(token="mine"), 0)
    try:
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(500), b""):
            with socket.create_connection(("127.0.0.1", listener.port), 5.0) as scanner:
                scanner.sendall(greeting)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x" * 500, ("127.0.0.1", listener.port))
            sender.sendto(datagram("another", 3), ("127.0.0.1", listener.port))
            sender.sendto(datagram("mine", 4), ("127.0.0.1", listener.port))
        limit = Deadline(10.0)
        while not listener.heard and not limit.over:
            time.sleep(0.01)
        assert dict(listener.heard) == {4: 1}
        context = Context(
            Identity(0, 1, hostname="here"),
            Settings(token="mine"),
            {0: {"identity": {"node": 0}, "address": "127.0.0.1"}},
            Deadline(10.0),
            lambda what: None,
            kept={"listener": listener},
        )
        assert run(context)["cells"] == []
    finally:
        listener.close()
