"""Findings about joining and staying: ranks that are missing, dead, silent or duplicate, and hubs that could not be reached."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numscope.doctor.findings import finding, named, pasted
from numscope.doctor.records import DoctorFinding, Examined, ExamPhase, PhaseResult

_UNKNOWN = "an unknown host"
# By failure to reach the hub: the finding.
_UNREACHED = {
    **{kind: f"hub-{kind}" for kind in ("unresolved", "loopback", "refused", "dropped", "unreachable")},
    **{"silent": "hub-port-silent", "http": "hub-port-http", "foreign": "hub-port-foreign", "closed": "hub-port-foreign"},
    **{"token": "hub-wrong-job", "garbage": "version-mismatch/hub", "taken": "hub-port-in-use"},
}
# Claims that contradict each other: by kind of refusal the finding.
_CONTRADICTIONS = {"duplicate": "rank-duplicate", "world_size": "world-size-differs", "rank": "rank-out-of-range"}


def attendance(examined: Examined) -> list[DoctorFinding]:
    """Findings about joining, staying and reaching the hub, the gravest first."""
    hub = examined.hub
    if not hub.get("reached", True):
        return [_unreached(examined)]
    if hub.get("lost"):
        return [_hub_lost(examined)]
    return [*_lost(examined), *_contradictions(examined), *_missing(examined), *_interfaces(examined), *_unauthenticated(examined)]


def exit_code(examined: Examined, findings: Sequence[DoctorFinding]) -> int:
    """The exit code for findings and results.

    A fault that is at least likely counts as attributed (1); a failure without one does not (3); if something requested did not run, the
    examination is incomplete (5), never healthy.
    """
    faults = [each for each in findings if each.severity == "fault"]
    bad = [result for result in examined.results if result.status in ("failed", "timeout", "silent")]
    if any(each.confidence != "possible" for each in faults):
        return 1
    if any("internal" in result.data for result in bad):
        return 70
    if examined.hub.get("interrupted"):
        return 5
    if faults or bad:
        return 3
    if not examined.results or any(result.status == "skipped" for result in examined.results):
        return 5
    return 4 if examined.settings.strict and any(each.severity == "degraded" for each in findings) else 0


def _lost(examined: Examined) -> list[DoctorFinding]:
    groups: dict[tuple[str, str], list[PhaseResult]] = defaultdict(list)
    seen: set[int] = set()
    for result in examined.results:
        how = str(result.data.get("how", ""))
        if result.status == "silent" and how in ("died", "silent") and result.rank not in seen:
            seen.add(result.rank)
            groups[how, _host(examined, result.rank)].append(result)
    found = []
    for (how, host), results in groups.items():
        ranks, phase = [result.rank for result in results], results[0].phase.title
        lines = [f"rank {r.rank}: {r.error}" + (f"; its next step was: {r.doing}" if r.doing else "") for r in results]
        one = finding(f"rank-{how}", ranks=ranks, hosts=[host], evidence=lines, phase=phase)
        found.append(replace(one, remedy=()) if host == _UNKNOWN else one)  # nobody can look at it
    return found


def _contradictions(examined: Examined) -> Iterator[DoctorFinding]:
    for kind, id in _CONTRADICTIONS.items():
        cases = [refused for refused in examined.refused if refused["kind"] == kind]
        if cases:
            ranks = sorted({int(case["rank"]) for case in cases if int(case.get("rank", -1)) >= 0})
            hosts = {str(case["hostname"]) for case in cases}
            if kind == "duplicate":  # both of them
                hosts |= {_host(examined, rank) for rank in ranks if rank in examined.roster}
            evidence = [str(case["reason"]) for case in cases]
            yield finding(id, ranks=ranks, hosts=hosts, evidence=evidence, who=named(ranks) if ranks else "the same node")


def _missing(examined: Examined) -> Iterator[DoctorFinding]:
    absent = [result for result in examined.results if result.data.get("how") == "missing"]
    if not absent or examined.hub.get("interrupted"):
        return
    ranks = [result.rank for result in absent]
    nodes = _nodes_of(examined, ranks)
    joined = ", ".join(f"rank {rank} from {entry['address']}" for rank, entry in list(examined.roster.items())[:8]) or "none"
    evidence = [f"rank {result.rank}: {result.error}" for result in absent[:8]]
    evidence.append(f"{len(examined.roster)} of {examined.expected} ranks joined: {joined}")
    strange = [refused for refused in examined.refused if refused["kind"] in ("token", "garbage")]
    evidence += [f"a process at {refused['address']} was not admitted: {refused['reason']}" for refused in strange[:3]]
    yield finding(
        "rank-missing",
        ranks=ranks,
        evidence=evidence,
        # If another process took the number, or has another world size, that explains why a rank is missing.
        confidence="likely" if any(r["kind"] in _CONTRADICTIONS for r in examined.refused) else "certain",
        nodes=f": all of {_numbered(nodes)}" if nodes else "",
        in_slurm=_names_in_slurm(examined, nodes),
    )


def _interfaces(examined: Examined) -> Iterator[DoctorFinding]:
    joined = examined.of(ExamPhase.RENDEZVOUS).items()
    names = {rank: str(r.data["ifname"]) for rank, r in joined if r.data.get("ifname") and not r.data.get("ifname_address")}
    if not names:
        return
    hosts, evidence = {_host(examined, rank) for rank in names}, [f"rank {rank}: {name} has no address" for rank, name in names.items()]
    name = next(iter(names.values()))
    yield finding("interface-missing/option", ranks=names, hosts=hosts, evidence=evidence, name=name, on=", ".join(sorted(hosts)))


def _unauthenticated(examined: Examined) -> Iterator[DoctorFinding]:
    cases = [refused for refused in examined.refused if refused["kind"] not in _CONTRADICTIONS]
    if not cases:
        return
    addresses = ", ".join(sorted({str(case["address"]) for case in cases})[:5])
    evidence = [f"{case['address']}: {case['reason']}" for case in cases[:5]]
    yield finding("hub-unauthenticated", evidence=evidence, count=len(cases), addresses=addresses)


def _unreached(examined: Examined) -> DoctorFinding:
    hub = examined.hub
    endpoint, kind = str(hub["endpoint"]), str(hub["kind"])
    host, _, port = endpoint.rpartition(":")
    taken = kind == "taken"
    attempts = ", ".join(f"port {what}: {count} times" for what, count in dict(hub.get("attempts", {})).items())
    return finding(
        _UNREACHED[kind],
        ranks=hub.get("ranks", ()),
        hosts=[host],
        links=[(str(hub["here"]), host)] if hub.get("here") and not taken else (),
        evidence=[
            f"the endpoint {endpoint} comes from {hub.get('origin', 'the launcher')}",
            str(hub["sentence"]),
            *([f"attempts in {float(hub.get('seconds', 0)):.1f} s: {attempts}"] if attempts else []),
        ],
        sentence=hub["sentence"],
        at=endpoint,
        port=port,
        endpoint=pasted(endpoint),
        entry=pasted(f"<address of the host> {host}"),
        line=pasted(rf"/^127\..*{_literal(host)}/d"),
    )


def _hub_lost(examined: Examined) -> DoctorFinding:
    hub = examined.hub
    host = _host(examined, 0) if 0 in examined.roster else str(hub["endpoint"]).rpartition(":")[0]
    id, phase = "hub-silent" if hub["lost"] == "silent" else "hub-died", ExamPhase(hub.get("phase", ExamPhase.RENDEZVOUS)).title
    return finding(id, ranks=[0], hosts=[host], evidence=[str(hub["sentence"])], phase=phase)


def _nodes_of(examined: Examined, ranks: list[int]) -> list[int]:
    """The nodes that consist of exactly these ranks, as far as the ranks that joined reveal the layout."""
    sizes = {int(entry["identity"]["local_world_size"]) for entry in examined.roster.values()}
    if len(sizes) != 1 or sizes == {1}:
        return []
    size = sizes.pop()
    nodes = sorted({rank // size for rank in ranks})
    return nodes if set(ranks) == {node * size + local for node in nodes for local in range(size)} else []


def _numbered(nodes: list[int]) -> str:
    """``node number 1, counted from 0``: a host may be called node1 and be number 0."""
    return f"node{'s' if len(nodes) > 1 else ''} number {named(nodes).partition(' ')[2]}, counted from 0"


def _names_in_slurm(examined: Examined, nodes: list[int]) -> str:
    if {entry["identity"].get("launcher") for entry in examined.roster.values()} != {"slurm"} or not nodes:
        return ""
    lines = ";".join(f"{node + 1}p" for node in nodes)
    return f"scontrol show hostnames $SLURM_JOB_NODELIST | sed -n '{lines}'  # its name, for srun --exclude="


def _literal(text: str) -> str:
    """A pattern of sed that means this text."""
    return re.sub(r"[][.*/^$\\]", r"\\\g<0>", text)


def _host(examined: Examined, rank: int) -> str:
    entry: Mapping[str, Any] | None = examined.roster.get(rank)
    return str(entry["identity"]["hostname"]) if entry else _UNKNOWN
