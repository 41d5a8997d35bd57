"""Findings from NCCL's log: its warnings, by the patterns in findings.yaml; versions, interfaces, network and missing ranks, by facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from numscope.doctor.explain.log_files import LogLine
from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.nccl_log import NcclLog, Speaker, Warned
from numscope.doctor.explain.patterns import PATTERNS
from numscope.doctor.findings import TABLE, capital, finding, named, pasted
from numscope.doctor.records import DoctorFinding, Severity

MAX_MEMBERS = 1 << 22  # ranks of all communicators that are looked at
_LOCAL = re.compile(r"^(?:lo|docker\d*|virbr\d*|br-\w+|veth\w*|cni\d*|flannel[\w.]*|podman\d*|lxcbr\d*|lxdbr\d*)$")
_LOCAL_ADDRESS = re.compile(r"^\[?(?:127\.|169\.254\.|::1|fe80)")
_IB_NAME = re.compile(r"^(?:ib\w*|hsi\d+|roce\w*|rdma\w*)$")
SHOWN = 6
_RULES = [(id, re.compile(row["when"])) for id, row in TABLE.items() if "when" in row]  # the first one that matches takes a message


def explain_nccl(log: NcclLog) -> list[DoctorFinding]:
    """Findings of one job's NCCL log lines."""
    return [*explain_warnings(log), *_versions(log), *_interfaces(log), *_fallback(log), *_missing(log), *_p2p(log)]


def explain_warnings(log: NcclLog) -> list[DoctorFinding]:
    """Findings of the warnings; of several patterns for one finding the first counts."""
    taken: dict[str, list[Warned]] = {}
    unknown: list[Warned] = []
    for one in log.warned:
        id = next((id for id, pattern in _RULES if pattern.search(one.text) is not None), "")
        if id:
            taken.setdefault(id, []).append(one)
        elif one.warning and not PATTERNS["echo of another warning"].search(one.text):
            unknown.append(one)
    unfinished = any(set(c.started) - set(c.complete) for c in log.communicators.values())
    found: dict[str, DoctorFinding] = {}
    for id, pattern in _RULES:
        lines = sorted(taken.get(id, ()), key=lambda line: not line.warning)
        if id == "nccl-connect-failed" and not unfinished and not any(line.warning for line in lines):
            continue  # it tried again and succeeded
        if lines and id.partition("/")[0] not in found:
            match = pattern.search(lines[0].text)
            assert match is not None
            found[id.partition("/")[0]] = _explain(id, log, lines, match)
    if unknown:
        often = Counter(re.sub(r"0x[0-9a-f]+|\d+", "#", line.text) for line in unknown).most_common(1)[0][0]
        found["nccl-warning"] = finding("nccl-warning", **_about(log, unknown), count=len(unknown), often=shown(often)[:160])
    return list(found.values())


