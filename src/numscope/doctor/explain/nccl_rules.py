"""Findings from NCCL's log: its warnings, by the patterns in findings.yaml; versions, interfaces, network and missing ranks, by facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.nccl_log import NcclLog, Speaker, Warned
from numscope.doctor.explain.patterns import PATTERNS
from numscope.doctor.findings import TABLE, capital, finding, named, pasted
from numscope.doctor.records import DoctorFinding, Severity

_T = TypeVar("_T")
MAX_MEMBERS = 1 << 22  # ranks of all communicators that are looked at
_LOCAL = re.compile(r"^(?:lo|docker\d*|virbr\d*|br-\w+|veth\w*|cni\d*|flannel[\w.]*|podman\d*|lxcbr\d*|lxdbr\d*)$")
_LOCAL_ADDRESS = re.compile(r"^\[?(?:127\.|169\.254\.|::1|fe80)")
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
    """The finding, with the text of its pattern's groups, and what a special reader finds."""
    about = _about(log, lines)
    ranks, hosts = about["ranks"], about["hosts"]
    who = f" ({named(ranks)})" if ranks else f" ({', '.join(sorted(hosts)[:4])})" if hosts else ""
    words: dict[str, Any] = {key: value or "?" for key, value in match.groupdict().items()}
    if id in _READERS:
        words |= _READERS[id](log, lines)
    return finding(id, **{**about, "who": who, **words})


