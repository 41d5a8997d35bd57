"""Byte ranges of a run's files in another storage, for DuckDB: what a query does not need is not sent."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from hashlib import sha256
from typing import Any

from fsspec import AbstractFileSystem

from numscope.sinks.seal import CHUNK_BYTES, Chunks
from numscope.storage.address import PROTOCOL

TAIL = 32 << 10  # bytes at each file's end that are read at once, for all files together: the columns and their extrema
LONG_TAIL = 320 << 10  # likewise of large files: DuckDB asks for their last 256 KB
LONGEST_FOOTER = 64 << 20  # bytes; likewise, where it is longer
SMALLEST = 8 << 10  # bytes of a request: DuckDB reads a column's header first where it reads little


class RangeFiles(AbstractFileSystem):  # type: ignore[misc]
    """Files known from one listing, and none besides, as ``numscope-run://<number>/<name>``. They are never looked up again.

    Args:
        files: fsspec's filesystem that has them.
        folder: where they are in it.
        sizes: of each file, by its name.

    Attributes:
        listed: each file's size in bytes, by its name.
        num_requests: asked of the storage; a batch of ranges counts as so many.
        num_bytes: that came.
        damaged: names of files whose bytes were not those that their checksums are of.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(self, files: Any, folder: str, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._files = files
        self._folder = folder
        self._root = f"{PROTOCOL}://{sha256(folder.encode()).hexdigest()}/"  # a folder's own name may hold what DuckDB takes for a pattern
        self.listed = dict(sizes)
        self._tails: dict[str, bytes] = {}
        self._chunks: dict[str, Chunks | None] = {}
        self.damaged: set[str] = set()
        self.num_requests = self.num_bytes = 0

    def path_of(self, name: str) -> str:
        """A file's path here. Two runs are told apart by their folders."""
        return self._root + name

    def begin(self, wanted: Iterable[str]) -> None:
        """Read files' footers at once, which hundreds of files one after the other would take a minute for. Raises what storages raise."""
        names = [name for name in wanted if name not in self._tails]
        self._read_ends({name: min(LONG_TAIL, max(TAIL, self.listed[name] >> 8)) for name in names})
        lengths = {name: int.from_bytes(self._tails[name][-8:-4], "little") + 8 for name in names}
        longer = {name: length for name, length in lengths.items() if length > len(self._tails[name])}
        self._read_ends({name: length for name, length in longer.items() if length <= min(LONGEST_FOOTER, self.listed[name])})
        for name in names:
            tail, size = self._tails[name], self.listed[name]
            chunks = self._chunks[name] = Chunks.of(tail, size)
            if chunks is not None:
                start = size - len(tail)
                whole = max(start, min(chunks.around(start + CHUNK_BYTES - 1, size)[0], chunks.end))
                if not chunks.hold(whole, tail[whole - start :]):  # it is read anew where somebody asks for it
                    whole = max(start, chunks.end)
                self._tails[name] = tail[whole - start :]

    def _read_ends(self, lengths: Mapping[str, int]) -> None:
        """Read so many bytes at each file's end, of those that are not there yet."""
        ends = [self.listed[name] - len(self._tails.get(name, b"")) for name in lengths]
        starts = [max(0, self.listed[name] - length) for name, length in lengths.items()]
        found = self._files.cat_ranges([f"{self._folder}/{name}" for name in lengths], starts, ends, on_error="raise")
        self._tails.update((name, data + self._tails.get(name, b"")) for name, data in zip(lengths, found, strict=True))
        self.num_requests += len(lengths)
        self.num_bytes += sum(map(len, found))

    def footer(self, name: str) -> bytes:
        """A file's end, its footer included. Raises what storages raise."""
        self.begin([name])
        return self._tails[name]

    def read(self, name: str, start: int, end: int) -> tuple[int, bytes]:
        """At least these bytes of a file, and where they begin. Raises: OSError where they are not those that were written."""
        tail = self._tails.get(name, b"")
        first = self.listed[name] - len(tail)
        if start >= first:
            return start, tail[start - first : end - first]
        chunks = self._chunks.get(name)
        if chunks is not None:
            start, end = chunks.around(start, end)
        data: bytes = self._files.cat_file(f"{self._folder}/{name}", start=start, end=end)
        self.num_requests += 1
        self.num_bytes += len(data)
        if chunks is not None and not chunks.hold(start, data):
            self.damaged.add(name)
            raise OSError(f"{name} is damaged")
        return start, data

    def open(self, path: str, mode: str = "rb", **options: Any) -> io.RawIOBase:
        if mode != "rb":
            raise PermissionError(f"{path} is only read")
        return _Handle(self, self._name(path))

    def glob(self, path: str, **options: Any) -> list[str]:
        return [path]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        return {"name": path, "size": self.listed[self._name(path)], "type": "file"}

    def exists(self, path: str, **options: Any) -> bool:
        return path.removeprefix(self._root) in self.listed

    def modified(self, path: str) -> datetime:  # DuckDB keys what it keeps by it; parts never change
        return datetime(2000, 1, 1, tzinfo=timezone.utc)

    def _name(self, path: str) -> str:
        name = path.removeprefix(self._root)
        if name not in self.listed:
            raise FileNotFoundError(path)
        return name


class _Handle(io.RawIOBase):
    """One file. Threads share it, and what one of them seeks is where that one reads."""

    def __init__(self, files: RangeFiles, name: str) -> None:
        self._files, self._name = files, name
        self._size = files.listed[name]
        self._own = _Position()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._own.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._own.at = {io.SEEK_SET: 0, io.SEEK_CUR: self._own.at, io.SEEK_END: self._size}[whence] + offset
        return self._own.at

    def read(self, size: int | None = -1) -> bytes:
        own = self._own
        end = self._size if size is None or size < 0 else min(self._size, own.at + size)
        if not own.start <= own.at <= end <= own.start + len(own.held):
            own.start, own.held = self._files.read(self._name, own.at, min(self._size, max(end, own.at + SMALLEST)))
        data = own.held[own.at - own.start : end - own.start]
        own.at += len(data)
        return data


class _Position(threading.local):
    at = 0
    start = 0  # where the held bytes begin
    held = b""
