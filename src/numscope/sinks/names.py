"""Names as lines can bear them: a layer's name is the model's own and may hold anything."""

from __future__ import annotations


def one_line(name: str) -> str:
    """The name with everything that does not print escaped, so that it can neither end a line nor color a terminal."""
    return name if name.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
