"""Findings from NCCL's log: its warnings, by the patterns in findings.yaml; versions, interfaces, network and missing ranks, by facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.nccl_log import NcclLog, Speaker, Warned
from numscope.doctor.explain.patterns import PATTERNS
from numscope.doctor.findings import TABLE, capital, finding, listed, named, pasted
from numscope.doctor.records import DoctorFinding, Severity

_T = TypeVar("_T")
MAX_MEMBERS = 1 << 22  # ranks of all communicators that are looked at
_LOCAL = re.compile(r"^(?:lo|docker\d*|virbr\d*|br-\w+|veth\w*|cni\d*|flannel[\w.]*|podman\d*|lxcbr\d*|lxdbr\d*)$")
_LOCAL_ADDRESS = re.compile(r"^\[?(?:127\.|169\.254\.|::1|fe80)")
SHOWN = 6
_RULES = [(id, re.compile(row["when"])) for id, row in TABLE.items() if "when" in row]  # the first one that matches takes a message


def explain_nccl(log: NcclLog) -> list[DoctorFinding]:
    """Findings of one job's NCCL log lines."""
    return [*_warnings(log), *_versions(log), *_interfaces(log), *_fallback(log), *_missing(log), *_p2p(log)]


def _warnings(log: NcclLog) -> Iterator[DoctorFinding]:
    """Findings of the warnings; of several patterns for one finding the first counts."""
    taken: dict[str, list[Warned]] = {}
    unknown: list[Warned] = []
    for one in log.warned:
        id = next((id for id, pattern in _RULES if pattern.search(one.text) is not None), "")
        if id:
            taken.setdefault(id, []).append(one)
        elif one.warning and not PATTERNS["echo of another warning"].search(one.text):
            unknown.append(one)
    unfinished = any(communicator.waiting for communicator in log.communicators.values())
    found = set()
    for id, pattern in _RULES:
        lines = sorted(taken.get(id, ()), key=lambda line: not line.warning)
        if not lines or (kind := id.partition("/")[0]) in found:
            continue
        if id == "nccl-connect-failed" and not unfinished and not lines[0].warning:
            continue  # it tried again and succeeded
        found.add(kind)
        match = pattern.search(lines[0].text)
        words: dict[str, Any] = {key: value or "?" for key, value in match.groupdict().items()} if match else {}
        yield finding(id, **{**_logged(lines), **words, **(_READERS[id](log, lines) if id in _READERS else {})})
    if unknown:
        often = Counter(re.sub(r"0x[0-9a-f]+|\d+", "#", line.text) for line in unknown).most_common(1)[0][0]
        yield finding("nccl-warning", **_logged(unknown), count=len(unknown), often=shown(often)[:160])


def _logged(lines: list[Warned]) -> dict[str, Any]:
    """The ranks and hosts that logged these lines, and the lines."""
    about = _by(line.speaker for line in lines)
    who = named(about["ranks"]) if about["ranks"] else about["whom"]
    return {**about, "who": f" ({who})" if who else "", "evidence": [line.line.quoted for line in lines[:SHOWN]]}


def _by(speakers: Iterable[Speaker]) -> dict[str, Any]:
    """The ranks and hosts that a finding is about, with words for them."""
    speakers = list(speakers)
    ranks, hosts = {s.rank for s in speakers if s.rank >= 0}, sorted({s.host for s in speakers if s.host})
    whom = listed(hosts, 5) or (named(ranks) if ranks else "")
    return {"ranks": ranks, "hosts": hosts, "whom": whom, "uses": "use" if len(hosts) > 1 else "uses"}


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
    matches = [(line.speaker.host, m) for line in lines if (m := connect.search(line.text)) is not None]
    reasons = {m["why"].strip().lower() for _, m in matches}
    to = [(host, m["to"].split("<")[0]) for host, m in matches if m["to"]]
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
    ranks = {line.speaker.rank for line in lines} - {-1}
    named_in = ((line.speaker.host, re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.text)) for line in lines)
    pairs = [(host, m[1]) for host, m in named_in if m is not None]
    peers, host_of = ", ".join(sorted({peer for _, peer in pairs})[:4]), log.host_of()
    links = {(host, host_of(peer)) for host, peer in pairs if host}
    return {"peers": peers or "another rank", "noticed": named(ranks) if ranks else "this rank", "links": links}


