"""A report to show to strangers: host names, addresses and user names replaced, each by the same word everywhere."""

from __future__ import annotations

import getpass
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numscope.doctor.records import Examined, Finding, Verdict, from_json, to_json

_ADDRESS = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?:%\w+)?)(?![\w:])")
_HARDWARE = re.compile(r"\b(?:GPU|MIG)-[0-9a-f-]{8,}|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
_HOME = re.compile(r"(/(?:home|Users|root)/?)([^/\s:'\"]*)")


def node_word(node: int) -> str:
    """What a host of the job is called in place of its name: by its node's number, which its ranks know before there is a roster."""
    return f"node{node}"


class Redaction:
    """The words to replace, gathered from what was examined: a host of the job becomes ``node3``, any other name ``host-1``.

    Args:
        user: name of the user; "" asks the system.
    """

    def __init__(self, examined: Examined, user: str = "") -> None:
        self._words: dict[str, str] = {}
        for _, entry in sorted(examined.roster.items()):
            identity = entry.get("identity", {})
            host, word = str(identity.get("hostname", "")), node_word(identity.get("node", 0))
            if _is_name(host):
                self._know(host, word)
                self._words[f"{host}#{identity.get('node', 0)}"] = word  # of hosts of one name, as findings tell them apart
        hosts: list[str] = []
        for result in examined.results:
            hosts.append(str(result.data.get("hostname", "")))
            for key in ("name", "master"):
                hosts.append(str((result.data.get(key) or {}).get("name", "")) if isinstance(result.data.get(key), Mapping) else "")
        hosts += [str(each.get("hostname", "")) for each in examined.refused]
        hosts += [
            str(examined.hub.get("here", "")),
            str(examined.hub.get("endpoint", "")).rpartition(":")[0],
            examined.settings.endpoint.rpartition(":")[0],
        ]
        others = 0
        for host in hosts:
            if _is_name(host) and host not in self._words:
                known = host.partition(".")[0] in self._words
                others += not known
                self._know(host, f"host-{others}")
        try:
            self._user = user or getpass.getuser()
        except (KeyError, OSError):
            self._user = ""
        self._addresses: dict[str, str] = {}
        names = sorted(self._words, key=len, reverse=True)
        self._names = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-])") if names else None

    def _know(self, host: str, word: str) -> None:
        """A host's word, the same with and without its domain."""
        short = host.partition(".")[0]
        self._words[host] = self._words.setdefault(short, word)

    def applied(self, verdict: Verdict, examined: Examined) -> tuple[Verdict, Examined]:
        """Both with all words replaced."""
        findings = tuple(_finding(self.value(to_json(each))) for each in verdict.findings)
        settings = replace(examined.settings, endpoint=self.text(examined.settings.endpoint))
        results = [
            replace(result, data=self.value(result.data), error=self.text(result.error), doing=self.text(result.doing))
            for result in examined.results
        ]
        return replace(verdict, findings=findings), replace(
            examined,
            settings=settings,
            roster={rank: self._entry(entry) for rank, entry in examined.roster.items()},
            results=results,
            refused=self.value(list(examined.refused)),
            hub=self.value(examined.hub),
        )

    def _entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = self.value(entry)
        if told.get("identity", {}).get("hostname"):  # two nodes may have one name, and each has a number
            told["identity"] = {**told["identity"], "hostname": node_word(told["identity"].get("node", 0))}
        return told

    def value(self, value: Any) -> Any:
        """JSON values with all words replaced, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key) if isinstance(key, str) else key: self.value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.value(each) for each in value)
        return value

    def text(self, text: str) -> str:
        """A text with all words replaced."""
        if self._names is not None:
            text = self._names.sub(lambda match: self._words[match.group()], text)
        text = _HARDWARE.sub("DEVICE", text)
        text = _ADDRESS.sub(lambda match: self._address(match.group()), text)
        text = _HOME.sub(lambda match: f"{match.group(1)}USER" if match.group(2) else match.group(), text)
        if len(self._user) > 2 and self._user != "root":
            text = re.sub(rf"(?<![\w-]){re.escape(self._user)}(?![\w-])", "USER", text)
        return text

    def _address(self, word: str) -> str:
        if not _is_address(word):
            return word
        address = ipaddress.ip_address(word.partition("%")[0])
        if address.is_loopback or address.is_unspecified:
            return word  # says nothing of anybody, and much of the fault
        return self._addresses.setdefault(str(address), f"address-{len(self._addresses) + 1}")


def _is_name(host: str) -> bool:
    """Whether it says who somebody is; addresses have words of their own."""
    return host not in ("", "localhost") and not _is_address(host)


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    return True


def _finding(values: Mapping[str, Any]) -> Finding:
    return replace(from_json(Finding, values), links=tuple((str(one), str(other)) for one, other in values["links"]))
