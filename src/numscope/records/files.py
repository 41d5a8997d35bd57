"""Files that readers find whole, in their old state or in their new one."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from numscope.records.faults import ours, suppress
from numscope.records.words import closest

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


def nearest_path(path: str, is_meant: Callable[[str], bool] = os.path.isfile) -> str:
    """`` Did you mean 'runs/a'?``: the path of its folder that is most like it among those that can be meant; "" where there is none."""
    folder, name = os.path.split(path)
    with suppress(OSError):
        beside = [os.path.join(folder, near) for near in closest(name, os.listdir(folder or os.curdir), 8)]
        return next((f" Did you mean {near!r}?" for near in beside if is_meant(near)), "")
    return ""


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


def why_unwritable(path: str, *, folder: bool = False) -> str:
    """The reason why an output can't be written, as the end of the sentence "got …, expected …"; "" where nothing does.

    It is asked before the work begins, so that no training ends without its results. Some bytes are written next to where the output will
    be: a place without permission, a read-only one and a full one all say so.

    Args:
        path: of a file or folder.
        folder: of a folder, which is made where it is missing, rather than of a file.

    *Cost:* one write to the disk.
    """
    wanted = "a folder that can be written to" if folder else "a file that can be written"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(path)  # a name that is too long, a file in place of a folder
        place = path if folder else os.path.dirname(path) or "."
        while folder and not os.path.lexists(place):
            place = os.path.dirname(place) or "."
        if not folder and os.path.isdir(path):
            return "a file's path. It is a folder: add a file's name."
        if not os.path.isdir(place):
            if folder:
                return f"a folder, or a path where one can be created. {'It' if place == path else repr(place)} is a file."
            return f"a file in a folder that exists. Make {place!r} first."
        if folder or not os.path.exists(path):
            _try_writing(place)
        elif os.path.isfile(path):
            os.close(os.open(path, os.O_WRONLY))
        elif not os.access(path, os.W_OK):  # a pipe or a device, which nothing is written to before its time
            return f"{wanted}: {os.strerror(errno.EACCES)}."
    except ours(OSError) as error:
        return f"{wanted}: {error.strerror}."
    return ""


def _try_writing(folder: str) -> None:
    """Raises: OSError where nothing can be written to the folder."""
    path = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
    with open(path, "xb") as file:
        try:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        finally:
            os.unlink(path)


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
