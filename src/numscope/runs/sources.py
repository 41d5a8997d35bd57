"""Where runs lie: a folder of this machine, or one that fsspec reaches, of which findings and facts are copied and statistics are not."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from numscope.records.attempt import RANKS
from numscope.records.errors import UsageError
from numscope.records.files import nearest_path
from numscope.sinks.part_files import PartName
from numscope.sinks.runfolder import RUN_FILE, STATISTICS
from numscope.storage.address import connect, is_address, text_of

if TYPE_CHECKING:
    from numscope.storage.ranges import RangeFiles

FOLDERS = (STATISTICS, RANKS)
MARKS = (RUN_FILE, *FOLDERS, "debug_logs", "debug_statistics_logs")

_OWN = re.compile(rf"{re.escape(RUN_FILE)}|(findings-)?rank\d+(-\d+){{0,3}}\.(json|parquet)|compacted-[\da-f-]+\.parquet")
_FINDINGS = re.compile(r"findings-rank\d+(-\d+)?\.json")

Fingerprint = tuple[int, int, float]  # what changes where a file is written anew: its identity, its size in bytes, its time of the epoch
Signature = dict[str, Fingerprint]  # by path in the run


def is_of_run(name: str) -> bool:
    """Whether a folder that holds a file or folder of this name is a run's."""
    return name in MARKS or _FINDINGS.fullmatch(name) is not None


class _RunPlace(ABC):
    """A run's folder, or one of runs' folders."""

    @abstractmethod
    def files(self, folder: str) -> Iterable[tuple[str, Fingerprint]]:
        """The run's own files in one of its folders, by their paths in the run. Raises: OSError where the run's folder is gone."""

    def signature(self) -> Signature:
        """The fingerprints of all of the run's files. Raises: as ``files`` does."""
        return dict(chain.from_iterable(map(self.files, ("", *FOLDERS))))

    def parts(self) -> dict[str, Fingerprint]:
        listed = ((os.path.basename(path), told) for path, told in self.files(STATISTICS))
        return {name: told for name, told in listed if PartName.parse(name) is not None}


@dataclass(frozen=True)
class Local(_RunPlace):
    """A folder of this machine."""

    given: str
    where: str = "RUN"  # what messages call it

    @property
    def path(self) -> str:
        return os.path.abspath(self.given)

    def check(self) -> None:
        """Raises: UsageError where there is no such folder, or it can't be read."""
        if not os.path.isdir(self.path) or not os.access(self.path, os.R_OK | os.X_OK):
            raise no_run(self.where, self.given, instead(self.path))

    def names(self) -> dict[str, bool]:
        """Names in the folder, and whether each is a folder. Raises: OSError."""
        with os.scandir(self.path) as entries:
            return {entry.name: entry.is_dir() for entry in entries}

    def child(self, name: str) -> Local:
        return Local(os.path.join(self.given, name))

    def files(self, folder: str) -> Iterator[tuple[str, Fingerprint]]:
        with contextlib.suppress(*((FileNotFoundError, NotADirectoryError) if folder else ())):
            with os.scandir(os.path.join(self.path, folder)) as entries:
                for entry in entries:
                    if _OWN.fullmatch(entry.name):
                        with contextlib.suppress(FileNotFoundError):  # merged
                            told = entry.stat(follow_symlinks=False)
                            yield os.path.join(folder, entry.name), (told.st_ino, told.st_size, told.st_mtime_ns / 1e9)

    def ranges(self, sizes: Mapping[str, int]) -> RangeFiles:
        """By which parts of these sizes are read, if they are not read as files: each byte is checked as it comes."""
        from fsspec.implementations.local import LocalFileSystem

        from numscope.storage.ranges import RangeFiles

        return RangeFiles(LocalFileSystem(), os.path.join(self.path, STATISTICS), sizes)

    def fetch(self, signature: Signature) -> str:
        """The folder, where the files are."""
        return self.path

    def close(self) -> None:
        """There is no copy."""


