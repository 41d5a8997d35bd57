"""Hides what must not reach the terminal: control characters and secrets."""

from __future__ import annotations

import functools
import re

from numscope.records.words import escape

SHOWN_CHARS = 400  # per line of evidence
READ_CHARS = 4000  # the rest of a line is ignored

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:Bearer|Basic)\s+[^\s,;]+|[^\s,;}\]]+)"
_NAME = (
    r"(?:[A-Z0-9_]{0,64}(?:TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|AUTH)[A-Z0-9_]{0,64}"  # as environment variables are written
    r"|(?i:[a-z0-9_\-]{0,64}(?:api_?-?key|access_?-?key|private_?-?key|secret|password|passwd|passphrase|credentials?|[_\-]token"
    r"|authorization)))"
)
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9_]){_NAME})(?P<between>[\"']?\s*(?:=|:|set by environment to|set to)\s*)(?P<value>{_VALUE})"
)
_TOKEN_ALONE = re.compile(r"(?<![A-Za-z0-9_])(?P<name>token)(?P<between>[\"']?\s*=\s*)(?P<value>" + _VALUE + ")", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SHAPES = re.compile(  # values that are secrets wherever they occur
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|sk-[A-Za-z0-9_\-]{20,}|AKIA[A-Z0-9]{12,}|xox[abp]-[\w\-]{10,}"
    r"|eyJ[\w\-]{10,600}\.[\w\-]+\.[\w\-]*)"
)
HIDDEN = "***"


def visible(text: str) -> str:
    """Text for one line of a terminal: escape sequences are removed, other control characters are spelled out."""
    return escape(_ANSI.sub("", text).replace("\t", " "))


def without_secrets(text: str) -> str:
    """Text with secrets hidden, recognized by a variable's name or by the shape of the value."""

    def hide(match: re.Match[str]) -> str:
        return f"{match['name']}{match['between']}{HIDDEN}"

    text = _ASSIGNED.sub(hide, text)
    text = _TOKEN_ALONE.sub(hide, text)
    return _SHAPES.sub(HIDDEN, _IN_URL.sub(HIDDEN, text))


@functools.lru_cache(4096)  # dumps name the same call sites again and again
def shown(text: str) -> str:
    """One line of evidence: safe for a terminal, without secrets, of limited length."""
    text = without_secrets(visible(text[:READ_CHARS].strip()))
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
