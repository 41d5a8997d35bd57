"""Addresses of folders that fsspec reaches, such as ``s3://bucket/runs/a``."""

from __future__ import annotations

import os
import re
from typing import Any

from numscope.records.errors import UsageError
from numscope.records.faults import ours
from numscope.records.words import without_passwords

PROTOCOL = "numscope-run"  # by which DuckDB asks for a run's files in another storage
OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "r2"})  # a write is seen whole
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*)://")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether it names a folder of another storage rather than of this machine."""
    return _ADDRESS.match(os.fspath(path)) is not None


def is_shortened(path: str) -> bool:
    """Whether it is what ``pathlib`` leaves of an address: one slash of two."""
    kind, colon, rest = path.partition(":/")
    return bool(colon) and kind in _PACKAGES and not rest.startswith("/")


def connect(address: str, where: str) -> tuple[Any, str]:
    """The filesystem of an address, and the folder's path in it. Nothing is sent yet.

    Args:
        where: the argument's name, for messages.

    Raises: UsageError where a package is missing or the kind of storage is unknown.
    """
    match = _ADDRESS.match(address)
    kind, told = match[1] if match else "", without_passwords(address)
    package = _PACKAGES.get(kind)
    try:
        import fsspec
        from fsspec.core import url_to_fs

        fsspec.get_filesystem_class(kind)
    except ImportError:
        needed = " and ".join(filter(None, ("fsspec", package)))
        more = f"pip install 'numscope[remote]' {package or ''}".rstrip()
        raise UsageError(f"{where}: got {told!r}, which needs {needed}. Install: {more}.") from None
    except ours(ValueError):
        raise UsageError(f"{where}: got {told!r}, expected a kind of storage that fsspec knows, such as s3:// or gs://.") from None
    # Few retries, so that a missing storage is noticed soon: callers try again by themselves.
    waits = {"config_kwargs": {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 2}}} if package == "s3fs" else {}
    try:
        files, root = url_to_fs(address.rstrip("/"), use_listings_cache=False, **waits)
    except ours() as error:  # some ask the storage as they are made
        raise UsageError(f"{where}: got {told!r}, which could not be reached: {text_of(error)}") from None
    return files, str(root).rstrip("/")


def text_of(error: BaseException) -> str:
    """An error of a storage's package in one line."""
    return without_passwords(f"{type(error).__name__}: {error}".split("\n")[0])
