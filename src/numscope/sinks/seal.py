"""A Parquet file's own checksum: no reader of Parquet notices a bit that a disk has flipped in the footer, and few one in a page.

It stands in the footer's metadata, 16 hexadecimal digits of the file's size and 8 of a CRC of the whole file with zeros in their own place.
Programs that write a part anew keep the metadata: a seal of another size is nobody's.

Large files have a checksum for each chunk of their data besides, so that what a question reads is checked and nothing else. Their seal is
of the rest of the file: the footer, which holds those checksums.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import BinaryIO

KEY = b"numscope_crc32"
BLANK = b"0" * 24
CHUNKS = b"numscope_chunks"
CHUNK_BYTES = 1 << 16  # more would be read in vain, fewer make a longer footer: 8 bytes each
_MARK = KEY + b"\x18" + bytes([len(BLANK)])  # how a footer (Thrift's compact protocol) has a key, and the length of its value
_CHUNK = 1 << 20
_MAGIC = b"PAR1"  # what a Parquet file begins and ends with


@dataclass(frozen=True, slots=True)
class Chunks:
    """The checksums of a file's data, which ends at ``end``, chunk by chunk."""

    end: int
    digits: bytes

    @classmethod
    def of(cls, footer: bytes, size: int | None = None) -> Chunks | None:
        """The checksums that a footer holds; None if it holds none, or those of a file of another size."""
        if size is not None and (text_in(footer, KEY) or b"")[:16] != b"%016x" % size:
            return None
        end, _, digits = (text_in(footer, CHUNKS) or b"").partition(b":")
        is_ours = end.isdigit() and len(end) < 16 and len(digits) == 8 * -(-int(end) // CHUNK_BYTES)
        return cls(int(end), digits) if is_ours else None

    @classmethod
    def made(cls, path: str) -> bytes:
        """The text for a footer that is still to be written. *Cost:* one pass over the file."""
        with open(path, "rb") as file:
            digits = b"".join(b"%08x" % zlib.crc32(chunk) for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))
            return b"%d:%s" % (file.tell(), digits)

    def around(self, start: int, end: int) -> tuple[int, int]:
        """The bytes to read so that those asked for can be checked."""
        if start >= self.end:
            return start, end
        return start // CHUNK_BYTES * CHUNK_BYTES, max(end, min(self.end, -(-end // CHUNK_BYTES) * CHUNK_BYTES))

    def hold(self, start: int, data: bytes) -> bool:
        """Whether bytes that were read from ``start`` on are those that were written. ``start`` and the end are from ``around``."""
        data = data[: max(0, self.end - start)]
        numbers = range(0, len(data), CHUNK_BYTES)
        found = b"".join(b"%08x" % zlib.crc32(data[at : at + CHUNK_BYTES]) for at in numbers)
        first = start // CHUNK_BYTES * 8
        return found == self.digits[first : first + 8 * len(numbers)]


def seal(path: str) -> None:
    """Write the checksum into a file whose metadata has ``BLANK`` under ``KEY``. *Cost:* one pass over the file."""
    with open(path, "r+b") as file:
        place = _place(file)
        if place is None:
            raise ValueError(f"{path}: got a Parquet file without {KEY.decode()} in its metadata, expected {BLANK.decode()} there.")
        digits = _digits(file, place)
        file.seek(place)
        file.write(digits)


def is_sound(path: str, whole: bool = True) -> bool:
    """Whether a file is whole and holds what was written, as far as it has a seal of its own. Raises: OSError.

    Args:
        whole: also those chunks that have checksums of their own.

    *Cost:* one pass over the file, or over the footer of one with chunks.
    """
    with open(path, "rb") as file:
        begins = file.read(4) == _MAGIC
        file.seek(-4, os.SEEK_END)
        if not (begins and file.read(4) == _MAGIC):
            return False
        if not _footer(file)[1]:
            return False
        place = _place(file)
        if place is None:
            return True
        file.seek(place)
        digits, found = file.read(len(BLANK)), _digits(file, place)
        if digits[:16] != found[:16] or digits != found:
            return digits[:16] != found[:16]
        chunks = Chunks.of(_footer(file)[1]) if whole else None
        file.seek(0)
        return chunks is None or all(chunks.hold(at, file.read(CHUNK_BYTES)) for at in range(0, chunks.end, CHUNK_BYTES))


def text_in(footer: bytes, key: bytes) -> bytes | None:
    """The text that a footer has under a key; None if it has none. The length is written in groups of 7 bits, the lowest first."""
    at = footer.rfind(key + b"\x18") + len(key) + 1
    length = shift = 0
    while len(key) < at < len(footer) and shift < 35:
        length |= (footer[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if footer[at - 1] < 128:
            return footer[at : at + length]
    return None


def _place(file: BinaryIO) -> int | None:
    """Where in the file the digits stand."""
    start, footer = _footer(file)
    at = footer.rfind(_MARK)
    return None if at < 0 else start + at + len(_MARK)


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Where the footer begins, whose length is written before the last mark, and the footer."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    length = int.from_bytes(file.read(4), "little")
    start = file.seek(max(0, end - 8 - length))
    return start, file.read(length) if length < end else b""


def _digits(file: BinaryIO, place: int) -> bytes:
    size = file.seek(0, os.SEEK_END)
    chunks = Chunks.of(_footer(file)[1])
    file.seek(0 if chunks is None else min(chunks.end, place))
    crc = zlib.crc32(BLANK, _crc32(file, 0, place))
    file.seek(place + len(BLANK))
    return b"%016x%08x" % (size, _crc32(file, crc, size))


def _crc32(file: BinaryIO, crc: int, end: int) -> int:
    """A checksum continued over a file's bytes from where it stands to ``end``."""
    while chunk := file.read(min(_CHUNK, end - file.tell())):
        crc = zlib.crc32(chunk, crc)
    return crc
