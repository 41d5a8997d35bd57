"""The whole command on several hosts, with one fault each: its finding, whom it names, its exit code, and that it ends in time.

``NUMSCOPE_WRITE_FAULT_TABLE=1`` writes docs/doctor-faults.md from what this run saw.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doctor import netns
from tests.doctor.crew import planted
from tests.doctor.expected import DEADLINE_S, FAULTS, PORT, Fault
from tests.doctor.fleet import asked

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "doctor-faults.md"
TORCH = ROOT / "benchmarks" / "results" / "doctor_torch.json"
WRITE = "NUMSCOPE_WRITE_FAULT_TABLE"
AT_ONCE = 5  # most of a case is waiting
OVERTIME_S = 30.0  # what the machine may be late by before a time decides: a bound is there for what never ends

# Done by every Python process of a host, before anything else: a command of the shell when a phase's module is first imported, or when a
# function of it is called.
SITE = """
import importlib.machinery, os, sys
module, _, function = ("numscope.doctor.phases." + os.environ["NUMSCOPE_TEST_AT"]).partition(":")
command = os.environ["NUMSCOPE_TEST_DO"]
if "-m" in sys.orig_argv and any(word in sys.orig_argv for word in ("numscope.doctor.rank", "doctor")):
    class Watch:
        done = False
        def find_spec(self, name, path=None, target=None):
            if name != module or Watch.done:
                return None
            Watch.done = True
            if not function:
                os.system(command)
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            execute = spec.loader.exec_module
            def exec_module(made):
                execute(made)
                original = getattr(made, function)
                setattr(made, function, lambda *args: (os.system(command), original(*args))[1])
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Watch())
"""
# As a rank on another terminal than the report's says it, and as the report does, over several lines.
FINDING = re.compile(
    r"^(?:\[[^\]\n]+:\d+\] )?(fault|degraded|note): ((?:.|\n(?!\n))*?)\s+[(\[]([a-z0-9-]+),\s(?:certain|likely|possible)[)\]]$", re.M
)


@dataclass(frozen=True)
class Seen:
    """What came of a case.

    Args:
        ended: by host, of those that were started.
        findings: by host, as JSON values; of hosts that wrote no report only id and summary, from their lines.
    """

    ended: dict[int, netns.Ended]
    findings: dict[int, list[dict[str, Any]]]


def examine(fault: Fault, folder: Path) -> Seen:
    """Runs the command on all hosts, with the fault."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    with netns.Network(fault.num_hosts) as network, contextlib.ExitStack() as stack:
        fault.inject(network, stack)
        started = {}
        for number, host in enumerate(network.hosts):
            if number in fault.absent:
                continue
            report = ("--json", str(folder / f"node{number}.json"))
            settings: dict[str, object] = {"deadline_s": fault.deadline_s, "timeout_scale": fault.scale, "phases": fault.phases.split(",")}
            words = report if "compute" in fault.phases else ("--quick", *report)
            paths = [str(site)] if number in fault.during else []
            for package, version in fault.installed.get(number, {}).items():
                about = folder / "installed" / f"{package}-{version}.dist-info"
                about.mkdir(parents=True)
                (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
                paths.append(str(about.parent))
            environment = {"PYTHONPATH": os.pathsep.join([*paths, str(ROOT / "src")]), "NUMSCOPE_DOCTOR_TOKEN": "of all hosts"}
            if number in fault.during:
                environment["NUMSCOPE_TEST_AT"], environment["NUMSCOPE_TEST_DO"] = fault.during[number]
            if fault.torchrun:
                numbers = {"RANK": number, "WORLD_SIZE": fault.num_hosts, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": number}
                environment |= {name: str(value) for name, value in numbers.items()}
                environment |= {"MASTER_ADDR": "node0", "MASTER_PORT": str(PORT)}
            else:
                words += ("--nnodes", str(fault.num_hosts), "--nproc", "1", "--endpoint", f"node0:{PORT}")
                settings["node_rank"] = number
            words += (*asked(**settings), *fault.words.get(number, ()))
            environment |= planted(fault.in_child, environment["PYTHONPATH"])
            environment |= fault.environment.get(number, {})
            started[number] = network.start(host, sys.executable, "-m", "numscope", "doctor", *words, environment=environment)
        awaited = [number for number in started if number not in fault.stopped]
        ends = netns.wait([started[number] for number in awaited], min(fault.within_s + OVERTIME_S, fault.deadline_s + 5.0))
    ended = dict(zip(awaited, ends, strict=True))
    return Seen(ended, {number: _findings(end, folder / f"node{number}.json") for number, end in ended.items()})


def _findings(end: netns.Ended, report: Path) -> list[dict[str, Any]]:
    if report.exists():
        return list(json.loads(report.read_text())["findings"])
    return [
        {"id": name, "severity": severity, "summary": " ".join(summary.split())} for severity, summary, name in FINDING.findall(end.stdout)
    ]


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Seen]]]:
    """All cases that were asked for, several at once."""
    chosen = {
        item.callspec.params["fault"].name
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec") and "fault" in item.callspec.params
    }
    pool = ThreadPoolExecutor(AT_ONCE)
    futures = {fault.name: pool.submit(examine, fault, tmp_path_factory.mktemp(fault.name)) for fault in FAULTS if fault.name in chosen}
    yield futures
    pool.shutdown(wait=True, cancel_futures=True)
    if os.environ.get(WRITE) and len(futures) == len(FAULTS):
        TABLE.write_text(table({name: future.result() for name, future in futures.items()}), encoding="utf-8")


