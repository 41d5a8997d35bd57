"""The doctor's own time: a healthy machine, and thousands of hosts, with faults and without.

    ./dev bench doctor

The command is run as a user runs it, whole processes by the wall clock. Hosts by the thousand are simulated (tests/doctor/simulated.py):
a few processes hold all their connections over loopback, speak the protocol through all phases and make up what healthy hosts measure.
The hub, with one rank a host, the diagnosis and the report are the real ones.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from numscope.doctor.records import DoctorFinding, ExamPhase, Settings, Verdict
from tests.doctor.simulated import Planted, Told, examine, peak_bytes, started


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


Fault = tuple[str, str, Callable[[DoctorFinding], bool]]  # what is planted, the finding's id, and whether it names it


def scenarios(hosts: int) -> dict[str, tuple[Planted, list[Fault]]]:
    """The faults, several at once, as far as one does not hide the others: nobody reaches the last phases if a rack is cut off."""
    absent, dead, link, slow, old, corrupt = (hosts * share // 100 for share in (7, 13, 31, 83, 91, 37))
    rack = frozenset(range(hosts // 2, hosts // 2 + 32))
    split = f"{{node{hosts // 2:04d}, node{hosts // 2 + 1:04d}, node{hosts // 2 + 2:04d}, "

    def about(host: int) -> Callable[[DoctorFinding], bool]:
        return lambda each: each.hosts == (f"node{host:04d}",) or each.ranks == (host,)

    always: list[Fault] = [("a host that never comes", "rank-missing", about(absent)), ("another torch", "version-mismatch", about(old))]
    both = {"absent": frozenset({absent}), "old_torch": frozenset({old})}
    return {
        "network": (
            Planted(**both, dies={dead: ExamPhase.LINKS}, cut=((link, link + 1),), rack=rack, slow_links=frozenset({slow})),  # type: ignore[arg-type]
            [
                *always,
                ("a host that dies in phase 3", "rank-died", about(dead)),
                ("a broken link", "link-broken", lambda each: set(each.hosts) == {f"node{link:04d}", f"node{link + 1:04d}"}),
                ("a rack of 32 hosts, cut off", "network-split", lambda each: split in each.summary),
                ("a host with a slow network", "link-slow", about(slow)),
            ],
        ),
        "torch": (
            Planted(**both, vanishes={dead: ExamPhase.PAIRS}, corrupts=frozenset({corrupt}), slow=frozenset({slow})),  # type: ignore[arg-type]
            [
                *always,
                ("a host that vanishes in phase 5", "rank-silent", about(dead)),
                ("a host that sends wrong bits", "payload-corrupted", about(corrupt)),
                ("a host that computes slowly", "rank-slow", about(slow)),
            ],
        ),
    }


def hub_dies(hosts: int) -> float:
    """Seconds from the death of the hub's process to the end of all simulated hosts."""
    with started(hosts, 1, Planted(vanishes={1: ExamPhase.LINKS}), Settings(), 2) as (hub, _, fleets):
        time.sleep(10.0)
        hub.kill()
        began = time.perf_counter()
        for _, pipe in fleets:
            assert pipe.poll(60.0)
            pipe.recv()
        return time.perf_counter() - began


