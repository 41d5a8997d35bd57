"""Reads a pickle of plain values, and runs nothing.

Python's unpickler calls whatever a file names. This one knows no opcode that names anything: dicts, lists, tuples, strings, bytes, numbers,
booleans and None are all that a flight-recorder dump holds. Memory stays in proportion to the file's size: no opcode here makes room for
more than it reads.
"""

from __future__ import annotations

import struct
from typing import Any

MAX_OPCODES = 50_000_000

_NAMING = {  # opcodes that import, call or build; what they ask for is told
    b"c": "GLOBAL",
    b"\x93": "STACK_GLOBAL",
    b"i": "INST",
    b"o": "OBJ",
    b"R": "REDUCE",
    b"b": "BUILD",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"P": "PERSID",
    b"Q": "BINPERSID",
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
}


class Refused(ValueError):
    """The file is no pickle of plain values; the message says why."""


class _Mark:
    pass


_MARK = _Mark()
_HASHABLE = (str, int, float, bool, bytes, type(None), tuple)


def loads(data: bytes) -> Any:
    """The value that the pickle holds.

    Raises: Refused for what asks for code, is cut off, or is no pickle.

    *Cost:* about half a microsecond per opcode.
    """
    try:
        return _Machine(data).run()
    except (IndexError, struct.error):
        raise Refused("the pickle is cut off or damaged") from None
    except (TypeError, UnicodeDecodeError, KeyError) as error:
        raise Refused(f"the pickle is damaged: {type(error).__name__}") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        chunk = self.data[self.at : self.at + count]
        if len(chunk) != count:
            raise Refused("the pickle is cut off")
        self.at += count
        return chunk

    def number(self, form: str, size: int) -> int:
        value: int = struct.unpack(form, self.take(size))[0]
        return value

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 200)
        text = self.data[self.at : end] if end >= 0 else b"?"
        self.at = end + 1 if end >= 0 else len(self.data)
        return text.decode("utf-8", "backslashreplace")

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:  # an IndexError for a missing mark cannot be: -1 wraps, so it is asked below
            at -= 1
            if at < 0:
                raise Refused("the pickle is damaged: no mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def refuse(self, opcode: bytes) -> Refused:
        name = _NAMING[opcode]
        asked = ""
        if opcode in (b"c", b"i"):
            asked = f" ({self.line()}.{self.line()})"
        elif opcode == b"\x93" and len(self.stack) >= 2:
            asked = f" ({'.'.join(str(part)[:80] for part in self.stack[-2:])})"
        return Refused(f"it asks for code to be run ({name}{asked}); a dump holds plain values only, so it was not opened")

    def run(self) -> Any:
        stack, memo = self.stack, self.memo
        for _ in range(MAX_OPCODES):
            opcode = self.take(1)
            match opcode:
                case b"q":
                    memo[self.take(1)[0]] = stack[-1]
                case b"r":
                    memo[self.number("<I", 4)] = stack[-1]
                case b"\x94":
                    memo[len(memo)] = stack[-1]
                case b"h":
                    stack.append(memo[self.take(1)[0]])
                case b"j":
                    stack.append(memo[self.number("<I", 4)])
                case b"X":
                    stack.append(self.take(self.number("<I", 4)).decode("utf-8", "replace"))
                case b"\x8c":
                    stack.append(self.take(self.take(1)[0]).decode("utf-8", "replace"))
                case b"\x8d":
                    stack.append(self.take(self.number("<Q", 8)).decode("utf-8", "replace"))
                case b"B":
                    stack.append(self.take(self.number("<I", 4)))
                case b"C":
                    stack.append(self.take(self.take(1)[0]))
                case b"\x8e":
                    stack.append(self.take(self.number("<Q", 8)))
                case b"K":
                    stack.append(self.take(1)[0])
                case b"M":
                    stack.append(self.number("<H", 2))
                case b"J":
                    stack.append(self.number("<i", 4))
                case b"\x8a":
                    stack.append(int.from_bytes(self.take(self.take(1)[0]), "little", signed=True))
                case b"G":
                    stack.append(struct.unpack(">d", self.take(8))[0])
                case b"N":
                    stack.append(None)
                case b"\x88":
                    stack.append(True)
                case b"\x89":
                    stack.append(False)
                case b"(":
                    stack.append(_MARK)
                case b"}":
                    stack.append({})
                case b"]":
                    stack.append([])
                case b")":
                    stack.append(())
                case b"s":
                    value, key = stack.pop(), stack.pop()
                    self.put(stack[-1], [key, value])
                case b"u":
                    items = self.since_mark()
                    self.put(stack[-1], items)
                case b"a":
                    value = stack.pop()
                    self.extend(stack[-1], [value])
                case b"e":
                    items = self.since_mark()
                    self.extend(stack[-1], items)
                case b"t":
                    stack.append(tuple(self.since_mark()))
                case b"\x85":
                    stack.append((stack.pop(),))
                case b"\x86":
                    stack[-2:] = [(stack[-2], stack[-1])]
                case b"\x87":
                    stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
                case b"0":
                    stack.pop()
                case b"\x80":
                    if self.take(1)[0] > 5:
                        raise Refused("the pickle's protocol is unknown")
                case b"\x95":
                    self.take(8)  # a frame's length, a hint only
                case b".":
                    if len(stack) != 1 or stack[0] is _MARK:
                        raise Refused("the pickle is damaged: it ends in the middle of a value")
                    return stack[0]
                case _:
                    raise (
                        self.refuse(opcode)
                        if opcode in _NAMING
                        else Refused(f"opcode {opcode!r} is none that a dump of plain values holds")
                    )
        raise Refused(f"more than {MAX_OPCODES:,} opcodes")

    @staticmethod
    def put(target: Any, items: list[Any]) -> None:
        if type(target) is not dict or len(items) % 2:
            raise Refused("the pickle is damaged: no dict to fill")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, _HASHABLE) or (isinstance(key, tuple) and not all(isinstance(part, (str, int)) for part in key)):
                raise Refused("the pickle is damaged: a key that is no plain value")
            target[key] = value

    @staticmethod
    def extend(target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            raise Refused("the pickle is damaged: no list to fill")
        target.extend(items)
