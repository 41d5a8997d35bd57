"""Alerts as a terminal gets them: three short lines on one that somebody reads, one line elsewhere; repeats take less."""

from __future__ import annotations

import shutil
import sys
import textwrap

from numscope.records.alert import Alert
from numscope.records.faults import suppress
from numscope.records.words import count, escape
from numscope.report.stderr import marked

NUM_WHOLE = 3  # alerts of one rule with one advice; of later ones the fourth, the eighth and so on stand for the rest
_HEAD, _INDENT = "numscope: alert:", "    "


class AlertLines:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}  # by rule and advice

    def text(self, alert: Alert, who: str = "") -> str | None:
        """What is to be printed of an alert; None: nothing, as it is folded into a later one.

        Args:
            who: the ranks that have it.
        """
        key = alert.rule, alert.advice
        before = self._told[key] = self._told.get(key, -1) + 1
        if before >= NUM_WHOLE and (before + 1) & before:  # no power of two
            return None
        folded = before // 2 if before > NUM_WHOLE else 0
        more = f" (and {count(folded, 'alert')} of this rule before it)" if folded else ""
        place = " ".join(filter(None, (alert.layer, alert.tensor)))
        when = f"step {alert.step}{f', {who}' if who else ''}"
        head = escape(f"{when}: {alert.rule}{': ' if place else ''}{place}{more}")
        said = [alert.text] if before else [alert.text, alert.advice]
        told = [escape(one) for one in said if one]
        if not _is_read():
            return f"{_HEAD} {': '.join(filter(None, (head, ' '.join(told))))}"
        wraps = textwrap.TextWrapper(
            max(40, shutil.get_terminal_size().columns - 1),
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        return "\n".join([f"{marked(_HEAD)} {head}", *map(wraps.fill, told)])


def _is_read() -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return sys.stderr.isatty()
    return False