def judge(pipe: Connection, hosts: int, per_host: int) -> None:
    """The diagnosis and the report alone, of a job with a dead host and a cut-off rack."""
    from numscope.doctor.diagnose import diagnose
    from numscope.doctor.rendering import print_verdict
    from tests.doctor.examples import examination

    dropped = {"status": "dropped", "error": "no answer within 3.5 s", "known": "dropped"}
    pairs = ((one, other) for one in range(hosts) for other in range(hosts))
    bad = {(one, other): dropped for one, other in pairs if 5 in (one, other) or (one // 32 == 30) != (other // 32 == 30)}
    examined = examination(hosts, per_host, links=bad, heard=lambda one, other: False)
    before, began, text = peak_bytes(), time.process_time(), io.StringIO()
    verdict: Verdict = diagnose(examined)
    judged = time.process_time()
    print_verdict(verdict, examined, text)
    done, after = time.process_time(), peak_bytes()
    pipe.send((judged - began, done - judged, before, after, len(text.getvalue().splitlines()), len(verdict.findings)))


def apart(function: Callable[..., None], *arguments: Any) -> Any:
    """What a function sends from a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(theirs, *arguments))
    process.start()
    found = ours.recv()
    process.join()
    return found


def row(hosts: int, what: str, told: Told) -> str:
    traffic = told.traffic
    return (
        f"| {hosts:,} | {what} | {told.join_s:.1f} s | {told.seconds:.1f} s | {told.judge_s:.1f} s | {told.cpu_s:.1f} s "
        f"| {told.peak_bytes / 1e6:.0f} MB | {traffic.messages:,} | {traffic.sent / 1e6:.1f} MB | {traffic.received / 1e6:.1f} MB |"
    )


def main() -> None:
    from _machine import describe, write  # only here: it imports torch, which the hub's process and the hosts' do without

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hosts", type=int, nargs="*", default=[250, 1000, 2000])
    given = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent / "src"))
    runs = commands(given.rounds)
    most = max(given.hosts)
    told = {(hosts, "healthy"): examine(hosts) for hosts in given.hosts}
    named: dict[str, bool] = {}
    for what, (planted, faults) in scenarios(most).items():
        one = told[most, f"faults: {what}"] = examine(most, 1, planted)
        for fault, id, is_it in faults:
            named[f"{fault}: `{id}`"] = named.get(f"{fault}: `{id}`", True) and any(
                each.id == id and is_it(each) for each in one.verdict.findings
            )
    ended_s = hub_dies(most)
    judged_s, printed_s, before, after, lines, findings = apart(judge, 2000, 8)
    text = ["| numscope doctor, healthy, this machine alone | median | smallest | largest |", "|---|---|---|---|"]
    text += [f"| `{words}` | {statistics.median(s):.1f} s | {min(s):.1f} s | {max(s):.1f} s |" for words, s in runs.items()]
    text += [
        "",
        "Simulated hosts over loopback, one rank each, on the same cores as the hub, through all phases:",
        "",
        "| hosts | | all have joined | verdict | of it diagnosis | hub's CPU | hub's memory | messages | to the hub | from the hub |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(row(hosts, what, one) for (hosts, what), one in told.items()),
        "",
        "Whatever else this machine does is in the times. With a host that never comes, joining takes its whole share of the deadline",
        "(45 s). A host is silent after 5 s.",
        "",
        "| planted among the hosts | named |",
        "|---|---|",
        *(f"| {fault} | {'yes' if found else 'NO'} |" for fault, found in named.items()),
        "",
        f"After the hub's process is killed all hosts have ended within {ended_s:.1f} s.",
        "",
        f"Diagnosis of 2,000 hosts with 8 ranks each, one dead, a rack cut off: {judged_s:.1f} s of CPU, {(after - before) / 1e6:.0f} MB",
        f"besides the {before / 1e6:.0f} MB of the observations; the report: {printed_s:.1f} s, {lines} lines, {findings} findings.",
    ]
    measured = {
        f"{hosts} {what}": {**vars_of(one), "findings": [each.summary for each in one.verdict.findings]}
        for (hosts, what), one in told.items()
    }
    values = {"machine": describe(), "seconds": runs, "simulated": measured, "named": named, "hub_dies_s": ended_s}
    write(
        "doctor", {**values, "judge_2000x8_s": judged_s, "report_2000x8_s": printed_s, "report_lines": lines}, "The doctor's own time", text
    )


def vars_of(told: Told) -> dict[str, Any]:
    return {
        "join_s": told.join_s,
        "verdict_s": told.seconds,
        "judge_s": told.judge_s,
        "hub_cpu_s": told.cpu_s,
        "hub_peak_bytes": told.peak_bytes,
        "messages": told.traffic.messages,
        "bytes_to_hub": told.traffic.sent,
        "bytes_from_hub": told.traffic.received,
        "phases_begun_s": told.phases_s,
    }


if __name__ == "__main__":
    main()
