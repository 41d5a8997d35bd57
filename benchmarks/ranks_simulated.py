"""What a bad value costs a job of thousands of ranks: the exchange alone, with hosts and ranks that are simulated on this machine.

A real store, and for each host its own shared memory, its own listener and two connections to the store; for each rank the very code that
a rank runs at the places of its steps. What is simulated is what lies around it: ranks are threads of a few processes and share their
host's connection, a step is a pause, and the network is the loopback.
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import random
import statistics
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from _machine import describe, write

from numscope.distributed import agree, bell, meeting
from numscope.distributed.bell import Host
from numscope.distributed.host_memory import HostMemory
from numscope.distributed.meeting import Meetings, Met

STEP_S = 0.5  # between the places to which a rank comes
PATIENCE_S = 120.0
FINDING = {"reason": "x" * 2000}  # about as long as one is

of_thread = threading.local()


class Counted:
    """A connection to the store that counts its requests and their bytes."""

    def __init__(self, store: Any) -> None:
        self._store, self.num, self.bytes = store, 0, 0

    def clone(self) -> Counted:
        clone = Counted(self._store.clone())
        counted.append(clone)
        return clone

    def shared(self) -> Counted:
        """The same connection, counted by itself."""
        counted.append(Counted(self._store))
        return counted[-1]

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._store, name)

        def call(*args: Any) -> Any:
            self.num += 1
            self.bytes += sum(len(str(arg)) for arg in args)
            return function(*args)

        return call


counted: list[Counted] = []


class Simulated(Host):
    """A host of its own within this process."""

    def __init__(self, store: Any, name: str) -> None:
        self._pid, self.store, self.board = os.getpid(), store, HostMemory(name)
        self.num_watches, self._listener, self._next_look, self._hosts_store = 0, None, 0.0, False
        self._lock, self._world = threading.Lock(), lambda: None  # type: ignore[assignment]
        self.look()


def rank(number: int, world: int, host: Simulated, speaks_at: float, told: dict[int, Any], ready: threading.Barrier) -> None:
    of_thread.host, of_thread.rank = Host.__new__(Simulated), number
    of_thread.host.__dict__.update(host.__dict__)
    of_thread.host.store = host.store.shared()
    meetings = Meetings({"all": world}, PATIENCE_S)
    ready.wait()
    mine, before = of_thread.host.store, of_thread.host.store.num
    first, end = time.monotonic(), time.monotonic() + PATIENCE_S
    time.sleep(random.Random(number).random() * STEP_S)
    has_spoken, met, quiet = 0.0, Met.NOBODY, 0
    while met is not Met.HERE and time.monotonic() < end:
        speaks = bool(speaks_at) and time.monotonic() > first + speaks_at
        quiet = mine.num - before if not speaks and not has_spoken else quiet
        has_spoken = has_spoken or (time.monotonic() if speaks else 0.0)
        met = meetings.at("step", speaks)
        if met is not Met.HERE:
            time.sleep(STEP_S)
    here = time.monotonic()
    chosen = None
    if meetings.now is not None:
        chosen = meetings.now.settle([number] if has_spoken else None, lambda keys: min(keys, default=None))
        chosen = chosen and meetings.now.settle(FINDING | {"rank": number} if chosen == [number] else None, lambda values: values[0])
    told[number] = {
        "spoke": has_spoken,
        "here": here,
        "end": time.monotonic(),
        "found": chosen and chosen["rank"],
        "quiet": quiet,
        "requests": mine.num - before,
        "bytes": mine.bytes,
    }


def process(hosts: range, per_host: int, world: int, port: int, speaker: int) -> dict[str, Any]:
    """Some of the hosts, with all their ranks."""
    bell.Host.here = staticmethod(lambda: of_thread.host)  # type: ignore[method-assign]
    meeting.dist.get_rank = lambda group=None: of_thread.rank  # type: ignore[attr-defined]
    threading.stack_size(256 << 10)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(minutes=5))
    told: dict[int, Any] = {}
    ready = threading.Barrier(len(hosts) * per_host + 1)
    threads = []
    for number in hosts:
        own = Counted(store.clone())
        counted.append(own)
        host = Simulated(own, f"simulated-{port}-{number}")
        for one in range(number * per_host, (number + 1) * per_host):
            after = 2 * STEP_S if one == speaker else 0.0
            threads.append(threading.Thread(target=rank, args=(one, world, host, after, told, ready), daemon=True))
    for thread in threads:
        thread.start()
    store.add("ready", len(hosts))
    while int(store.add("ready", 0)) < world // per_host:
        time.sleep(0.05)
    start = sum(one.num for one in counted)
    ready.wait()
    for thread in threads:
        thread.join()
    return {"told": told, "requests": sum(one.num for one in counted) - start, "bytes": sum(one.bytes for one in counted)}


def run(world: int, per_host: int, num_processes: int, speaker: int) -> dict[str, Any]:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(minutes=5))
    store.set("numscope/listeners", "0")
    store.set("numscope/rings", "0")
    hosts = world // per_host
    shares = [range(i * hosts // num_processes, (i + 1) * hosts // num_processes) for i in range(num_processes)]
    pipes = []
    for share in shares:
        out, into = os.pipe()
        if os.fork() == 0:
            os.close(out)
            try:
                with os.fdopen(into, "wb") as file:
                    pickle.dump(process(share, per_host, world, store.port, speaker), file)
            finally:
                os._exit(0)
        os.close(into)
        pipes.append(out)
    parts = []
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            parts.append(pickle.loads(file.read()))
    for _ in pipes:
        os.wait()
    told = {number: one for part in parts for number, one in part["told"].items()}
    assert len(told) == world and {one["found"] for one in told.values()} == {speaker}, Counter(one["found"] for one in told.values())
    spoke = told[speaker]["spoke"]
    return {
        "quiet": sum(one["quiet"] for number, one in told.items() if number != speaker and one["here"] < spoke),
        "here": max(one["here"] for one in told.values()) - spoke,
        "end": max(one["end"] for one in told.values()) - spoke,
        "requests": sum(part["requests"] for part in parts),
        "bytes": sum(part["bytes"] for part in parts),
        "most": max(one["requests"] for one in told.values()),
    }


def rate() -> float:
    """Requests that the store answers in a second, asked from four processes."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    num, pids, start = 5000, [], time.perf_counter()
    for _ in range(4):
        if (pid := os.fork()) == 0:
            asking = dist.TCPStore("127.0.0.1", store.port, is_master=False)
            for _ in range(num):
                asking.add("one", 1)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return 4 * num / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    per_second = rate()
    results: dict[str, Any] = {"machine": describe(), "options": vars(options), "store's requests a second": per_second, "ranks": {}}
    lines = [
        f"The exchange alone: simulated hosts with {options.per_host} ranks each, a real store on the loopback, which answers",
        f"{per_second:,.0f} requests a second here. A rank comes to a place every {STEP_S} s. One rank at random finds something;",
        f"medians of {options.repeats}.",
        "",
        "| ranks | hosts | all are at one place after | all know what was found after | requests | of one rank, at most | sent |",
        "|---|---|---|---|---|---|---|",
    ]
    each = 0.0
    for world in options.ranks:
        found = []
        for repeat in range(options.repeats):
            speaker = random.Random(world + repeat).randrange(world)
            found.append(run(world, options.per_host, min(options.processes, world // options.per_host), speaker))
        one = results["ranks"][world] = {key: statistics.median(f[key] for f in found) for key in found[0]}
        each = one["requests"] / world
        lines.append(
            f"| {world:,} | {world // options.per_host:,} | {one['here']:.2f} s | {one['end']:.2f} s | {one['requests']:,.0f} "
            f"| {one['most']:.0f} | {one['bytes'] / 2**20:.1f} MiB |"
        )
        print(lines[-1], flush=True)
    lines += [
        "",
        "Computed from the last row, for a store of the same speed:",
        "",
        "| ranks | requests after a finding | at that rate |",
        "|---|---|---|",
    ]
    lines += [f"| {world:,} | {each * world:,.0f} | {math.ceil(each * world / per_second)} s |" for world in (10_000, 100_000)]
    most = int(agree.ANSWER_S * per_second / each)
    lines += [
        "",
        "What a rank holds does not grow with their number, and the store has one connection a host more. What breaks first is the rate at",
        f"which it answers: from some {most:,} ranks on it takes more than the {agree.ANSWER_S:.0f} s for which ranks wait for each",
        "other after a finding, and each judges its steps alone. A healthy step asks it nothing.",
    ]
    write("ranks_simulated", results, "Thousands of ranks: what a finding costs", lines)


if __name__ == "__main__":
    main()