def _version(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    versions: dict[str, set[int]] = {}
    for line in lines:
        for m in re.finditer(r"rank (\d{1,7}) version (\d{1,9})", line.text):
            versions.setdefault(_spelled(int(m[2])), set()).add(int(m[1]))
    differ = "; ".join(f"{version} on {named(ranks)}" for version, ranks in sorted(versions.items()))
    return {"versions": differ, "ranks": _odd(versions)}


def _odd(by_version: Mapping[str, Collection[_T]]) -> list[_T]:
    """Those with the rarest version."""
    fewest = min(map(len, by_version.values()), default=0)
    return [one for those in by_version.values() if len(those) == fewest for one in those]


def _spelled(number: int) -> str:
    """22705 is 2.27.5, 2708 is 2.7.8."""
    major, minor = (number // 10000, number // 100 % 100) if number >= 10000 else (number // 1000, number // 100 % 10)
    return f"{major}.{minor}.{number % 100}"


def _connect(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    connect, host_of = dict(_RULES)["nccl-connect-failed"], log.host_of()
    matches = [(line, m) for line in lines if (m := connect.search(line.text)) is not None]
    reasons = {m["why"].strip().lower() for _, m in matches}
    to = [(log.speakers[line.speaker].host, m["to"].split("<")[0]) for line, m in matches if m["to"]]
    addresses = sorted({address for _, address in to})
    meaning = "packets are dropped or have no route: a firewall, or an interface that does not lead there"
    if any("refused" in why for why in reasons):
        meaning = "nothing listens there: that rank has ended, or announced the address of an interface that others can't reach"
    if any(re.match(r"127\.|::1|169\.254\.|172\.17\.", address) for address in addresses):
        meaning = "that address (loopback, link-local or docker's) does not lead to another host"
    return {
        "target": f" to {', '.join(addresses[:4])}" if addresses else "",
        "reasons": ", ".join(sorted(reasons)[:3]) or "no reason given",
        "meaning": meaning,
        "links": {(host, host_of(address)) for host, address in to if host},
    }


def _closed(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    ranks, _ = log.speakers_of(lines)
    named_in = ((line, re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.text)) for line in lines)
    pairs = [(log.speakers[line.speaker].host, m[1]) for line, m in named_in if m is not None]
    peers, host_of = ", ".join(sorted({peer for _, peer in pairs})[:4]), log.host_of()
    links = {(host, host_of(peer)) for host, peer in pairs if host}
    return {"peers": peers or "another rank", "noticed": named(ranks) if ranks else "this rank", "links": links}


def _interface(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    name = "NCCL_SOCKET_IFNAME"
    _, hosts = log.speakers_of(lines)
    speakers = [log.speakers[key] for key in dict.fromkeys(line.speaker for line in lines)]
    asked = sorted({speaker.facts[name] for speaker in speakers if name in speaker.facts})
    others = sorted({s.facts.get("interface", "") for s in log.speakers.values()} - {"", "lo"})
    return {
        "matching": f" that matches {name}={', '.join(asked)}" if asked else "",
        "where": f" on {', '.join(sorted(hosts)[:4])}" if hosts else "",
        "wish": f"{pasted(others[0])}  # as the other ranks do" if others else "^lo,docker,virbr",
        "evidence": [*_evidence(speakers[:2], name), *(line.line.quoted for line in lines[:SHOWN])],
    }


def _duplicate(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.text) for line in lines]
    return {"ranks": {int(number) for m in pairs if m is not None for number in m.groups()}}


_READERS: dict[str, Callable[[NcclLog, list[Warned]], dict[str, Any]]] = {
    "version-mismatch/refused": _version,
    "interface-missing/nccl": _interface,
    "nccl-duplicate-gpu": _duplicate,
    "nccl-connect-failed": _connect,
    "nccl-peer-closed": _closed,
}


def _evidence(speakers: Iterable[Speaker], *facts: str) -> list[str]:
    """The lines of these facts, as far as the speakers have them."""
    return [s.lines[fact].quoted for s in speakers for fact in facts if fact in s.lines]


def _versions(log: NcclLog) -> Iterator[DoctorFinding]:
    if any("Mismatched NCCL version" in one.text for one in log.warned):
        return
    by_version: dict[str, list[Speaker]] = {}
    for speaker in log.speakers.values():
        if "version" in speaker.facts:
            by_version.setdefault(speaker.facts["version"], []).append(speaker)
    if len(by_version) < 2:
        return
    evidence = _evidence([speakers[0] for speakers in by_version.values()], "version")
    by_hosts = {version: [s for s in speakers if s.host] for version, speakers in by_version.items()}
    by_hosts = {version: speakers for version, speakers in by_hosts.items() if speakers}
    if len(by_hosts) < 2:
        # Only rank 0 prints a version alone, once per communicator: two of them may come from two jobs, or from a restart.
        severity: Severity = "degraded" if len({s.file for speakers in by_version.values() for s in speakers}) > 1 else "note"
        yield finding("version-mismatch/logs", evidence=evidence, severity=severity, versions=", ".join(sorted(by_version)))
        return
    odd = _odd(by_hosts)
    together = any({log.speakers[key].facts.get("version") for key in c.speakers} >= set(by_hosts) for c in log.communicators.values())
    yield finding(
        "version-mismatch/log",
        ranks=[speaker.rank for speaker in odd],
        hosts=[speaker.host for speaker in odd],
        evidence=evidence,
        confidence="certain" if together else "likely",
        versions="; ".join(f"{version} on {_whom(speakers)}" for version, speakers in sorted(by_hosts.items())),
    )


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
    bound = [s for s in log.speakers.values() if "interface" in s.facts]
    wrong = [s for s in bound if _LOCAL.match(s.facts["interface"]) or _LOCAL_ADDRESS.match(s.facts["address"])]
    if not wrong or not _several_hosts(log):
        return  # within one host any interface works
    right = Counter(s.facts["interface"] for s in bound if s not in wrong)
    names = sorted({f"{s.facts['interface']} ({s.facts['address']})" for s in wrong})
    asked = next((s.facts["NCCL_SOCKET_IFNAME"] for s in wrong if "NCCL_SOCKET_IFNAME" in s.facts), "")
    wish = right.most_common(1)[0][0] if right else "^lo,docker,virbr,veth,br-"
    failed = any("onnect" in one.text and one.warning for one in log.warned)
    yield finding(
        "nccl-wrong-interface",
        ranks=[s.rank for s in wrong],
        hosts=[s.host for s in wrong],
        evidence=[*_evidence(wrong[:SHOWN], "interface"), *_evidence(wrong[:1], "NCCL_SOCKET_IFNAME")],
        confidence="certain" if failed or len({s.facts["address"] for s in wrong}) < len({s.host for s in wrong}) else "likely",
        **_using(wrong),
        names=", ".join(names[:3]),
        because=f", as set by NCCL_SOCKET_IFNAME={asked}" if asked else "",
        wish=wish,
        gloo=f"export GLOO_SOCKET_IFNAME={wish}" if right else "ip -br addr",
    )


def _using(speakers: list[Speaker]) -> dict[str, Any]:
    return {"whom": _whom(speakers), "uses": "uses" if len({s.host for s in speakers}) == 1 else "use"}


def _fallback(log: NcclLog) -> Iterator[DoctorFinding]:
    sockets = [s for s in log.speakers.values() if s.facts.get("network") == "Socket"]
    on_ib = [s for s in log.speakers.values() if s.facts.get("network", "Socket") != "Socket"]
    devices = [s for s in sockets if "ib_devices" in s.facts]
    off = [s for s in sockets if s.facts.get("NCCL_IB_DISABLE", "0") not in ("", "0") and (on_ib or devices)]
    asked = [s for s in sockets if s.facts.get("NCCL_IB_HCA") and "no_ib" in s.facts]
    reasons = ["NCCL_IB_DISABLE is set"] if off else []
    reasons += [f"there are devices ({devices[0].facts['ib_devices']})"] if devices else []
    reasons += [" ".join((*_using(on_ib).values(), on_ib[0].facts["network"]))] if on_ib else []
    reasons += [f"NCCL_IB_HCA={asked[0].facts['NCCL_IB_HCA']} names devices, but none was found"] if asked else []
    if not sockets or not reasons or not _several_hosts(log):
        return  # within one host no network is used, and a network without InfiniBand is not a fault
    evidence = [*_evidence(sockets[:2], "network"), *_evidence(off[:1], "NCCL_IB_DISABLE"), *_evidence(devices[:1], "ib_devices")]
    yield finding(
        "nccl-socket-fallback",
        ranks=[s.rank for s in sockets],
        hosts=[s.host for s in sockets],
        evidence=[*evidence, *_evidence(on_ib[:1], "network"), *_evidence(asked[:1], "NCCL_IB_HCA", "no_ib")],
        confidence="certain" if on_ib or devices else "likely",
        severity="fault" if on_ib else None,  # ranks on two networks can't communicate at all
        **_using(sockets),
        reasons="; ".join(reasons),
        unset="unset NCCL_IB_DISABLE" if off else "",
        device="docker run --device=/dev/infiniband --cap-add=IPC_LOCK …  # when in a container" if asked else "",
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
        lines = [*(communicator.started[rank] for rank in sorted(waiting)[:3]), *list(communicator.complete.values())[:2]]
        # One rank's log of many proves nothing about the others; logs of most ranks do.
        most = len(communicator.started) > 1 and len(never) <= nranks // 2
        yield finding(
            id,
            ranks=culprits if len(culprits) <= 1024 else (),
            hosts=hosts if culprits is waiting else (),
            evidence=[line.quoted for line in lines],
            confidence="likely" if most and never and not communicator.complete else "possible",
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
        evidence=_evidence(speakers[:3], "disabled"),
        pairs=f"{', '.join('-'.join(pair) for pair in pairs[:6])}{' …' if len(pairs) > 6 else ''}",
        whom=_whom(speakers),
    )
