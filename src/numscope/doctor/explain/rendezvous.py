"""Failures of ranks to meet: torch's store and sockets, torchrun's rendezvous, gloo's connections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from numscope.doctor.explain.patterns import MatchedLine, Messages
from numscope.doctor.findings import capital, finding, named, pasted
from numscope.doctor.records import DoctorFinding

SHOWN = 4

_PORT = re.compile(r"port: (?P<a>\d+)|\]?:(?P<b>\d+) \(errno|Port (?P<c>\d+)|\[[^\]]{0,64}\]:(?P<d>\d+)")


def hosts_sought(messages: Messages) -> set[str]:
    """Names of hosts to which connections were attempted."""
    return {seen.match["host"] for kind in ("unreachable", "refused", "name") for seen in messages.of(kind) if seen.match["host"]}


def explain_rendezvous(messages: Messages, *, ended: set[int], several_hosts: bool) -> Iterator[DoctorFinding]:
    """Findings of the messages; ``ended`` are the ranks that the launcher terminated together with others, without their own error."""
    if lines := messages.of("in use"):
        port = next((next(g for g in m.groups() if g) for s in lines if (m := _PORT.search(s.line.text)) is not None), "")
        yield _found("port-in-use", lines, port=port or "of the rendezvous", number=port or 29500)
    yield from _names(messages.of("name"))
    yield from _unreachable(messages)
    yield from _late(messages)
    if lines := messages.of("interface"):
        names = sorted({s.match["name"] or s.match["address"] for s in lines})
        yield _found("interface-missing/gloo", lines, names=", ".join(names))
    yield from _gloo(messages.of("mesh"), messages.of("loopback"), several_hosts)
    if lines := [s for s in messages.of("waited") if s.rank >= 0] or messages.of("waited"):
        waiting = {s.rank for s in lines if s.rank >= 0}
        who = capital(named(waiting)) if waiting else "A rank"
        site = next((f" at {s.site}" for s in lines if s.site), "")
        what = f"{who} waited {int(lines[0].match['after']) / 1000:g} s in a gloo collective{site}"
        late = ended - waiting if waiting else set()
        yield _found("rank-behind/gloo", lines, ranks=late, what=what) if late else _found("gloo-timeout", lines, what=what)
    if lines := messages.of("closed"):
        peers = ", ".join(sorted({s.match["peer"] for s in lines if s.match["peer"]})[:3])
        yield _found("gloo-peer-closed", lines, peers=f" ({peers})" if peers else "")


def _names(lines: list[MatchedLine]) -> Iterator[DoctorFinding]:
    families: dict[str, set[str]] = {}
    for s in lines:
        families.setdefault(s.match["host"] or "", set()).add(s.match["family"])
    unresolved = sorted(host for host, kinds in families.items() if len(kinds) > 1)  # IPv6 alone is common and harmless
    if unresolved or any(not s.match["host"] and "c10d" in s.line.text for s in lines):
        name = (unresolved or ["NAME"])[0]
        words = {"what": ", ".join(unresolved) or "A host name", "name": pasted(name), "entry": pasted(f"ADDRESS {name}")}
        yield _found("name-unresolved/log", lines, ranks=(), hosts=unresolved, **words)


def _unreachable(messages: Messages) -> Iterator[DoctorFinding]:
    refused = messages.of("refused")
    lines = messages.of("unreachable") or (refused if messages.of("store") or messages.of("rendezvous") else [])
    if not lines:
        return
    targets = sorted({f"{s.match['host']}:{s.match['port']}" for s in lines})
    why = "there is no answer: the address is wrong, a firewall drops packets, or the first node has not started"
    if any("refused" in s.line.text for s in refused):
        why = "the connection is refused: nothing listens there (yet), or the port is wrong"
    words = {"targets": ", ".join(targets[:3]), "target": " ".join(map(pasted, targets[0].rpartition(":")[::2]))}
    evidence = [s.line.quoted for s in (*lines[:SHOWN], *refused[:1])]
    hosts = [s.match["host"] for s in lines]
    yield _found("rendezvous-unreachable", lines, hosts=hosts, evidence=evidence, why=why, endpoint=pasted(targets[0]), **words)


def _late(messages: Messages) -> Iterator[DoctorFinding]:
    if lines := messages.of("joined"):
        joined, of = max((int(s.match["came"]), int(s.match["of"])) for s in lines)
        yield _found("rendezvous-timeout/some", lines, ranks=(), joined=joined, of=of)
    keys = ((s, re.search(r"/cpu//\d+/(\d{1,7})\b", s.match["keys"])) for s in messages.of("key"))  # gloo's key of each rank's address
    never = [(s, int(m[1])) for s, m in keys if m is not None]
    never += [(s, int(s.match["root"])) for s in messages.of("unique id")]
    if never:
        yield _found("rendezvous-timeout/ranks", [s for s, _ in never], ranks={rank for _, rank in never})
    lines = messages.of("rendezvous") or messages.of("key")
    if lines and not never and not messages.of("joined") and not messages.of("unreachable"):
        yield _found("rendezvous-timeout", lines, ranks=())


def _gloo(mesh: list[MatchedLine], loopback: list[MatchedLine], several_hosts: bool) -> Iterator[DoctorFinding]:
    if mesh:
        local = bool(loopback) or any("remote=[127." in s.line.text or "remote=[::1" in s.line.text for s in mesh)
        because = "a rank's address could not be reached, or a rank ended meanwhile"
        if local:
            because = "a rank announced its loopback address because its host's name resolves to it"
        evidence = [s.line.quoted for s in (*mesh[:SHOWN], *loopback[:1])]
        yield _found("gloo-connect-failed", mesh, evidence=evidence, confidence="likely" if local else "possible", because=because)
    elif loopback:
        yield _found("name-resolves-to-loopback/log", loopback, severity="fault" if several_hosts else "note")


def _found(id: str, lines: list[MatchedLine], **more: Any) -> DoctorFinding:
    """A finding about the ranks that logged these lines."""
    return finding(id, **{"ranks": [s.rank for s in lines], "evidence": [s.line.quoted for s in lines[:SHOWN]], **more})