def _about(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    """The ranks and hosts that logged these lines, and the lines."""
    ranks, hosts = log.speakers_of(lines)
    return {"ranks": ranks, "hosts": hosts, "evidence": [line.line.quoted for line in lines[:SHOWN]]}


def _explain(id: str, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> DoctorFinding:
    """The finding, with the text of its pattern's groups, or of a special reader."""
    about = _about(log, lines)
    ranks, hosts = about["ranks"], about["hosts"]
    who = f" ({named(ranks)})" if ranks else f" ({', '.join(sorted(hosts)[:4])})" if hosts else ""
    words: dict[str, Any] = {key: value or "?" for key, value in match.groupdict().items()}
    if id in _READERS:
        id, words = _READERS[id](log, lines)
    return finding(id, **{**about, "who": who, **words})


def _version(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    versions: dict[str, set[int]] = {}
    for line in lines:
        for m in re.finditer(r"rank (\d{1,7}) version (\d{1,9})", line.text):
            versions.setdefault(_spelled(int(m[2])), set()).add(int(m[1]))
    fewest = min((len(ranks) for ranks in versions.values()), default=0)
    odd = {rank for ranks in versions.values() if len(ranks) == fewest for rank in ranks}
    differ = "; ".join(f"{version} on {named(ranks)}" for version, ranks in sorted(versions.items()))
    return "version-mismatch/refused", {"versions": differ, "ranks": odd}


def _spelled(number: int) -> str:
    """22705 is 2.27.5, 2708 is 2.7.8."""
    major, minor = (number // 10000, number // 100 % 100) if number >= 10000 else (number // 1000, number // 100 % 10)
    return f"{major}.{minor}.{number % 100}"


def _connect(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    connect = dict(_RULES)["nccl-connect-failed"]
    links, addresses, reasons = set(), set(), set()
    host_of = log.host_of()
    for line in lines:
        if (m := connect.search(line.text)) is None:
            continue
        reasons.add(m["why"].strip().lower())
        if m["to"]:
            address = m["to"].split("<")[0]
            addresses.add(address)
            if host := log.speakers[line.speaker].host:
                links.add((host, host_of(address)))
    meaning = "packets are dropped or have no route: a firewall, or an interface that does not lead there"
    if any("refused" in why for why in reasons):
        meaning = "nothing listens there: that rank has ended, or announced the address of an interface that others can't reach"
    if any(re.match(r"127\.|::1|169\.254\.|172\.17\.", address) for address in addresses):
        meaning = "that address (loopback, link-local or docker's) does not lead to another host"
    target = f" to {', '.join(sorted(addresses)[:4])}" if addresses else ""
    why = ", ".join(sorted(reasons)[:3]) or "no reason given"
    return "nccl-connect-failed", {"target": target, "reasons": why, "meaning": meaning, "links": links}


def _closed(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    ranks, _ = log.speakers_of(lines)
    named_in = ((line, re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.text)) for line in lines)
    pairs = [(log.speakers[line.speaker].host, m[1]) for line, m in named_in if m is not None]
    peers, host_of = {peer for _, peer in pairs}, log.host_of()
    links = {(host, host_of(peer)) for host, peer in pairs if host}
    named_peers = ", ".join(sorted(peers)[:4]) or "another rank"
    return "nccl-peer-closed", {"peers": named_peers, "noticed": named(ranks) if ranks else "this rank", "links": links}


def _interface(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    name = "NCCL_SOCKET_IFNAME"
    _, hosts = log.speakers_of(lines)
    speakers = [log.speakers[key] for key in dict.fromkeys(line.speaker for line in lines)]
    asked = sorted({speaker.environment[name] for speaker in speakers if name in speaker.environment})
    others = sorted({s.interface for s in log.speakers.values()} - {"", "lo"})
    set_by = [speaker.lines[name].quoted for speaker in speakers if name in speaker.lines]
    return "interface-missing/nccl", {
        "matching": f" that matches {name}={', '.join(asked)}" if asked else "",
        "where": f" on {', '.join(sorted(hosts)[:4])}" if hosts else "",
        "wish": f"{pasted(others[0])}  # as the other ranks do" if others else "^lo,docker,virbr",
        "evidence": [*set_by[:2], *(line.line.quoted for line in lines[:SHOWN])],
    }


def _duplicate(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.text) for line in lines]
    return "nccl-duplicate-gpu", {"ranks": {int(number) for m in pairs if m is not None for number in m.groups()}}


_READERS: dict[str, Callable[[NcclLog, list[Warned]], tuple[str, dict[str, Any]]]] = {
    "version-mismatch/warned": _version,
    "interface-missing/warned": _interface,
    "nccl-duplicate-gpu": _duplicate,
    "nccl-connect-failed": _connect,
    "nccl-peer-closed": _closed,
}


def _evidence(*lines: LogLine | None) -> list[str]:
    return [line.quoted for line in lines if line is not None]


def _versions(log: NcclLog) -> Iterator[DoctorFinding]:
    if any("Mismatched NCCL version" in one.text for one in log.warned):
        return
    by_version: dict[str, list[tuple[Speaker, LogLine]]] = {}
    for speaker in log.speakers.values():
        if speaker.version:
            by_version.setdefault(speaker.version, []).append((speaker, speaker.lines["version"]))
    alone: dict[str, list[LogLine]] = {}
    for version, line in log.versions_alone:
        alone.setdefault(version, []).append(line)
    if len(by_version) > 1:
        fewest = min(len(pairs) for pairs in by_version.values())
        odd = [speaker for pairs in by_version.values() if len(pairs) == fewest for speaker, _ in pairs]
        versions_of = "; ".join(f"{version} on {_whom([s for s, _ in pairs])}" for version, pairs in sorted(by_version.items()))
        together = any({log.speakers[key].version for key in c.speakers} >= set(by_version) for c in log.communicators.values())
        yield finding(
            "version-mismatch/log",
            ranks=[speaker.rank for speaker in odd],
            hosts=[speaker.host for speaker in odd],
            evidence=_evidence(*(pairs[0][1] for pairs in by_version.values())),
            confidence="certain" if together else "likely",
            versions=versions_of,
        )
    versions = set(alone) | set(by_version)
    if (
        len(versions) > 1 and len(by_version) < 2
    ):  # only rank 0 prints this line, once per communicator: two of them may come from two jobs, or from a restart
        lines = [lines[0] for _, lines in sorted(alone.items())] + [pairs[0][1] for pairs in by_version.values()]
        files = {line.file for line in lines}
        severity: Severity = "degraded" if len(files) > 1 else "note"
        yield finding("version-mismatch/logs", evidence=_evidence(*lines), severity=severity, versions=", ".join(sorted(versions)))


def _whom(speakers: list[Speaker]) -> str:
    hosts = sorted({s.host for s in speakers if s.host})
    ranks = {s.rank for s in speakers if s.rank >= 0}
    if hosts:
        return ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else "")
    return named(ranks) if ranks else ", ".join(sorted({s.file for s in speakers})[:4])


def _several_hosts(log: NcclLog) -> bool:
    return len(log.hosts()) > 1 or any(  # or the communicator has ranks that this host does not
        c.started and len({log.speakers[key].host for key in c.speakers}) == 1 and c.nranks > max(len(c.started), 16)
        for c in log.communicators.values()
    )


def _interfaces(log: NcclLog) -> Iterator[DoctorFinding]:
    if not _several_hosts(log):
        return  # within one host any interface works
    wrong = [s for s in log.speakers.values() if _LOCAL.match(s.interface) or _LOCAL_ADDRESS.match(s.address)]
    if not wrong:
        return
    right = Counter(s.interface for s in log.speakers.values() if s.interface and s not in wrong)
    names = sorted({f"{s.interface} ({s.address})" for s in wrong})
    asked = next((s.environment["NCCL_SOCKET_IFNAME"] for s in wrong if "NCCL_SOCKET_IFNAME" in s.environment), "")
    because = f", as set by NCCL_SOCKET_IFNAME={asked}" if asked else ""
    wish = right.most_common(1)[0][0] if right else "^lo,docker,virbr,veth,br-"
    failed = any("onnect" in one.text and one.warning for one in log.warned)
    yield finding(
        "nccl-wrong-interface",
        ranks=[s.rank for s in wrong],
        hosts=[s.host for s in wrong],
        evidence=_evidence(*(s.lines["interface"] for s in wrong[:SHOWN]), wrong[0].lines.get("NCCL_SOCKET_IFNAME")),
        confidence="certain" if failed or len({s.address for s in wrong}) < len({s.host for s in wrong}) else "likely",
        **_using(wrong),
        names=", ".join(names[:3]),
        because=because,
        wish=wish,
        gloo=f"export GLOO_SOCKET_IFNAME={wish.split(',')[0].lstrip('^')}" if right else "ip -br addr",
    )


def _using(speakers: list[Speaker]) -> dict[str, Any]:
    return {"whom": _whom(speakers), "uses": "uses" if len({s.host for s in speakers}) == 1 else "use"}


def _fallback(log: NcclLog) -> Iterator[DoctorFinding]:
    if not _several_hosts(log):
        return  # within one host no network is used
    sockets = [s for s in log.speakers.values() if s.network == "Socket"]
    if not sockets:
        return
    on_ib = [s for s in log.speakers.values() if s.network and s.network != "Socket"]
    reasons: list[str] = []
    lines: list[LogLine | None] = [s.lines["network"] for s in sockets[:2]]
    unset = device = ""
    if off := [s for s in sockets if s.environment.get("NCCL_IB_DISABLE", "0") not in ("", "0")]:
        if not on_ib and not any(s.ib_devices or _IB_NAME.match(s.interface) for s in sockets):
            return  # disabled, and nothing shows that there is any
        reasons.append("NCCL_IB_DISABLE is set")
        lines += [off[0].lines["NCCL_IB_DISABLE"]]
        unset = "unset NCCL_IB_DISABLE"
    if listed := [s for s in sockets if s.ib_devices]:
        reasons.append(f"there are devices ({listed[0].ib_devices})")
        lines += [listed[0].lines["ib_devices"]]
    if on_ib:
        reasons.append(" ".join((*_using(on_ib).values(), on_ib[0].network)))
        lines += [on_ib[0].lines["network"]]
    if asked := [s for s in sockets if s.environment.get("NCCL_IB_HCA") and "no_ib" in s.lines]:
        reasons.append(f"NCCL_IB_HCA={asked[0].environment['NCCL_IB_HCA']} names devices, but none was found")
        lines += [asked[0].lines["NCCL_IB_HCA"], asked[0].lines["no_ib"]]
        device = "docker run --device=/dev/infiniband --cap-add=IPC_LOCK …  # when in a container"
    if named_ib := [s for s in sockets if _IB_NAME.match(s.interface)]:
        reasons.append(f"the interface {named_ib[0].interface} is InfiniBand, judged by its name")
        lines += [named_ib[0].lines["interface"], named_ib[0].lines.get("no_ib")]
    if not reasons:
        return  # a network without InfiniBand is not a fault
    yield finding(
        "nccl-socket-fallback",
        ranks=[s.rank for s in sockets],
        hosts=[s.host for s in sockets],
        evidence=_evidence(*lines),
        confidence="certain" if on_ib or listed or off else "likely",
        # Ranks on two networks can't communicate at all.
        severity="fault" if on_ib else None,
        **_using(sockets),
        reasons="; ".join(reasons),
        unset=unset,
        device=device,
    )


def _missing(log: NcclLog) -> Iterator[DoctorFinding]:
    left = MAX_MEMBERS
    for (name, nranks), communicator in log.communicators.items():
        waiting = set(communicator.started) - set(communicator.complete)
        if not waiting or nranks > left:
            continue  # no starts in the log (older NCCL), or all are complete
        left -= nranks
        never = set(range(nranks)) - set(communicator.started) - set(communicator.complete)
        hosts = {log.speakers[key].host for key in communicator.speakers}
        whole = f"the communicator of {nranks} ranks" + (f" ({name})" if name else "")
        id, culprits = "nccl-missing-ranks", waiting
        if not communicator.complete:
            id, culprits = (f"{id}/never", never) if never else (f"{id}/none", waiting)
        yield finding(
            id,
            ranks=culprits if len(culprits) <= 1024 else (),
            hosts=hosts if culprits is waiting else (),
            evidence=_evidence(*(communicator.started[rank] for rank in sorted(waiting)[:3]), *list(communicator.complete.values())[:2]),
            # One rank's log of many proves nothing about the others; logs of most ranks do.
            confidence="likely"
            if len(communicator.started) > 1 and len(never) <= nranks // 2 and not communicator.complete and never
            else "possible",
            who=capital(named(culprits)),
            whole=whole,
            did=named(communicator.complete),
            waiting=f"{named(waiting)} wait{'s' if len(waiting) == 1 else ''}",
            nranks=nranks,
            ranks_named=named(culprits),
        )


def _p2p(log: NcclLog) -> Iterator[DoctorFinding]:
    speakers = [s for s in log.speakers.values() if s.disabled]
    if not speakers:
        return
    pairs = sorted({pair for s in speakers for pair in s.disabled})
    yield finding(
        "gpu-p2p-disabled",
        hosts=[s.host for s in speakers],
        ranks=[s.rank for s in speakers],
        evidence=_evidence(*(s.lines["disabled"] for s in speakers[:3])),
        pairs=f"{', '.join('-'.join(pair) for pair in pairs[:6])}{' …' if len(pairs) > 6 else ''}",
        whom=_whom(speakers),
    )
