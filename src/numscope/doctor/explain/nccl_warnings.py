"""What NCCL's warnings mean, by the patterns in findings.yaml; some say more, which is read here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from numscope.doctor.explain.masking import shown
from numscope.doctor.explain.messages import PATTERNS
from numscope.doctor.explain.nccl_log import NcclLog, Warned
from numscope.doctor.findings import TABLE, finding, named, pasted
from numscope.doctor.records import Finding

SHOWN = 6
_RULES = [(id, re.compile(row["when"])) for id, row in TABLE.items() if "when" in row]  # the first one that matches takes a message


def explain_warnings(log: NcclLog) -> list[Finding]:
    """Findings of the warnings; of several patterns for one finding the first counts."""
    taken: dict[str, list[Warned]] = {}
    unknown: list[Warned] = []
    for one in log.warned:
        id = next((id for id, pattern in _RULES if pattern.search(one.said) is not None), "")
        if id:
            taken.setdefault(id, []).append(one)
        elif one.warning and not PATTERNS["echo of another warning"].search(one.said):
            unknown.append(one)
    unfinished = any(set(c.started) - set(c.complete) for c in log.communicators.values())
    found: dict[str, Finding] = {}
    for id, pattern in _RULES:
        lines = sorted(taken.get(id, ()), key=lambda line: not line.warning)
        if id == "nccl-connect-failed" and not unfinished and not any(line.warning for line in lines):
            continue  # it tried again and succeeded
        if lines and id.partition("/")[0] not in found:
            match = pattern.search(lines[0].said)
            assert match is not None
            found[id.partition("/")[0]] = _explain(id, log, lines, match)
    if unknown:
        often = Counter(re.sub(r"0x[0-9a-f]+|\d+", "#", line.said) for line in unknown).most_common(1)[0][0]
        found["nccl-warning"] = finding("nccl-warning", **_about(log, unknown), count=len(unknown), often=shown(often)[:160])
    return list(found.values())


def _about(log: NcclLog, lines: list[Warned]) -> dict[str, Any]:
    """The ranks and hosts that logged these lines, and the lines."""
    ranks, hosts = log.speaking(lines)
    return {"ranks": ranks, "hosts": hosts, "evidence": [line.line.quoted for line in lines[:SHOWN]]}


def _explain(id: str, log: NcclLog, lines: list[Warned], match: re.Match[str]) -> Finding:
    """The finding, with what its pattern's groups hold or a reader of its own has found."""
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
        for m in re.finditer(r"rank (\d{1,7}) version (\d{1,9})", line.said):
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
        if (m := connect.search(line.said)) is None:
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
    ranks, _ = log.speaking(lines)
    named_in = ((line, re.search(r"(?:remote peer|recv from|send to) ([\w.:\-]+)<\d+>", line.said)) for line in lines)
    pairs = [(log.speakers[line.speaker].host, m[1]) for line, m in named_in if m is not None]
    peers, host_of = {peer for _, peer in pairs}, log.host_of()
    links = {(host, host_of(peer)) for host, peer in pairs if host}
    told = ", ".join(sorted(peers)[:4]) or "another rank"
    return "nccl-peer-closed", {"peers": told, "noticed": named(ranks) if ranks else "this rank", "links": links}


def _interface(log: NcclLog, lines: list[Warned]) -> tuple[str, dict[str, Any]]:
    name = "NCCL_SOCKET_IFNAME"
    _, hosts = log.speaking(lines)
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
    pairs = [re.search(r"rank (\d{1,7}) and rank (\d{1,7})", line.said) for line in lines]
    return "nccl-duplicate-gpu", {"ranks": {int(number) for m in pairs if m is not None for number in m.groups()}}


_READERS: dict[str, Callable[[NcclLog, list[Warned]], tuple[str, dict[str, Any]]]] = {
    "version-mismatch/warned": _version,
    "interface-missing/warned": _interface,
    "nccl-duplicate-gpu": _duplicate,
    "nccl-connect-failed": _connect,
    "nccl-peer-closed": _closed,
}
