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
# By failure to reach the hub: the finding, where that is not called hub-….
_UNREACHED = {"silent": "hub-port-silent", "http": "hub-port-http", "foreign": "hub-port-foreign", "closed": "hub-port-foreign"}
_UNREACHED |= {"token": "hub-wrong-job", "garbage": "version-mismatch/hub", "taken": "hub-port-in-use"}
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


def _lost(examined: Examined) -> Iterator[DoctorFinding]:
    groups: dict[tuple[str, str], dict[int, PhaseResult]] = defaultdict(dict)
    for result in examined.results:
        if result.status == "silent" and (how := str(result.data.get("how", ""))) in ("died", "silent"):
            groups[how, _host(examined, result.rank)].setdefault(result.rank, result)
    for (how, host), results in groups.items():
        lines = [f"rank {r.rank}: {r.error}" + (f"; its next step was: {r.doing}" if r.doing else "") for r in results.values()]
        phase = next(iter(results.values())).phase.title
        one = finding(f"rank-{how}", ranks=results, hosts=[host], evidence=lines, phase=phase)
        yield replace(one, remedy=()) if host == _UNKNOWN else one  # nobody can look at it


def _contradictions(examined: Examined) -> Iterator[DoctorFinding]:
    for kind, id in _CONTRADICTIONS.items():
        cases = [refused for refused in examined.refused if refused["kind"] == kind]
        if cases:
            ranks = {int(case["rank"]) for case in cases if int(case.get("rank", -1)) >= 0}
            hosts = {str(case["hostname"]) for case in cases}
            if kind == "duplicate":  # both of them
                hosts |= {_host(examined, rank) for rank in ranks & set(examined.roster)}
            evidence = [str(case["reason"]) for case in cases]
            yield finding(id, ranks=ranks, hosts=hosts, evidence=evidence, who=named(ranks) if ranks else "the same node")


def _missing(examined: Examined) -> Iterator[DoctorFinding]:
    absent = [result for result in examined.results if result.data.get("how") == "missing"]
    if not absent or examined.hub.get("interrupted"):
        return
    ranks = {result.rank for result in absent}
    joined = ", ".join(f"rank {rank} from {entry['address']}" for rank, entry in list(examined.roster.items())[:8]) or "none"
    evidence = [f"rank {result.rank}: {result.error}" for result in absent[:8]]
    evidence.append(f"{len(examined.roster)} of {examined.expected} ranks joined: {joined}")
    strange = [refused for refused in examined.refused if refused["kind"] in ("token", "garbage")]
    evidence += [f"a process at {refused['address']} was not admitted: {refused['reason']}" for refused in strange[:3]]
    # If another process took the number, or has another world size, that explains why a rank is missing.
    explained = any(refused["kind"] in _CONTRADICTIONS for refused in examined.refused)
    words = _nodes_of(examined, ranks)
    yield finding("rank-missing", ranks=ranks, evidence=evidence, confidence="likely" if explained else "certain", **words)


def _interfaces(examined: Examined) -> Iterator[DoctorFinding]:
    joined = examined.of(ExamPhase.RENDEZVOUS).items()
    names = {rank: str(r.data["ifname"]) for rank, r in joined if r.data.get("ifname") and not r.data.get("ifname_address")}
    if names:
        hosts, evidence = {_host(examined, rank) for rank in names}, [f"rank {rank}: {name} has no address" for rank, name in names.items()]
        yield finding("interface-missing/option", ranks=names, hosts=hosts, evidence=evidence, name=next(iter(names.values())))


def _unauthenticated(examined: Examined) -> Iterator[DoctorFinding]:
    cases = [refused for refused in examined.refused if refused["kind"] not in _CONTRADICTIONS]
    if cases:
        addresses = ", ".join(sorted({str(case["address"]) for case in cases})[:5])
        evidence = [f"{case['address']}: {case['reason']}" for case in cases[:5]]
        yield finding("hub-unauthenticated", evidence=evidence, count=len(cases), addresses=addresses)


def _unreached(examined: Examined) -> DoctorFinding:
    hub = examined.hub
    endpoint, kind = str(hub["endpoint"]), str(hub["kind"])
    host, _, port = endpoint.rpartition(":")
    attempts = ", ".join(f"port {what}: {count} times" for what, count in dict(hub.get("attempts", {})).items())
    literal = re.sub(r"[][.*/^$\\]", r"\\\g<0>", host)  # the host in a pattern of sed
    evidence = [f"the endpoint {endpoint} comes from {hub.get('origin', 'the launcher')}", str(hub["sentence"])]
    evidence += [f"attempts in {float(hub.get('seconds', 0)):.1f} s: {attempts}"] if attempts else []
    return finding(
        _UNREACHED.get(kind, f"hub-{kind}"),
        ranks=hub.get("ranks", ()),
        hosts=[host],
        links=[(str(hub["here"]), host)] if hub.get("here") and kind != "taken" else (),
        evidence=evidence,
        sentence=hub["sentence"],
        at=endpoint,
        port=port,
        endpoint=pasted(endpoint),
        entry=pasted(f"<address of the host> {host}"),
        line=pasted(rf"/^127\..*{literal}/d"),
    )


def _hub_lost(examined: Examined) -> DoctorFinding:
    hub = examined.hub
    host = _host(examined, 0) if 0 in examined.roster else str(hub["endpoint"]).rpartition(":")[0]
    id, phase = "hub-silent" if hub["lost"] == "silent" else "hub-died", ExamPhase(hub.get("phase", ExamPhase.RENDEZVOUS)).title
    return finding(id, ranks=[0], hosts=[host], evidence=[str(hub["sentence"])], phase=phase)


def _nodes_of(examined: Examined, ranks: set[int]) -> dict[str, Any]:
    """The words for the nodes that consist of exactly these ranks, as far as the ranks that joined reveal the layout."""
    identities = [entry["identity"] for entry in examined.roster.values()]
    size, *others = {int(identity["local_world_size"]) for identity in identities} or {1}
    nodes = sorted({rank // size for rank in ranks})
    if others or size == 1 or ranks != {node * size + local for node in nodes for local in range(size)}:
        return {"nodes": "", "in_slurm": ""}
    # Numbered, since a host may be called node1 and be number 0.
    words = f": all of node{'s' if len(nodes) > 1 else ''} number {named(nodes).partition(' ')[2]}, counted from 0"
    lines = ";".join(f"{node + 1}p" for node in nodes)
    names = f"scontrol show hostnames $SLURM_JOB_NODELIST | sed -n '{lines}'  # its name, for srun --exclude="
    return {"nodes": words, "in_slurm": names if {identity.get("launcher") for identity in identities} == {"slurm"} else ""}


def _host(examined: Examined, rank: int) -> str:
    entry: Mapping[str, Any] | None = examined.roster.get(rank)
    return str(entry["identity"]["hostname"]) if entry else _UNKNOWN
