"""Reads files and folders into lines of text and flight-recorder dumps, recognized by content, not by name."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from numscope.doctor.explain import plain_pickle
from numscope.doctor.explain.masking import shown, visible

MAX_FILES = 20_000
MAX_TEXT_BYTES = 256 << 20  # per file, uncompressed; the rest is ignored, which is reported
MAX_DUMP_BYTES = 32 << 20  # a dump of 20,000 calls with 20 frames each has 10 MB
MAX_DUMP_DEPTH = 16
MAX_DUMP_VALUES = 1 << 24  # with shared parts counted wherever they occur; a long string counts as several
MAX_LINE_CHARS = 4096
HEAD_BYTES = 4096
DUMP_KEYS = (b'"entries"', b'"pg_status"', b'"comm_lib_version"', b'"pg_config"')  # a dump as JSON begins with one of them

_SPEAKER = re.compile(r"\[(?:rank|default)(\d{1,7})\]:")
_SUFFIXES = re.compile(r"(\.json|\.pickle|\.pkl)?(\.gz)?$")
_RANK = re.compile(r"(\d+)\D*$")  # nccl_trace_rank_3, trace3.json: a dump does not contain its own rank


@dataclass(frozen=True, slots=True)
class LogLine:
    file: str
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"

    @property
    def rank(self) -> int:
        """The rank in the prefix that torch and torchrun put before a rank's lines; -1 without one."""
        prefix = _SPEAKER.search(self.text)
        return int(prefix[1]) if prefix is not None else -1

    @property
    def quoted(self) -> str:
        return shown(f"{self.place}: {self.text}")


@dataclass(frozen=True, slots=True)
class Dump:
    """The content of one rank's flight recorder; the rank is from the file's name, -1 if that contains no number."""

    file: str
    rank: int
    values: Mapping[str, Any]


@dataclass(slots=True)
class FileRead:
    """A file's record: what was recognized in it, and why it could not be read, or not completely."""

    name: str
    kinds: set[str] = field(default_factory=set)
    problem: str = ""
    num_lines: int = 0


def read(paths: Sequence[Path]) -> Iterator[tuple[FileRead, Dump | Iterable[LogLine]]]:
    """Opens files one by one, each once, also those in folders. A file that can't be read has no lines, and its record says why."""
    seen: set[str] = set()
    for path in paths:
        for file in sorted(_files_in(path)) if path.is_dir() else [path]:
            real = os.path.realpath(file)
            if real in seen:
                continue
            seen.add(real)
            record = FileRead(visible(str(file)))
            content: Dump | Iterable[LogLine] = ()
            try:
                if len(seen) > MAX_FILES:
                    raise ValueError(f"not read: more than {MAX_FILES:,} files")
                content = _opened(file, record)
            except (OSError, EOFError, zlib.error) as error:
                record.problem = f"cannot be read: {visible(getattr(error, 'strerror', None) or str(error))}"
            except ValueError as error:
                record.problem = visible(str(error))
            yield record, content
            if len(seen) > MAX_FILES:
                return


def _opened(path: Path, record: FileRead) -> Dump | Iterator[LogLine]:
    """A file's content. Raises: OSError, EOFError, zlib.error; ValueError, which says why it is not read."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a regular file")  # a pipe would block forever
    packed = path.open("rb")
    try:
        stream = gzip.GzipFile(fileobj=packed) if packed.peek(2).startswith(b"\x1f\x8b") else packed
        head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        if not head:
            raise ValueError("empty")
        if (head[:1] == b"\x80" and head[1:2] <= b"\x05") or (head.lstrip()[:1] == b"{" and any(key in head for key in DUMP_KEYS)):
            with packed:
                values = _dumped(stream.read(MAX_DUMP_BYTES + 1))
            record.kinds.add("flight recorder")
            found = _RANK.search(_SUFFIXES.sub("", path.name))
            if found is None:
                record.problem = "its name contains no rank, so it was not compared with other dumps"
            return Dump(record.name, int(found[1][:9]) if found else -1, values)
        if b"\0" in head:
            raise ValueError("neither text nor a flight-recorder dump")
    except BaseException:
        packed.close()
        raise
    return _lines(stream, packed, record)


def _lines(stream: gzip.GzipFile | io.BufferedReader, packed: IO[bytes], record: FileRead) -> Iterator[LogLine]:
    left = MAX_TEXT_BYTES
    try:
        while data := stream.readline(MAX_LINE_CHARS * 4):  # an endless line is cut here
            record.num_lines += 1
            yield LogLine(record.name, record.num_lines, data.decode("utf-8", "replace").rstrip("\r\n")[:MAX_LINE_CHARS])
            left -= len(data)
            if left <= 0:
                record.problem = f"only its first {MAX_TEXT_BYTES >> 20} MiB were read"
                break
    except (OSError, EOFError, zlib.error) as error:
        record.problem = f"read only partly: {visible(str(error))}"
    finally:
        packed.close()


def _files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder; links to folders are not followed."""
    for inner, _, names in os.walk(folder):
        yield from (Path(inner) / name for name in names)


def _dumped(data: bytes) -> Mapping[str, Any]:
    """The values of a dump. Raises: ValueError, which says why it was not read."""
    if len(data) > MAX_DUMP_BYTES:
        raise ValueError(f"larger than {MAX_DUMP_BYTES >> 20} MiB")
    try:
        values = plain_pickle.loads(data) if data[:1] == b"\x80" else json.loads(data)
    except plain_pickle.PickleRefused as error:
        raise ValueError(f"refused: {error}") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "the JSON is damaged or cut off"
        raise ValueError(f"cannot be read: {why}") from None
    if not _is_bounded(values):
        raise ValueError(f"refused: nested more than {MAX_DUMP_DEPTH} levels deep, or more than {MAX_DUMP_VALUES:,} values")
    if not isinstance(values, Mapping) or not isinstance(values.get("entries"), list):
        raise ValueError("not a flight-recorder dump: it has no list of entries")
    return values


def _is_bounded(values: Any) -> bool:
    """Whether a value is small when all shared parts are counted: a few bytes can describe endless nested tuples."""
    level, num_values = [values], 0
    for _ in range(MAX_DUMP_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str | bytes):
                num_values += len(value) >> 4
            elif isinstance(value, Mapping):
                inner += value
                inner += value.values()
            elif isinstance(value, list | tuple):
                inner += value
            if num_values + len(inner) > MAX_DUMP_VALUES:
                return False
        num_values += len(inner)
        level = inner
    return not level
