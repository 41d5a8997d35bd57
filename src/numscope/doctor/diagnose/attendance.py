"""Findings about who came and who went: ranks missing, dead, silent or twice there, and hubs that were not reached. A pure function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from numscope.doctor.records import PHASES, Examined, Finding, PhaseResult, Verdict

# What each way not to reach the hub is called, and what to do about it.
UNREACHED: dict[str, tuple[str, str]] = {
    "unresolved": ("hub-unresolved", "echo '<address of the host> {host}' | sudo tee -a /etc/hosts"),
    "loopback": ("hub-loopback", "sed -i '/^127\\..*{host}/d' /etc/hosts && echo '<address of the host> {host}' >> /etc/hosts"),
    "refused": ("hub-refused", "start rank 0's node first, and check that it is {host}: numscope doctor --endpoint {endpoint}"),
    "dropped": ("hub-dropped", "iptables -I INPUT -p tcp --dport {port} -j ACCEPT  # on {host}: packets to its port vanish"),
    "unreachable": ("hub-unreachable", "ip route get {host}  # no route leads there from here"),
    "silent": ("hub-port-silent", "ss -ltnp 'sport = :{port}'  # on {host}: see who listens: something else, or rank 0 that hangs"),
    "http": ("hub-port-http", "ss -ltnp 'sport = :{port}'  # on {host}: a web server listens there; take another port"),
    "foreign": ("hub-port-foreign", "ss -ltnp 'sport = :{port}'  # on {host}: something else listens there; take another port"),
    "closed": ("hub-port-foreign", "ss -ltnp 'sport = :{port}'  # on {host}: something else listens there; take another port"),
    "token": ("hub-of-another-job", "take another port: another job's doctor, or one with another NUMSCOPE_DOCTOR_TOKEN, is at {endpoint}"),
}


def attendance(examined: Examined) -> list[Finding]:
    """What is wrong with who came, who went and how the hub was reached, the gravest first."""
    hub = examined.hub
    if not hub.get("reached", True):
        return [_unreached(examined)]
    if hub.get("lost"):
        return [_hub_lost(examined)]
    return [*_lost(examined), *_contradictions(examined), *_missing(examined), *_interfaces(examined), *_strangers(examined)]


def conclude(examined: Examined, findings: Iterable[Finding], seconds: float = 0.0) -> Verdict:
    """The exit code that findings and results amount to, and the ranks that are healthy.

    A fault that is at least likely is attributed (1); what failed without one is not (3); nothing that was asked for and did not run is
    called healthy (5).
    """
    findings = tuple(findings)
    faults = [finding for finding in findings if finding.severity == "fault"]
    bad = [result for result in examined.results if result.status in ("failed", "timeout", "silent")]
    left_out = examined.hub.get("interrupted") or any(result.status == "skipped" for result in examined.results)
    internal = any("internal" in result.data for result in bad)
    if any(finding.confidence != "possible" for finding in faults):
        code = 1
    elif internal:
        code = 70
    elif examined.hub.get("interrupted"):
        code = 5
    elif faults or bad:
        code = 3
    elif left_out or not examined.results:
        code = 5
    else:
        code = 4 if examined.settings.strict and any(finding.severity == "degraded" for finding in findings) else 0
    sick = {rank for finding in faults for rank in finding.ranks}
    unwell = {result.rank for result in examined.results if result.status != "ok"}
    ok = tuple(sorted(rank for rank in examined.roster if rank not in sick | unwell))
    return Verdict(code, findings, ok, seconds)


def _lost(examined: Examined) -> list[Finding]:
    groups: dict[tuple[str, str], list[PhaseResult]] = defaultdict(list)
    seen: set[int] = set()
    for result in examined.results:
        how = str(result.data.get("how", ""))
        if result.status == "silent" and how in ("died", "silent") and result.rank not in seen:
            seen.add(result.rank)
            groups[(how, _host(examined, result.rank))].append(result)
    found = []
    for (how, host), results in groups.items():
        ranks = tuple(result.rank for result in results)
        phase = results[0].name
        did = "died" if how == "died" else "went silent"
        found.append(
            Finding(
                id="rank-died" if how == "died" else "rank-silent",
                severity="fault",
                summary=f"{_name(ranks)} on {host} {did} in phase {results[0].phase} ({phase}).",
                ranks=ranks,
                hosts=(host,),
                evidence=tuple(f"rank {r.rank}: {r.error}" + (f"; it was about to {r.doing}" if r.doing else "") for r in results),
                confidence="certain",
                remedy=(f"ssh {host} 'dmesg -T | tail -50; ps aux | grep numscope'", f"--exclude {host}"),
            )
        )
    return found


def _contradictions(examined: Examined) -> list[Finding]:
    found = []
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for refused in examined.refused:
        by_kind[str(refused["kind"])].append(refused)
    for kind, finding_id, summary, remedy in (
        ("duplicate", "rank-duplicate", "Two processes say that they are {what}.", "give each process a RANK (or --node-rank) of its own"),
        (
            "world_size",
            "world-size-differs",
            "The ranks were told different world sizes.",
            "start all nodes with the same --nnodes and --nproc",
        ),
        ("rank", "rank-out-of-range", "A process says a rank that can't be.", "give each process a RANK from 0 to WORLD_SIZE - 1"),
    ):
        cases = by_kind.get(kind, [])
        if cases:
            ranks = tuple(sorted({int(case["rank"]) for case in cases if int(case.get("rank", -1)) >= 0}))
            hosts = {str(case["hostname"]) for case in cases}
            if kind == "duplicate":  # both of them
                hosts |= {_host(examined, rank) for rank in ranks if rank in examined.roster}
            found.append(
                Finding(
                    id=finding_id,
                    severity="fault",
                    summary=summary.format(what=_name(ranks).lower() if ranks else "the same node"),
                    ranks=ranks,
                    hosts=tuple(sorted(hosts)),
                    evidence=tuple(str(case["reason"]) for case in cases[:10]),
                    confidence="certain",
                    remedy=(remedy,),
                )
            )
    return found


def _missing(examined: Examined) -> list[Finding]:
    absent = [result for result in examined.results if result.data.get("how") == "missing"]
    if not absent or examined.hub.get("interrupted"):
        return []
    ranks = tuple(result.rank for result in absent)
    nodes = _nodes_of(examined, ranks)
    came = ", ".join(f"rank {rank} from {entry['address']}" for rank, entry in list(examined.roster.items())[:8]) or "nobody"
    evidence = [f"rank {result.rank}: {result.error}" for result in absent[:10]]
    evidence.append(f"{len(examined.roster)} of {examined.expected} ranks came: {came}")
    evidence += [f"a process at {r['address']} was not let in: {r['reason']}" for r in examined.refused if r["kind"] == "token"][:3]
    return [
        Finding(
            id="rank-missing",
            severity="fault",
            summary=f"{_name(ranks)} never came to the rendezvous" + (f": all of {_numbered(nodes)}." if nodes else "."),
            ranks=ranks,
            evidence=tuple(evidence),
            # Of whom another process took the number or who was told another size it is clear why it is not there.
            confidence="likely" if any(r["kind"] in ("duplicate", "world_size", "rank") for r in examined.refused) else "certain",
            remedy=(
                "look at what those processes print: each says itself whether and why it can't reach the hub",
                *_names_in_slurm(examined, nodes),
            ),
        )
    ]


def _interfaces(examined: Examined) -> list[Finding]:
    lacking = [r for r in examined.results if r.phase == 1 and r.data.get("ifname") and not r.data.get("ifname_address")]
    if not lacking:
        return []
    ranks = tuple(result.rank for result in lacking)
    hosts = tuple(sorted({_host(examined, rank) for rank in ranks}))
    name = lacking[0].data["ifname"]
    return [
        Finding(
            id="interface-missing",
            severity="fault",
            summary=f"The interface {name} that --ifname asks for has no IPv4 address on {', '.join(hosts)}, or is not there.",
            ranks=ranks,
            hosts=hosts,
            evidence=tuple(f"rank {result.rank}: no address of {name}" for result in lacking[:10]),
            confidence="certain",
            remedy=("ip -br address  # choose one that all hosts have, or leave out --ifname",),
        )
    ]


def _strangers(examined: Examined) -> list[Finding]:
    cases = [r for r in examined.refused if r["kind"] not in ("duplicate", "world_size", "rank")]
    if not cases:
        return []
    addresses = sorted({str(case["address"]) for case in cases})
    return [
        Finding(
            id="hub-strangers",
            severity="note",
            summary=f"{len(cases)} connection(s) to the hub were shown out, from {', '.join(addresses[:5])}.",
            evidence=tuple(f"{case['address']}: {case['reason']}" for case in cases[:5]),
            confidence="certain",
        )
    ]


def _unreached(examined: Examined) -> Finding:
    hub = examined.hub
    endpoint, kind = str(hub["endpoint"]), str(hub["kind"])
    host, _, port = endpoint.rpartition(":")
    if kind == "taken":
        finding_id, remedy = "hub-port-taken", f"ss -ltnp 'sport = :{port}'  # on {host}: end what listens there, or take another port"
        summary = f"The hub can't listen at {endpoint}: the port is taken."
    else:
        finding_id, remedy = UNREACHED[kind]
        summary = f"The hub at {endpoint} can't be reached: {hub['sentence']}."
    attempts = ", ".join(f"port {what}: {count} times" for what, count in dict(hub.get("attempts", {})).items())
    evidence = [f"the endpoint comes from {hub.get('origin', 'the launcher')}", str(hub["sentence"])]
    evidence += [f"tried for {float(hub.get('seconds', 0)):.1f} s: {attempts}"] if attempts else []
    return Finding(
        id=finding_id,
        severity="fault",
        summary=summary,
        ranks=tuple(hub.get("ranks", ())),
        hosts=(host,),
        links=((str(hub["here"]), host),) if hub.get("here") and kind != "taken" else (),
        evidence=tuple(evidence),
        confidence="certain",
        remedy=(remedy.format(host=host, port=port, endpoint=endpoint),),
    )


def _hub_lost(examined: Examined) -> Finding:
    hub = examined.hub
    phase = int(hub.get("phase", 1))
    host = _host(examined, 0) if 0 in examined.roster else str(hub["endpoint"]).rpartition(":")[0]
    silent = hub["lost"] == "silent"
    return Finding(
        id="hub-silent" if silent else "hub-died",
        severity="fault",
        summary=f"The hub, in rank 0's process or launcher on {host}, {'went silent' if silent else 'died'} "
        f"in phase {phase} ({PHASES[phase]}).",
        ranks=(0,),
        hosts=(host,),
        evidence=(str(hub["sentence"]),),
        confidence="certain",
        remedy=(f"ssh {host} 'dmesg -T | tail -50; ps aux | grep numscope'", f"--exclude {host}"),
    )


def _nodes_of(examined: Examined, ranks: tuple[int, ...]) -> list[int]:
    """Numbers of the nodes whose ranks just these are, as far as ranks that came let that be known."""
    sizes = {int(entry["identity"]["local_world_size"]) for entry in examined.roster.values()}
    if len(sizes) != 1 or sizes == {1}:
        return []
    size = sizes.pop()
    nodes = sorted({rank // size for rank in ranks})
    return nodes if set(ranks) == {node * size + local for node in nodes for local in range(size)} else []


def _numbered(nodes: list[int]) -> str:
    """A host may well be called node1 and be number 0."""
    return f"node{'s' if len(nodes) > 1 else ''} number {', '.join(map(str, nodes))}, counted from 0"


def _names_in_slurm(examined: Examined, nodes: list[int]) -> tuple[str, ...]:
    launchers = {entry["identity"].get("launcher") for entry in examined.roster.values()}
    if launchers != {"slurm"} or not nodes:
        return ()
    lines = ";".join(f"{node + 1}p" for node in nodes)
    return (f"scontrol show hostnames $SLURM_JOB_NODELIST | sed -n '{lines}'  # its name, for srun --exclude=",)


def _host(examined: Examined, rank: int) -> str:
    entry = examined.roster.get(rank)
    return str(entry["identity"]["hostname"]) if entry else "an unknown host"


def _name(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
    return f"Rank{'s' if len(ranks) > 1 else ''} {shown}"