def _interface(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    name = "NCCL_SOCKET_IFNAME"
    speakers = list(dict.fromkeys(line.speaker for line in lines))
    hosts = listed(sorted({s.host for s in speakers if s.host}), 4)
    asked = sorted({speaker.facts[name] for speaker in speakers if name in speaker.facts})
    others = sorted({s.facts.get("interface", "") for s in log.speakers.values()} - {"", "lo"})
    return {
        "matching": f" that matches {name}={', '.join(asked)}" if asked else "",
        "where": f" on {hosts}" if hosts else "",
        "wish": f"{pasted(others[0])}  # as the other ranks do" if others else "^lo,docker,virbr",
        "evidence": [*_evidence(speakers[:2], name), *(line.line.quoted for line in lines[:SHOWN])],
    }


def _duplicate(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.text) for line in lines]
    return {"ranks": {int(number) for m in pairs if m is not None for number in m.groups()}}


# By finding, what reads more from its lines: words for its text.
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
    evidence = _evidence([speakers[0] for speakers in by_version.values()], "version")
    by_hosts = {version: hosted for version, speakers in by_version.items() if (hosted := [s for s in speakers if s.host])}
    if len(by_hosts) > 1:
        versions = "; ".join(f"{version} on {_by(speakers)['whom']}" for version, speakers in sorted(by_hosts.items()))
        yield finding("version-mismatch/log", **_by(_odd(by_hosts)), evidence=evidence, versions=versions)
    elif len(by_version) > 1:
        # Only rank 0 prints a version alone, once per communicator: two of them may come from two jobs, or from a restart.
        severity: Severity = "degraded" if len({s.file for speakers in by_version.values() for s in speakers}) > 1 else "note"
        yield finding("version-mismatch/logs", evidence=evidence, severity=severity, versions=", ".join(sorted(by_version)))


def _several_hosts(log: NcclLog) -> bool:
    return len(log.hosts()) > 1 or any(  # or the communicator has ranks that this host does not
        c.started and len({speaker.host for speaker in c.speakers}) == 1 and c.nranks > max(len(c.started), 16)
        for c in log.communicators.values()
    )


def _interfaces(log: NcclLog) -> Iterator[DoctorFinding]:
    bound = [s for s in log.speakers.values() if "interface" in s.facts]
    wrong = [s for s in bound if _LOCAL.match(s.facts["interface"]) or _LOCAL_ADDRESS.match(s.facts["address"])]
    if not wrong or not _several_hosts(log):
        return  # within one host any interface works
    right = Counter(s.facts["interface"] for s in bound if s not in wrong)
    asked = next((s.facts["NCCL_SOCKET_IFNAME"] for s in wrong if "NCCL_SOCKET_IFNAME" in s.facts), "")
    wish = right.most_common(1)[0][0] if right else "^lo,docker,virbr,veth,br-"
    failed = any("onnect" in one.text and one.warning for one in log.warned)
    yield finding(
        "nccl-wrong-interface",
        **_by(wrong),
        evidence=[*_evidence(wrong[:SHOWN], "interface"), *_evidence(wrong[:1], "NCCL_SOCKET_IFNAME")],
        confidence="certain" if failed or len({s.facts["address"] for s in wrong}) < len({s.host for s in wrong}) else "likely",
        names=", ".join(sorted({f"{s.facts['interface']} ({s.facts['address']})" for s in wrong})[:3]),
        because=f", as set by NCCL_SOCKET_IFNAME={asked}" if asked else "",
        wish=wish,
        gloo=f"export GLOO_SOCKET_IFNAME={wish}" if right else "ip -br addr",
    )


