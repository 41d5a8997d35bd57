"""Words in messages: suggestions for mistyped ones, counts and lists, and text from models and files made printable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_FEW, _MANY = 8, 24  # names that a message lists: beside a guess, and without one
_MOST_SPANS = 8  # stretches of ranks in a sentence


def closest(word: object, known: Iterable[str], most: int = 1, least: float = 0.6) -> list[str]:
    """The known words that are most like a word, best first, and none that is less like it than ``least``. Case makes no difference."""
    import difflib  # loads re

    folded = {name.lower(): name for name in known}
    return [folded[name] for name in difflib.get_close_matches(str(word).lower(), folded, most, least)]


def nearest(word: object, known: Iterable[str], most: int = 1) -> str:
    """`` Did you mean 'rms'?`` with a space before it, or nothing if no known word is like the word."""
    found = closest(word, known, most)
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""


def choices(names: Sequence[str], hint: str) -> str:
    """``one of a, b, c. Did you mean 'a'?``: names with a hint behind them; a long list is cut short, more so beside a hint."""
    most = _FEW if hint else _MANY
    return f"one of {', '.join([*names[:most], '…'] if len(names) > most + 2 else names)}.{hint}"


def one_of(word: object, known: Iterable[str], most: int = 1) -> str:
    """``choices`` with the known words that are nearest to a word."""
    names = list(known)
    return choices(names, nearest(word, names, most))


def count(number: int, what: str) -> str:
    """``1 step``, ``1,234 steps``, ``2 child processes``."""
    plural = "" if number == 1 else "es" if what.endswith(("s", "ch")) else "s"
    return f"{number:,} {what}{plural}"


def few(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """``a, b and 3 more``."""
    return separator.join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def in_bytes(number: float) -> str:
    """``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} TiB"


def spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and last of each stretch of numbers that follow each other, ascending."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def named(ranks: Iterable[int], most: int = 8) -> str:
    """``rank 3``, ``ranks 0–3, 7``, ``ranks 0, 2, 4 and 40 more``."""
    numbers = sorted(set(ranks))
    if not numbers:
        return "no rank"
    runs = spans(numbers)
    words = [str(first) if first == last else f"{first}{', ' if last == first + 1 else '–'}{last}" for first, last in runs]
    shown, left = words[:most], sum(last - first + 1 for first, last in runs[most:])
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(shown) + (f" and {left} more" if left else "")


def unspanned(stretches: Iterable[tuple[int, int]], below: int) -> tuple[int, ...]:
    """The numbers of which these are the first and last of each stretch, ascending; none that is not below a limit, none twice."""
    found: list[int] = []
    for first, last in sorted(stretches):
        found += range(max(first, found[-1] + 1 if found else 0), min(last + 1, below))
    return tuple(found)


def ranks_of(ranks: Sequence[int], num_ranks: int) -> str:
    """``all 8 ranks``, ``rank 5 of 8``, ``ranks 0-3, 5 and 7 of 8``; of many, the first ones and how many more."""
    if len(ranks) == num_ranks > 1:
        return f"all {num_ranks} ranks"
    words = [word for span in spans(ranks) for word in _span(*span)]
    shown = few(words, _MOST_SPANS) if len(words) > _MOST_SPANS else " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    return f"rank{'s' if len(ranks) > 1 else ''} {shown} of {num_ranks}"


def _span(first: int, last: int) -> list[str]:
    return [f"{first}-{last}"] if last > first + 1 else [str(number) for number in range(first, last + 1)]


def escape(text: str) -> str:
    """The text with unprintable characters escaped: it can neither end a line nor color or turn it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def without_passwords(text: str) -> str:
    """The text without the passwords of the addresses in it (``ftp://user:password@host``)."""
    if "://" not in text:
        return text
    import re

    return re.sub(r"(?<=://)([^/@\s:]*):[^/\s]*@", r"\1:[hidden]@", text)
