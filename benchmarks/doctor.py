"""The doctor's own time: a healthy machine, and what its hub takes for thousands of nodes.

    ./dev bench doctor

The command is run as a user runs it, whole processes by the wall clock. Nodes by the thousand are simulated: one process holds all their
connections over loopback and says what their agents would say; the hub is the real one, with one rank a node.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from _machine import describe, write

from numscope.doctor.budget import Deadline
from numscope.doctor.meet import wire
from numscope.doctor.meet.hub import Hub
from numscope.doctor.meet.meeting import Meeting
from numscope.doctor.records import Identity, Settings, to_json

TOKEN = "simulated"
ROUNDS = 2  # of heartbeats


def commands(rounds: int) -> dict[str, list[float]]:
    """Seconds of `numscope doctor` with 4 local ranks, healthy."""
    found: dict[str, list[float]] = {"--nproc 4 --quick": [], "--nproc 4": []}
    for _ in range(rounds):
        for words, seconds in found.items():
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                done = subprocess.run(
                    [sys.executable, "-m", "numscope", "doctor", *words.split()], cwd=folder, capture_output=True, text=True
                )
                seconds.append(time.perf_counter() - began)
            if done.returncode != 0:
                print(f"note: exit code {done.returncode}:\n{done.stdout}", file=sys.stderr)
    return found


def agents(num_nodes: int, pipe: Connection) -> None:
    """All nodes' agents in one process: they join, beat, and take the roster."""
    port = pipe.recv()
    connections: dict[int, tuple[socket.socket, socket.socket, Any]] = {}

    def join(rank: int) -> None:
        deadline = Deadline(60)
        control = socket.create_connection(("127.0.0.1", port))
        wire.authenticate(control, TOKEN, deadline)
        wire.send(control, {"kind": "time", "t": 0.0}, deadline)
        wire.receive(control, deadline)
        identity = Identity(rank, num_nodes, 0, 1, rank, num_nodes, f"node{rank:04d}", "slurm")
        listen = {"address": "", "port": 4000, "store_port": 1}
        hello = {"kind": "join", "identity": to_json(identity), "pid": 1, "listen": listen, "offset_s": 0.1, "round_trip_s": 0.001}
        wire.send(control, hello, deadline)
        key = wire.receive(control, deadline)["key"]
        heart = socket.create_connection(("127.0.0.1", port))
        wire.authenticate(heart, TOKEN, deadline)
        connections[rank] = control, heart, key

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(join, range(num_nodes)))
    began = time.perf_counter()
    for _ in range(ROUNDS):
        for _, heart, key in connections.values():
            beat = {"kind": "beat", "key": key, "t": 1.0, "phase": 2, "doing": "connect to node17:4711", "for_s": 0.1}
            wire.send(heart, beat, Deadline(60))
        for _, heart, _ in connections.values():
            wire.receive(heart, Deadline(60))
    pipe.send((time.perf_counter() - began) / ROUNDS)
    pipe.recv()
    for control, _, _ in connections.values():
        wire.receive(control, Deadline(100))
    pipe.send("all have it")


def simulate(num_nodes: int) -> dict[str, float]:
    """What the hub takes for so many nodes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=agents, args=(num_nodes, theirs))
    process.start()
    hub = Hub(Meeting("127.0.0.1", (0,), TOKEN, True, "simulated"), Settings(timeout_scale=20), num_nodes)
    ours.send(hub.port)
    hub.wait(lambda: len(hub.members) > 0, Deadline(60))
    began = time.perf_counter()
    hub.wait(lambda: len(hub.members) == num_nodes, Deadline(120))
    joined = time.perf_counter() - began
    beats = ours.recv()
    roster = {"kind": "roster", "roster": {str(rank): entry for rank, entry in hub.roster().items()}}
    cpu, began = time.process_time(), time.perf_counter()
    hub.send_to_all(roster)
    ours.send("go")
    ours.recv()
    sent, cpu = time.perf_counter() - began, time.process_time() - cpu
    process.join()
    return {
        "nodes": num_nodes,
        "join_s": joined,
        "messages_to_join": 6 * num_nodes,  # two proofs of the token, the clock's two, hello and its answer
        "beats_round_s": beats,
        "roster_bytes": len(json.dumps(roster)),
        "roster_packed_bytes": len(wire.pack(roster)),
        "roster_sent_s": sent,
        "roster_sent_cpu_s": cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="*", default=[256, 1024, 4096])
    given = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent / "src"))
    runs = commands(given.rounds)
    sizes = [simulate(nodes) for nodes in given.nodes]
    lines = ["| numscope doctor, healthy, this machine alone | median | smallest | largest |", "|---|---|---|---|"]
    lines += [f"| `{words}` | {statistics.median(s):.1f} s | {min(s):.1f} s | {max(s):.1f} s |" for words, s in runs.items()]
    lines += [
        "",
        "The hub, nodes simulated over loopback, one rank each, on the same cores as all their agents:",
        "",
        "| nodes | all have joined | messages | heartbeats, a round (one a second) | roster, packed | sent to all | hub's CPU for it |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sizes:
        lines.append(
            f"| {one['nodes']:,} | {one['join_s']:.2f} s | {one['messages_to_join']:,} | {one['beats_round_s']:.2f} s "
            f"| {one['roster_bytes']:,} B, {one['roster_packed_bytes']:,} B "
            f"| {one['roster_sent_s']:.2f} s | {one['roster_sent_cpu_s']:.2f} s |"
        )
    lines += [
        "",
        "Most of the time until all have the roster is that of the one process that plays all nodes and reads as many of them; on a",
        "cluster each node reads its own (16 ms).",
        "",
        "A node's own work does not grow with the number of nodes in phases 1, 2, 4 and 6 (above 1,024 ranks a rank hears of its own node",
        "and of each node's first rank only where it needs them); phase 3 takes N - 1 rounds, log2 N with --quick above 8 nodes.",
    ]
    write("doctor", {"machine": describe(), "seconds": runs, "hub": sizes}, "The doctor's own time", lines)


if __name__ == "__main__":
    main()