def _fallback(log: NcclLog) -> Iterator[DoctorFinding]:
    sockets = [s for s in log.speakers.values() if s.facts.get("network") == "Socket"]
    on_ib = [s for s in log.speakers.values() if s.facts.get("network", "Socket") != "Socket"]
    devices = [s for s in sockets if "ib_devices" in s.facts]
    off = [s for s in sockets if s.facts.get("NCCL_IB_DISABLE", "0") not in ("", "0") and (on_ib or devices)]
    asked = [s for s in sockets if s.facts.get("NCCL_IB_HCA") and "no_ib" in s.facts]
    reasons = ["NCCL_IB_DISABLE is set"] if off else []
    reasons += [f"there are devices ({devices[0].facts['ib_devices']})"] if devices else []
    reasons += ["{whom} {uses} {network}".format(**_by(on_ib), network=on_ib[0].facts["network"])] if on_ib else []
    reasons += [f"NCCL_IB_HCA={asked[0].facts['NCCL_IB_HCA']} names devices, but none was found"] if asked else []
    if not sockets or not reasons or not _several_hosts(log):
        return  # within one host no network is used, and a network without InfiniBand is not a fault
    evidence = [*_evidence(sockets[:2], "network"), *_evidence(off[:1], "NCCL_IB_DISABLE"), *_evidence(devices[:1], "ib_devices")]
    yield finding(
        "nccl-socket-fallback",
        **_by(sockets),
        evidence=[*evidence, *_evidence(on_ib[:1], "network"), *_evidence(asked[:1], "NCCL_IB_HCA", "no_ib")],
        confidence="certain" if on_ib or devices else "likely",
        severity="fault" if on_ib else None,  # ranks on two networks can't communicate at all
        reasons="; ".join(reasons),
        unset="unset NCCL_IB_DISABLE" if off else "",
        device="docker run --device=/dev/infiniband --cap-add=IPC_LOCK …  # when in a container" if asked else "",
    )


def _missing(log: NcclLog) -> Iterator[DoctorFinding]:
    left = MAX_MEMBERS
    for (name, nranks), communicator in log.communicators.items():
        started, waiting, complete = communicator.started, communicator.waiting, communicator.complete
        if not waiting or nranks > left:
            continue  # no starts in the log (older NCCL), or all are complete
        left -= nranks
        never = set(range(nranks)) - started.keys() - complete.keys()
        id, culprits = "nccl-missing-ranks", waiting
        if not complete:
            id, culprits = (f"{id}/never", never) if never else (f"{id}/none", waiting)
        lines = [*(started[rank] for rank in sorted(waiting)[:3]), *list(complete.values())[:2]]
        # One rank's log of many proves nothing about the others; logs of most ranks do.
        most = len(started) > 1 and len(never) <= nranks // 2
        yield finding(
            id,
            ranks=culprits if len(culprits) <= 1024 else (),
            hosts={speaker.host for speaker in communicator.speakers} if culprits is waiting else (),
            evidence=[line.quoted for line in lines],
            confidence="likely" if most and never and not complete else "possible",
            who=capital(named(culprits)),
            whole=f"the communicator of {nranks} ranks" + (f" ({name})" if name else ""),
            did=named(complete),
            waiting=f"{named(waiting)} wait{'s' if len(waiting) == 1 else ''}",
            nranks=nranks,
            ranks_named=named(culprits),
        )


def _p2p(log: NcclLog) -> Iterator[DoctorFinding]:
    speakers = [s for s in log.speakers.values() if s.disabled]
    if speakers:
        pairs = listed(sorted({"-".join(pair) for s in speakers for pair in s.disabled}))
        yield finding("gpu-p2p-disabled", **_by(speakers), evidence=_evidence(speakers[:3], "disabled"), pairs=pairs)
