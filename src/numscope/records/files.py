"""Files that readers find whole, in their old state or in their new one."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

MAX_JSON_BYTES = 32 << 20
MAX_JSON_DEPTH = 64

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE})
_AWAY = frozenset({errno.EFBIG, errno.EROFS, errno.ENOENT})


def may_come_back(error: BaseException, *, was_there: bool) -> bool:
    """Whether a file could not be written for now: its disk is full or away.

    Args:
        error: an OSError, or what was raised while one was handled.
        was_there: the file had been written before, so that its name is not at fault.
    """
    cause = error if isinstance(error, OSError) else error.__context__
    return isinstance(cause, OSError) and cause.errno in (_FULL | _AWAY if was_there else _FULL)


def write_atomically(path: str | os.PathLike[str], data: str | bytes) -> None:
    """Write a file whole, in place of one that may stand there.

    Args:
        path: in a folder that exists.
        data: text is written as UTF-8, with its line ends as they are.

    Raises:
        OSError: the file cannot be written; the one that stood there is untouched.
        UnicodeEncodeError: the text holds a lone surrogate; likewise.
    """
    content = data.encode() if isinstance(data, str) else data
    with replacing(path) as aside, open(aside, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_where_asked(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that the user has named. What stands there is written into, not replaced: a link's target, a pipe, a device, a file.

    Raises: OSError: it cannot be written; also a pipe that nobody reads.
    """
    if not os.path.lexists(path):
        write_atomically(path, data)
        return
    given = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o666)
    os.set_blocking(given, True)
    with open(given, "wb") as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """The name of a file to write in place of ``path``: it is renamed when the block ends, and deleted if the block raises.

    It stands in the same folder as ``.<name>.<random>.tmp``: readers of whole folders pass over names with a dot, and ranks on several
    machines may share the folder and a process id.
    """
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name[:50]}.{os.urandom(8).hex()}.tmp")  # file systems allow 255 bytes
    try:
        yield aside
        os.replace(aside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside)


def read_json(path: str | os.PathLike[str]) -> Any:
    """The values in a JSON file that others may have written; links are not followed. Integers of more than 18 digits come as floats.

    Raises:
        OSError: the file can't be opened, or is a link.
        ValueError: it is not a regular file, larger than 32 MiB, or not JSON of bounded depth.
    """
    return parse_json(read_bytes(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of at most 32 MiB; links are not followed. Raises: see ``read_json``."""
    # Without blocking: nobody may ever write to a pipe.
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("not a regular file")
        data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"larger than {MAX_JSON_BYTES >> 20} MiB")
    return data


def parse_json(data: bytes) -> Any:
    """The values in JSON. Raises: ValueError: see ``read_json``."""
    try:
        values = json.loads(data, parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH:
        return values
    level = [values]
    for _ in range(MAX_JSON_DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = list(itertools.chain.from_iterable(inner))
    if level:
        raise ValueError("nested too deeply")
    return values