@dataclass
class Remote(_RunPlace):
    """A folder that fsspec reaches (``s3://…``, ``gs://…``).

    Files that are shown again and again are copied once, into a folder that ends with the program. Of the statistics that one question
    is about only the bytes that it needs are read.
    """

    given: str
    where: str = "RUN"  # what messages call it
    _fs: Any = None
    _root: str = ""
    _copy: tempfile.TemporaryDirectory[str] | None = None
    _have: Signature = field(default_factory=dict)

    @property
    def path(self) -> str:
        return self.given.rstrip("/")

    def check(self) -> None:
        """Raises: UsageError where there is no such folder, or no way to it."""
        try:
            self._connect()
            self.names()
        except FileNotFoundError:
            raise no_run(self.where, self.given, "There is nothing of that name.") from None
        except UsageError:
            raise
        except Exception as error:  # whatever a storage's package raises: no credentials, no network
            raise UsageError(f"{self.where}: got {self.given!r}, which could not be reached: {text_of(error)}") from None

    def _connect(self) -> None:
        if self._fs is None:
            self._fs, self._root = connect(self.given, self.where)

    def _list(self, folder: str) -> list[dict[str, Any]]:
        self._connect()
        place = f"{self._root.rstrip('/')}/{folder}".rstrip("/")
        self._fs.invalidate_cache()
        listed: list[dict[str, Any]] = self._fs.ls(place, detail=True)
        return [one for one in listed if str(one["name"]).rstrip("/").strip("/") != place.strip("/")]

    def names(self) -> dict[str, bool]:
        """Names in the folder, and whether each is a folder."""
        return {_base(one): one["type"] == "directory" for one in self._list("")}

    def child(self, name: str) -> Remote:
        return Remote(f"{self.path}/{name}")

    def files(self, folder: str) -> Iterator[tuple[str, Fingerprint]]:
        with contextlib.suppress(*((FileNotFoundError,) if folder else ())):
            for one in self._list(folder):
                if one["type"] == "file" and _OWN.fullmatch(_base(one)):
                    told = [one.get(key) for key in ("ETag", "etag", "generation", "md5Hash", "mtime", "LastModified", "created")]
                    yield os.path.join(folder, _base(one)), (zlib.crc32(repr(told).encode()), int(one.get("size") or 0), _time_of(one))

    def ranges(self, sizes: Mapping[str, int]) -> RangeFiles:
        """By which parts of these sizes are read."""
        from numscope.storage.ranges import RangeFiles

        return RangeFiles(self._fs, f"{self._root}/{STATISTICS}", sizes)

    def fetch(self, signature: Signature) -> str:
        """A folder of this machine with the files that a signature names."""
        if self._copy is None:
            self._copy = tempfile.TemporaryDirectory(prefix="numscope-view-")
        here = self._copy.name
        for name in [name for name in self._have if name not in signature]:
            os.unlink(os.path.join(here, name))
            del self._have[name]
        for name, told in signature.items():
            if self._have.get(name) == told:
                continue
            path = os.path.join(here, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            aside = os.path.join(here, ".part")
            with contextlib.suppress(FileNotFoundError):  # merged
                self._fs.get_file(f"{self._root.rstrip('/')}/{name}", aside)
                os.utime(aside, (told[-1], told[-1]))
                os.replace(aside, path)
                self._have[name] = told
        return here

    def close(self) -> None:
        """Remove the copy."""
        if self._copy is not None:
            self._copy.cleanup()


Source = Local | Remote


def source_of(given: str, where: str = "RUN") -> Source:
    """Where a RUN lies, whether or not there is anything; ``where``: what messages call it."""
    return Remote(given, where) if is_address(given) else Local(given, where)


RUN = "a run's folder, such as numscope run --log-dir DIR train.py makes"


def no_run(where: str, given: str, why: str, expected: str = RUN) -> UsageError:
    """The error about a word that stands for no run; ``where``: what messages call it."""
    return UsageError(f"got {given!r}, expected {expected}. {why}", where)


def is_run(path: str) -> bool:
    return os.path.isdir(path) and any(map(is_of_run, os.listdir(path)))


def instead(path: str, is_meant: Callable[[str], bool] = is_run) -> str:
    """Advice about what is no folder that can be read; ``is_meant``: which folders could be meant."""
    if os.path.exists(path):
        return "It can't be read: you have no permission." if os.path.isdir(path) else "It is a file."
    return nearest_path(path, is_meant).strip() or "There is nothing of that name."


def _base(info: dict[str, Any]) -> str:
    return str(info["name"]).rstrip("/").rsplit("/", 1)[-1]


def _time_of(info: dict[str, Any]) -> float:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return 0.0
