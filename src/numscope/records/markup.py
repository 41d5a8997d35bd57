"""HTML for notebooks: small, without scripts, in the notebook's own colors, light or dark. Whatever is no ``Markup`` is text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from numscope.records.words import escape

BAD, GOOD = "color:#d9480f;font-weight:bold", "color:#2f9e44"  # to be read on white and on black
QUIET = "opacity:.65"
LEFT = "text-align:left"


class Markup(str):
    """Markup that is shown as such."""

    __slots__ = ()


def element(name: str, *content: object, style: str = "") -> Markup:
    """An element around texts and markup."""
    inside = "".join(map(markup, content))
    return Markup(f'<{name} style="{html.escape(style)}">{inside}</{name}>' if style else f"<{name}>{inside}</{name}>")


def link(address: str, text: object) -> Markup:
    """A link that opens in a new tab."""
    return Markup(f'<a href="{html.escape(address)}" target="_blank" rel="noreferrer">{markup(text)}</a>')


def markup(content: object) -> Markup:
    """Text as markup: no character of it is read as such, and unprintable ones are escaped."""
    return content if isinstance(content, Markup) else Markup(html.escape("\n".join(map(escape, str(content).split("\n")))))


def table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> Markup:
    """Rows of cells."""
    lines = [element("tr", *(element("th", cell, style=LEFT) for cell in head))] if head else []
    lines += [element("tr", *(element("td", cell, style=LEFT) for cell in row)) for row in rows]
    return element("table", *lines)


def line(heights: Sequence[float | None], bad: Iterable[int] = (), width: int = 120, height: int = 16) -> Markup:
    """A line of heights from 0 to 1 as a small picture; a gap where there is none, a cross where something is bad."""
    step = width / max(1, len(heights))
    places = [None if y is None else (f"{(i + 0.5) * step:.1f}", f"{1 + (1 - y) * (height - 2):.1f}") for i, y in enumerate(heights)]
    paths, pen = [], "M"
    for place in places:
        paths += [f"{pen}{place[0]} {place[1]}"] if place else []
        pen = "L" if place else "M"
    crosses = "".join(f"M{min((i + 0.5) * step - 3, width - 7):.1f} 1l6 6m0 -6l-6 6" for i in bad)
    return Markup(
        f'<svg width="{width}" height="{height}" fill="none" stroke-width="1.5" style="vertical-align:middle">'
        f'<path d="M0 1H{width}" stroke="currentColor" opacity=".25"/><path d="{"".join(paths)}" stroke="currentColor"/>'
        f'<path d="{crosses}" stroke="#d9480f"/></svg>'
    )
