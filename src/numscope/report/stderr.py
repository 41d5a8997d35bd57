"""Prints to stderr, and finds out whether somebody can answer a prompt."""

from __future__ import annotations

import io
import os
import sys

from numscope.records.faults import ours, suppress


def say(text: str) -> None:
    """Print to stderr. If there is none, or it can't be written to, nothing happens: that must not end a training or lose a finding."""
    stream = sys.stderr
    if stream is not None:  # it is None in a process that was started with it closed, and print would take stdout
        with suppress(OSError, ValueError):  # its reader has gone, its disk is full; the script has closed it
            if stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper) and os.name == "posix":
                stream.flush()
                data = f"{text}\n".encode(stream.encoding, stream.errors or "strict")
                while data:  # not through the stream: what it can't write it keeps, and then Python ends with a status of 120
                    data = data[os.write(stream.fileno(), data) :]
            else:
                stream.write(f"{text}\n")  # one write, unlike print's to an unbuffered stream, which ranks share
                stream.flush()


def marked(text: str) -> str:
    """The text in bold yellow where stderr is a terminal that wants colors."""
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
            return f"\x1b[1;33m{text}\x1b[0m"
    return text


def has_terminal() -> bool:
    """Whether somebody can answer a prompt."""
    try:
        return sys.stdin is not None and sys.stdin.isatty()
    except ours(OSError, ValueError, AttributeError):
        return False
