"""Redaction for reports that strangers may see: host names, addresses, user names, each replaced by the same word everywhere."""

from __future__ import annotations

import getpass
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from numscope.doctor.meet.sockets import is_loopback
from numscope.doctor.records import DoctorFinding, Examined, Verdict

_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.\-])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")  # candidates; ipaddress decides
_HARDWARE = re.compile(r"\b(?:GPU|MIG)-[0-9a-f-]{8,}|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
_HOME = re.compile(r"(/(?:home|Users|root)/?)([^/\s:'\"]*)")
_DOMAIN = r"(?:\.[A-Za-z0-9\-.]*[A-Za-z0-9])?"


def node_word(node: int) -> str:
    """The replacement for a host of the job: its node number, which its ranks know before there is a roster."""
    return f"node{node}"


def of_hosts(hosts: Iterable[str]) -> Redaction:
    """A redaction for these hosts, with or without their domains."""
    return Redaction({host: f"host-{number}" for number, host in enumerate(sorted(filter(_is_name, hosts)), 1)})


def redacted(verdict: Verdict, examined: Examined) -> tuple[Verdict, Examined]:
    """Both without names: a host of the job becomes ``node3``, any other host ``host-1``, an address ``address-1``."""
    redaction = Redaction(_words(examined), user=_user())
    text, value = redaction.text, redaction.value
    found = tuple(map(redaction.finding, verdict.findings))  # first: they are read, and addresses are numbered as they come
    roster = {rank: value(entry) for rank, entry in examined.roster.items()}
    for entry in roster.values():
        if entry.get("identity", {}).get("hostname"):  # two nodes may have the same name, but each has a number
            entry["identity"]["hostname"] = node_word(entry["identity"].get("node", 0))
    results = [replace(each, data=value(each.data), error=text(each.error), doing=text(each.doing)) for each in examined.results]
    settings = replace(examined.settings, endpoint=text(examined.settings.endpoint))
    refused, hub = value(list(examined.refused)), value(examined.hub)
    return replace(verdict, findings=found), replace(examined, settings=settings, roster=roster, results=results, refused=refused, hub=hub)


class Redaction:
    """Replaces names by words, together with their domains (``.cluster.org``), and the name of a user."""

    def __init__(self, words: Mapping[str, str], *, user: str = "") -> None:
        self._words = words
        self._addresses: dict[str, str] = {}
        names = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        self._names = re.compile(rf"(?<![A-Za-z0-9])({names}){_DOMAIN}(?![A-Za-z0-9])") if words else None
        self._user = re.compile(rf"(?<![\w-]){re.escape(user)}(?![\w-])") if len(user) > 2 and user != "root" else None

    def finding(self, finding: DoctorFinding) -> DoctorFinding:
        """A finding without names."""
        names = ("summary", "hosts", "links", "evidence", "remedy")
        return replace(finding, **{name: self.value(getattr(finding, name)) for name in names})

    def value(self, value: Any) -> Any:
        """JSON values without names, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(each) for each in value)
        return value

    def text(self, text: str) -> str:
        """A text without names."""
        if self._names is not None:
            text = self._names.sub(lambda match: self._words[match[1]], text)
        text = _HARDWARE.sub("DEVICE", text)
        text = _IPV6.sub(self._address, _IPV4.sub(self._address, text))
        text = _HOME.sub(lambda match: f"{match[1]}USER" if match[2] else match[0], text)
        return self._user.sub("USER", text) if self._user is not None else text

    def _address(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(match[0])
        except ValueError:
            return match[0]  # a time, a version, host:pid:tid
        if is_loopback(match[0]) or address.is_unspecified:
            return match[0]  # identifies nobody, and matters for the diagnosis
        return self._addresses.setdefault(str(address), f"address-{len(self._addresses) + 1}")


def _words(examined: Examined) -> dict[str, str]:
    """All host names in the observations, without domains, with their replacements."""
    words: dict[str, str] = {}
    for _, entry in sorted(examined.roster.items()):
        identity = entry.get("identity", {})
        host, node = str(identity.get("hostname", "")), identity.get("node", 0)
        if _is_name(host):
            words.setdefault(host.partition(".")[0], node_word(node))
            words[f"{host}#{node}"] = node_word(node)  # as findings distinguish hosts of the same name
    others = []
    for result in examined.results:
        others += [result.data.get("hostname", ""), result.data.get("name", {}).get("name", "")]
    others += [each.get("hostname", "") for each in examined.refused]
    others += [examined.hub.get("here", "")]
    others += [endpoint.rpartition(":")[0] for endpoint in (str(examined.hub.get("endpoint", "")), examined.settings.endpoint)]
    names = dict.fromkeys(host.partition(".")[0] for host in map(str, others) if _is_name(host))
    return words | {name: f"host-{number}" for number, name in enumerate((name for name in names if name not in words), 1)}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _is_name(host: str) -> bool:
    """Whether it identifies a host by name; addresses are replaced separately."""
    try:
        ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return host not in ("", "localhost")
    return False
