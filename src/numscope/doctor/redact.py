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


class Redaction:
    """The words to replace, gathered from what was examined.

    Args:
        user: name of the user; "" asks the system.
    """

    def __init__(self, examined: Examined, user: str = "") -> None:
        hosts: list[str] = []
        for _, entry in sorted(examined.roster.items()):
            hosts.append(str(entry.get("identity", {}).get("hostname", "")))
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
        self._words: dict[str, str] = {}
        for host in hosts:
            short = host.partition(".")[0]
            if host and not _is_address(host) and host not in ("localhost",) and host not in self._words:
                word = self._words.get(short) or f"host-{len(set(self._words.values())) + 1}"
                self._words[host] = self._words[short] = word
        try:
            self._user = user or getpass.getuser()
        except (KeyError, OSError):
            self._user = ""
        self._addresses: dict[str, str] = {}
        names = sorted(self._words, key=len, reverse=True)
        self._names = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-])") if names else None

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
            roster=self.value(examined.roster),
            results=results,
            refused=self.value(list(examined.refused)),
            hub=self.value(examined.hub),
        )

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


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    return True


def _finding(values: Mapping[str, Any]) -> Finding:
    return replace(from_json(Finding, values), links=tuple((str(one), str(other)) for one, other in values["links"]))
