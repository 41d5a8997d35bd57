"""Searches for regexes in time proportional to the text's length, whatever the regex.

Python's ``re`` tries ways to match one after the other. For ``^(\\w+\\.?)+[.]fc9$`` their number doubles with each character of a name,
and a search can't be interrupted. Here each point of the regex is tried once at each place of the text: if the rest did not match from
there, it never will. Matches and groups are those of ``re``, except the groups of a repeat whose last round matched nothing (``(a*)*``).
Where few repeats stand side by side and the text is short, ``re`` itself can't try many ways, and searches.

*Source:* the parser and the single characters are Python's own (``re._parser``, private, ``sre_parse`` before 3.11); the search is that of
RE2's ``bitstate.cc``.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

MAX_POINTS = 5_000  # of a regex, with counted repeats written out
MAX_WAYS = 1_000_000  # that ``re`` may have to try: some 10 ms
_parser: Any = getattr(re, "_parser" if sys.version_info >= (3, 11) else "sre_parse")
_compiler: Any = getattr(re, "_compiler" if sys.version_info >= (3, 11) else "sre_compile")
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"})  # match in one way at most
_REFUSED = {
    "GROUPREF": "references to groups are not supported",
    "GROUPREF_EXISTS": "conditions on groups are not supported",
    "ATOMIC_GROUP": "atomic groups are not supported",
    "POSSESSIVE_REPEAT": "possessive repeats are not supported",
}

Groups = tuple[str | None, ...]
_Ends = tuple[int, ...]  # -1: not matched
_Looked = dict[tuple[int, int], "_Ends | None"]  # what was found ahead of or behind a place


@functools.lru_cache(64)
def compiled(pattern: str) -> Regex:
    """
    Raises: re.error for what is not a regex, or has parts that can't be searched for in bounded time.
    """
    return Regex(pattern)


class Regex:
    """A regex.

    Args:
        pattern: in the syntax of ``re``, without references to groups, atomic groups and possessive repeats.
    """

    def __init__(self, pattern: str) -> None:
        try:
            tree = _parser.parse(pattern)
        except (OverflowError, RecursionError) as error:
            raise re.error(str(error)) from None
        self.num_groups: int = tree.state.groups - 1
        self._plain = re.compile(pattern)
        self._choices, self._num_repeats = _ways(tree)
        self._state = tree.state
        self._points: list[tuple[str, Any, Any]] = []  # what to do, and with what
        self._add(tree, ())
        self._point("end")

    def search(self, text: str) -> Groups | None:
        """The leftmost match and its groups; None without a match.

        *Cost:* that of ``re`` for ordinary regexes and names, else about 0.2 µs a character and point of the regex.
        """
        if self._choices * (len(text) + 1) ** (self._num_repeats + 1) <= MAX_WAYS:
            match = self._plain.search(text)
            return None if match is None else (match[0], *match.groups())
        looked: _Looked = {}
        tried: set[tuple[int, int]] = set()
        for start in range(len(text) + 1):
            ends = self._match(0, text, start, tried, looked)
            if ends is not None:
                places = zip((start, *ends[1::2]), ends[0::2], strict=True)
                return tuple(text[begin:end] if end >= 0 else None for begin, end in places)
        return None

    def _match(self, first: int, text: str, start: int, tried: set[tuple[int, int]], looked: _Looked) -> _Ends | None:
        """Where the match from a point ends, then where each group begins and ends; None without a match."""
        ways: list[tuple[int, int, _Ends]] = [(first, start, (-1,) * (2 * self.num_groups))]
        while ways:
            point, place, ends = ways.pop()
            while True:
                what, one, other = self._points[point]
                point += 1
                if what == "single":
                    if (match := one(text, place)) is None:
                        break
                    place = match.end()
                elif what == "ways":
                    if (point, place) in tried:
                        break
                    tried.add((point, place))
                    ways.append((other, place, ends))
                    point = one
                elif what == "go":
                    point = one
                elif what == "group":
                    ends = (*ends[:one], place, *ends[one + 1 :])
                elif what == "end":
                    return (place, *ends)
                else:  # look ahead or behind
                    width, wanted = one
                    if (point, place) not in looked:
                        looked[point, place] = self._match(point, text, place - width, set(), looked) if place >= width else None
                    found = looked[point, place]
                    if (found is not None) != wanted:
                        break
                    if found is not None:
                        ends = tuple(new if new >= 0 else old for new, old in zip(found[1:], ends, strict=True))
                    point = other
        return None

    def _point(self, what: str, one: Any = None, other: Any = None) -> int:
        if len(self._points) >= MAX_POINTS:
            raise re.error(f"it has more than {MAX_POINTS} points with its repeats written out")
        self._points.append((what, one, other))
        return len(self._points) - 1

    def _add(self, items: Any, flags: tuple[tuple[int, int], ...]) -> None:
        """Adds the points of a part of the regex, with the flags that it has beside the whole regex's: those set and those taken away."""
        single: list[Any] = []
        for item in (*items, None):
            if item is not None and str(item[0]) in _SINGLE:
                single.append(item)
                continue
            if single:
                for add, remove in reversed(flags):
                    single = [(_parser.SUBPATTERN, (None, add, remove, _parser.SubPattern(self._state, single)))]
                self._point("single", _compiler.compile(_parser.SubPattern(self._state, single)).match)
                single = []
            if item is not None:
                self._add_part(str(item[0]), item[1], flags)

    def _add_part(self, kind: str, content: Any, flags: tuple[tuple[int, int], ...]) -> None:
        if kind == "SUBPATTERN":
            group, add, remove, inner = content
            if group is not None:
                self._point("group", 2 * group - 2)
            self._add(inner, (*flags, (add, remove)) if add or remove else flags)
            if group is not None:
                self._point("group", 2 * group - 1)
        elif kind == "BRANCH":
            ends = []
            for inner in content[1][:-1]:
                fork = self._point("ways")
                self._add(inner, flags)
                ends.append(self._point("go"))
                self._points[fork] = ("ways", fork + 1, len(self._points))
            self._add(content[1][-1], flags)
            for end in ends:
                self._points[end] = ("go", len(self._points), None)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = content
            for _ in range(least):
                self._add(inner, flags)
            forks = []
            for _ in range(1 if most == _parser.MAXREPEAT else most - least):
                forks.append(self._point("ways"))
                self._add(inner, flags)
            if most == _parser.MAXREPEAT:
                self._point("go", forks[0])
            for fork in forks:
                more = (fork + 1, len(self._points))
                self._points[fork] = ("ways", *(more if kind == "MAX_REPEAT" else reversed(more)))
        elif kind in ("ASSERT", "ASSERT_NOT"):
            direction, inner = content
            width = inner.getwidth()[0] if direction < 0 else 0
            look = self._point("look")
            self._add(inner, flags)
            self._point("end")
            self._points[look] = ("look", (width, kind == "ASSERT"), len(self._points))
        elif kind != "FAILURE":
            raise re.error(_REFUSED.get(kind, f"{kind} is not supported"))
        else:
            self._point("single", lambda text, place: None)


def _ways(items: Any) -> tuple[int, int]:
    """How many ways ``re`` may try at one place of a text of n characters: ``choices * n ** repeats``."""
    choices = repeats = 0
    for kind, content in items:
        more, again = 1, 0
        if str(kind) == "SUBPATTERN":
            more, again = _ways(content[3])
        elif str(kind) == "BRANCH":
            each = [_ways(inner) for inner in content[1]]
            more, again = sum(one for one, _ in each), max(number for _, number in each)
        elif str(kind) in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = content
            more, again = _ways(inner)
            if (more, again) != (1, 0):  # what is tried in several ways is repeated: their number may double with each character
                return MAX_WAYS + 1, 0
            more, again = (1, 0) if least == most else (2, 0) if most == 1 else (1, 1)
        elif str(kind) in ("ASSERT", "ASSERT_NOT"):
            more, again = _ways(content[1])
        choices, repeats = max(choices, 1) * more, repeats + again
    return max(choices, 1), repeats
