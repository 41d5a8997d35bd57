"""A Parquet file's own checksum: no reader of Parquet notices a bit that a disk has flipped in the footer, and few one in a page.

It stands in the footer's metadata, 16 hexadecimal digits of the file's size and 8 of a CRC of the whole file with zeros in their own place.
Programs that write a part anew keep the metadata: a seal of another size is nobody's.
"""

from __future__ import annotations

import os
import zlib
from typing import BinaryIO

KEY = b"numscope_crc32"
BLANK = b"0" * 24
_MARK = KEY + b"\x18" + bytes([len(BLANK)])  # how a footer (Thrift's compact protocol) has a key, and the length of its value
_CHUNK = 1 << 20
_MAGIC = b"PAR1"  # what a Parquet file begins and ends with


def seal(path: str) -> None:
    """Write the checksum into a file whose metadata has ``BLANK`` under ``KEY``. *Cost:* one pass over the file."""
    with open(path, "r+b") as file:
        place = _place(file)
        if place is None:
            raise ValueError(f"{path}: got a Parquet file without {KEY.decode()} in its metadata, expected {BLANK.decode()} there.")
        digits = _digits(file, place)
        file.seek(place)
        file.write(digits)


def is_sound(path: str) -> bool:
    """Whether a file is whole and holds what was written, as far as it has a seal of its own. Raises: OSError.

    *Cost:* one pass over the file.
    """
    with open(path, "rb") as file:
        begins = file.read(4) == _MAGIC
        file.seek(-4, os.SEEK_END)
        if not (begins and file.read(4) == _MAGIC):
            return False
        place = _place(file)
        if place is None:
            return True
        file.seek(place)
        digits, found = file.read(len(BLANK)), _digits(file, place)
        return digits[:16] != found[:16] or digits == found


def _place(file: BinaryIO) -> int | None:
    """Where in the file the digits stand: in the footer, whose length is written before the last mark."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    length = int.from_bytes(file.read(4), "little")
    start = file.seek(max(0, end - 8 - length))
    at = file.read(length).rfind(_MARK) if length < end else -1
    return None if at < 0 else start + at + len(_MARK)


def _digits(file: BinaryIO, place: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    crc = zlib.crc32(BLANK, _crc32(file, 0, place))
    file.seek(place + len(BLANK))
    return b"%016x%08x" % (size, _crc32(file, crc, size))


def _crc32(file: BinaryIO, crc: int, end: int) -> int:
    """A checksum continued over a file's bytes from where it stands to ``end``."""
    while chunk := file.read(min(_CHUNK, end - file.tell())):
        crc = zlib.crc32(chunk, crc)
    return crc
