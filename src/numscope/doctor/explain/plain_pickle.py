"""Reads a pickle of plain values, and runs nothing.

Python's unpickler calls whatever a file names. This one knows no opcode that names anything: dicts, lists, tuples, strings, bytes, numbers,
booleans and None are all that a flight-recorder dump holds. Memory stays in proportion to the file's size: no opcode here makes room for
more than it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
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
        data, stack, memo = self.data, self.stack, self.memo
        push = stack.append
        for _ in range(MAX_OPCODES):
            opcode = data[self.at]
            self.at += 1
            # Nine of ten opcodes of a dump are the first six: they stand here by themselves, for half the time.
            if opcode == 0x68:  # BINGET
                push(memo[data[self.at]])
                self.at += 1
            elif opcode == 0x71:  # BINPUT
                memo[data[self.at]] = stack[-1]
                self.at += 1
            elif opcode == 0x6A:  # LONG_BINGET
                push(memo[self.number("<I", 4)])
            elif opcode == 0x72:  # LONG_BINPUT
                memo[self.number("<I", 4)] = stack[-1]
            elif opcode == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif opcode == 0x4B:  # BININT1
                push(data[self.at])
                self.at += 1
            elif opcode == 0x2E:  # STOP
                if len(stack) != 1 or stack[0] is _MARK:
                    raise Refused("the pickle is damaged: it ends in the middle of a value")
                return stack[0]
            elif (step := _STEPS.get(opcode)) is not None:
                step(self)
            elif bytes((opcode,)) in _NAMING:
                raise self.refuse(bytes((opcode,)))
            else:
                raise Refused(f"opcode {bytes((opcode,))!r} is none that a dump of plain values holds")
        raise Refused(f"more than {MAX_OPCODES:,} opcodes")

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8", "replace"))

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put(self.stack[-1], [key, value])

    def set_items(self) -> None:
        items = self.since_mark()
        self.put(self.stack[-1], items)

    def append(self) -> None:
        value = self.stack.pop()
        self.extend(self.stack[-1], [value])

    def appends(self) -> None:
        items = self.since_mark()
        self.extend(self.stack[-1], items)

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise Refused("the pickle is damaged: too few values")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def protocol(self) -> None:
        if self.take(1)[0] > 5:
            raise Refused("the pickle's protocol is unknown")

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


_STEPS: dict[int, Callable[[_Machine], object]] = {
    ord("X"): lambda m: m.text(m.number("<I", 4)),
    0x8C: lambda m: m.text(m.take(1)[0]),
    0x8D: lambda m: m.text(m.number("<Q", 8)),
    ord("B"): lambda m: m.stack.append(m.take(m.number("<I", 4))),
    ord("C"): lambda m: m.stack.append(m.take(m.take(1)[0])),
    0x8E: lambda m: m.stack.append(m.take(m.number("<Q", 8))),
    ord("M"): lambda m: m.stack.append(m.number("<H", 2)),
    ord("J"): lambda m: m.stack.append(m.number("<i", 4)),
    0x8A: lambda m: m.stack.append(int.from_bytes(m.take(m.take(1)[0]), "little", signed=True)),
    ord("G"): lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("("): lambda m: m.stack.append(_MARK),
    ord("}"): lambda m: m.stack.append({}),
    ord("]"): lambda m: m.stack.append([]),
    ord(")"): lambda m: m.stack.append(()),
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    ord("t"): lambda m: m.stack.append(tuple(m.since_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("0"): lambda m: m.stack.pop(),
    0x80: _Machine.protocol,
    0x95: lambda m: m.take(8),  # a frame's length, a hint only
}
