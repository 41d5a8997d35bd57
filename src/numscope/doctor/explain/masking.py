"""What must not be shown as it is: control characters, secrets, and on request names of hosts and addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace

from numscope.doctor.records import Finding

SHOWN_CHARS = 400  # of one line of evidence
READ_CHARS = 4000  # of which; the patterns below may take quadratic time

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:Bearer|Basic)\s+[^\s,;]+|[^\s,;}\]]+)"
_NAME = (
    r"(?:[A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH)[A-Z0-9_]*"  # as environment variables are written
    r"|(?i:[a-z0-9_\-]*(?:api_?-?key|access_?-?key|private_?-?key|secret|password|passwd|passphrase|credentials?|[_\-]token"
    r"|authorization)))"
)
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9_]){_NAME})(?P<between>[\"']?\s*(?:=|:|set by environment to|set to)\s*)(?P<value>{_VALUE})"
)
_TOKEN_ALONE = re.compile(r"(?<![A-Za-z0-9_])(?P<name>token)(?P<between>[\"']?\s*=\s*)(?P<value>" + _VALUE + ")", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SHAPES = re.compile(  # values that are secrets wherever they stand
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_\-]{20,}|AKIA[A-Z0-9]{12,}|xox[abp]-[\w\-]{10,}"
    r"|eyJ[\w\-]{10,}\.[\w\-]+\.[\w\-]*)"
)
HIDDEN = "***"

_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.\-])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")  # what may be one; ipaddress decides
_KEPT = re.compile(r"^(?:127\.\d+\.\d+\.\d+|0\.0\.0\.0|::1|::|localhost)$")  # they say something and nothing about the site


def visible(text: str) -> str:
    """Text for one line of a terminal: escape sequences are left out, other control characters are spelled."""
    text = _ANSI.sub("", text)
    text = "".join(
        c if c.isprintable() else " " if c == "\t" else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # names of files may hold lone surrogates


def without_secrets(text: str) -> str:
    """Text with the values of what looks like a secret hidden, by its name or by its shape."""

    def hide(match: re.Match[str]) -> str:
        return f"{match['name']}{match['between']}{HIDDEN}"

    text = _ASSIGNED.sub(hide, text)
    text = _TOKEN_ALONE.sub(hide, text)
    return _SHAPES.sub(HIDDEN, _IN_URL.sub(HIDDEN, text))


def shown(text: str) -> str:
    """One line of evidence: safe for a terminal, no secrets, not longer than a reader reads."""
    text = without_secrets(visible(text[:READ_CHARS].strip()))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


class Redaction:
    """Replaces hosts and addresses by numbered words, the same ones everywhere.

    Args:
        hosts: names known to be hosts'.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        names = sorted({host for host in hosts if host and not _IPV4.fullmatch(host) and not _KEPT.match(host)})
        self._hosts = {name: f"host-{number}" for number, name in enumerate(names, 1)}
        self._addresses: dict[str, str] = {}
        alternatives = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._pattern = (
            re.compile(rf"(?<![A-Za-z0-9])(?P<host>{alternatives})(?:\.[A-Za-z0-9\-.]*[A-Za-z0-9])?(?![A-Za-z0-9])") if names else None
        )

    def text(self, text: str) -> str:
        """The text without the names."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._hosts[match["host"]], text)
        return _IPV6.sub(self._address, _IPV4.sub(self._address, text))

    def finding(self, finding: Finding) -> Finding:
        """The finding without the names."""
        return replace(
            finding,
            summary=self.text(finding.summary),
            hosts=tuple(map(self.text, finding.hosts)),
            links=tuple((self.text(a), self.text(b)) for a, b in finding.links),
            evidence=tuple(map(self.text, finding.evidence)),
            remedy=tuple(map(self.text, finding.remedy)),
        )

    def _address(self, match: re.Match[str]) -> str:
        address = match[0]
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return address  # a time, a version, host:pid:tid
        if _KEPT.match(address):
            return address
        return self._addresses.setdefault(address, f"address-{len(self._addresses) + 1}")