@pytest.mark.skipif(bool(netns.missing()), reason=netns.missing() or "hosts can be made")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named(fault: Fault, examined: dict[str, Future[Seen]]) -> None:
    seen = examined[fault.name].result()
    told = "\n".join(
        f"--- node{number}: {end.code} after {end.seconds:.1f} s\n{end.stdout}{end.stderr}" for number, end in seen.ended.items()
    )
    for end in seen.ended.values():
        assert end.code is not None, f"it did not end within {fault.within_s:.0f} s\n{told}"
    for number in fault.told_by:
        assert seen.ended[number].code == fault.code, told
        grave = [each for each in seen.findings[number] if each["severity"] != "note" or each["id"] == fault.finding]
        assert {each["id"] for each in grave} - set(fault.also) == ({fault.finding} if fault.finding else set()), told
        for found in (each for each in grave if each["id"] == fault.finding):
            if "ranks" in found:
                assert fault.ranks is None or tuple(found["ranks"]) == fault.ranks, told
                assert fault.hosts is None or set(found["hosts"]) == set(fault.hosts), told
                assert fault.links is None or {tuple(link) for link in found["links"]} == set(fault.links), told
            else:  # another terminal than the hub's: one line
                for word in (*(fault.hosts or ()), *{host for link in fault.links or () for host in link[1:]}):
                    assert word in found["summary"], told
    if not fault.finding:
        lines = [line for end in seen.ended.values() for line in end.stdout.splitlines() if line.endswith(" is OK")]
        assert sorted(lines) == [f"[node{number}:{number}] is OK" for number in range(fault.num_hosts)], told


def test_table_in_the_documents_has_all_faults() -> None:
    rows = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [fault.says for fault in FAULTS if fault.finding]
    assert [row.split(" | ")[1].strip("`") for row in rows] == [fault.finding for fault in FAULTS if fault.finding]


def table(seen: dict[str, Seen]) -> str:
    """docs/doctor-faults.md."""
    torch = json.loads(TORCH.read_text(encoding="utf-8")) if TORCH.exists() else {"faults": {}, "about": ""}
    lines = [
        "# Faults that the doctor was tested on",
        "",
        "For each fault: what `numscope doctor` reports, whom it names, how long it takes, and what torch reports for the same fault. The",
        "hosts are network namespaces of one machine, where the whole command ran. Seconds are those of one run with "
        f"`--quick` and `deadline_s: {DEADLINE_S:g}`.",
        "Missing ranks are waited for 14 s (7 s here: `timeout_scale: 0.5`), links have 8 s. tests/doctor/test_faults.py writes this",
        "page.",
        "",
        *([torch["about"], ""] if torch["about"] else []),
        "| fault | finding | names | seconds | torch's own error |",
        "|---|---|---|---|---|",
    ]
    for fault in FAULTS:
        if not fault.finding:
            continue
        result = seen[fault.name]
        found = [each for each in result.findings[fault.told_by[0]] if each["id"] == fault.finding]
        first = found[0] if found else {}
        names = [f"rank {rank}" for rank in first.get("ranks", ())] + list(first.get("hosts", ()))
        names += [" → ".join(link) for link in first.get("links", ())]
        said = torch["faults"].get(fault.name, "not a fault of the network" if not fault.of_network else "not measured")
        seconds = max(result.ended[number].seconds for number in fault.told_by)
        lines.append(f"| {fault.says} | `{fault.finding}` | {', '.join(names) or first.get('summary', '')} | {seconds:.1f} | {said} |")
    return "\n".join(lines) + "\n"
