"""Searches for users' regexes: the syntax and the matches of ``re``, in bounded time.

Python's ``re`` can't be interrupted, and there are regexes for which the ways that it tries double with each character of a name. The
package ``regex`` reads the same syntax, tries fewer ways, and takes a time limit.
"""

from __future__ import annotations

import functools
import math
import re
import time
from typing import Any

from numscope.records.errors import UsageError

MAX_PARTS = 100_000  # most parts of a regex with its repeats written out, as ``regex`` compiles it: some 2 s and 100 MB
MAX_S = 1.0  # of the processor, for slow searches for one regex in a row
_SLOW_S = 0.005  # a search that takes longer is slow, and one that does not gives as much back
_LEAST_REPEATS = re.compile(r"(\))?(?:\+|\{([0-9]+))")  # the repeat of a group or of anything else, and how many
_BETWEEN = re.compile(r"\(\?(?:[a-zA-Z-]*x|#)")  # white space or comments are allowed between a group and its repeat
_LITERAL_BRACE = re.compile(r"(\\.)|\{(?![0-9]*,?[0-9]*\})", re.DOTALL)  # what ``regex`` takes for a fuzzy match: ``(?:abc){e}``

Groups = tuple[str | None, ...]


@functools.lru_cache(64)
def compiled(pattern: str) -> Regex:
    """
    Raises: re.error: not a regular expression, or too large a one.
    """
    return Regex(pattern)


class Regex:
    """A regex in the syntax of ``re``."""

    def __init__(self, pattern: str) -> None:
        if _num_parts(pattern) > MAX_PARTS:
            raise re.error(f"it has more than {MAX_PARTS} parts with its repeats written out")
        import regex

        try:
            self.num_groups = re.compile(pattern).groups
            self._regex: Any = regex.compile(_LITERAL_BRACE.sub(lambda found: found[1] or r"\{", pattern))
        except (OverflowError, RecursionError, ValueError, regex.error) as error:
            raise re.error(str(error)) from None
        self._pattern = pattern
        self._left_s = MAX_S

    def search(self, text: str) -> Groups | None:
        """The leftmost match and its groups; None without a match.

        Raises: UsageError when slow searches for this regex have taken ``MAX_S`` of the processor's time together. On a busy machine a
            search may wait much longer for its turn; so what is counted is not what the clock shows.
        """
        match = None
        while self._left_s > 0:
            begun = time.thread_time()
            try:
                match, is_done = self._regex.search(text, timeout=self._left_s), True
            except TimeoutError:
                is_done = False
            took = time.thread_time() - begun
            self._left_s = min(self._left_s + (_SLOW_S if took <= _SLOW_S else -took), MAX_S) if is_done or took < self._left_s / 2 else 0.0
            if is_done:
                break
        if self._left_s <= 0:
            what = f"searching for the regular expression {self._pattern!r} takes more than {MAX_S:g} s, expected less"
            raise UsageError(f"{what}. Write it without repeats of what repeats, such as (a+)+.")
        return None if match is None else (match[0], *match.groups())


def _num_parts(pattern: str) -> int:
    """An upper bound on the number of compiled parts: a repeat of n or more is written out n + 1 times, also within another one."""
    found = [(bool(group), 1 + int(least[:9] or 1)) for group, least in _LEAST_REPEATS.findall(pattern)]
    if _BETWEEN.search(pattern):
        found = [(True, times) for _, times in found]
    return (len(pattern) + sum(times for group, times in found if not group)) * math.prod(times for group, times in found if group)
