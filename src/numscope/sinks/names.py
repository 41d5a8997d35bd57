"""Names as files and lines can bear them: a layer's name is the model's own and may hold anything."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[^\w.\-]", re.ASCII)
MAX_LENGTH = 128


def one_line(name: str) -> str:
    """The name with everything that does not print escaped, so that it can neither end a line nor color a terminal."""
    return name if name.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)


def file_name(name: str) -> str:
    """One path component made of a name: letters, digits, ``_``, ``-`` and inner dots stay, all else becomes ``%`` and hexadecimal digits.

    Different names give different components, none is empty, ``.`` or ``..``, hidden, or longer than ``MAX_LENGTH`` (longer ones end in
    their own hash).
    """
    escaped = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass")), name)
    if not escaped or escaped.startswith("."):
        escaped = f"%2E{escaped[1:]}" if escaped else "%"
    if len(escaped) > MAX_LENGTH:
        import hashlib

        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        escaped = f"{escaped[: MAX_LENGTH - 17]}~{digest}"
    return escaped
