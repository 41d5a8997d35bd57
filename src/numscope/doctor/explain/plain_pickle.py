"""Reads pickles of plain values, such as flight-recorder dumps, without executing anything.

``pickle`` executes whatever a file names. This unpickler knows only the opcodes of dicts, lists, tuples, strings, bytes, numbers, booleans
and None. Opcodes that allocate memory ahead of the data (``BYTEARRAY8``, frames, sparse memos of the C implementation) do not exist here.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar, NoReturn

_PLAIN = (
    *(pickle.PROTO, pickle.STOP, pickle.MARK, pickle.POP, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
    *(pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8),
    *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.BINGET, pickle.LONG_BINGET),
)
_NAMING = (pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.INST, pickle.PERSID, pickle.BINPERSID)  # end in a refusal that names the request


class PickleRefused(ValueError):
    """The file is not a pickle of plain values; the message is the reason."""


def loads(data: bytes) -> Any:
    """The value in a pickle.

    Raises: PickleRefused for a pickle that is damaged or requests anything but plain values.

    *Cost:* about a microsecond per opcode. Memory: at most about 110 bytes per byte of the file, for dumps about 15.
    """
    try:
        return _Plain(io.BytesIO(data)).load()
    except PickleRefused:
        raise
    except Exception as error:  # a damaged pickle fails in arbitrary ways
        raise PickleRefused(f"the pickle is damaged or cut off: {type(error).__name__}: {error}") from None


class _Plain(pickle._Unpickler):  # the Python implementation: its table of opcodes can be reduced
    dispatch: ClassVar[dict[int, Any]] = {opcode[0]: pickle._Unpickler.dispatch[opcode[0]] for opcode in (*_PLAIN, *_NAMING)}

    def find_class(self, module: str, name: str) -> NoReturn:
        what = f"{module[:80]}.{name[:80]}"
        raise PickleRefused(f"it requests code to be executed ({what}); a dump contains plain values only, so it was not opened")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise PickleRefused("it refers to an object outside of the file")

    def load_frame(self) -> None:
        self.read(8)  # type: ignore[attr-defined]  # the frame's length is only a hint

    def load_setitem(self) -> None:
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        value, key = stack.pop(), stack.pop()
        _fill(stack[-1], [key, value])

    def load_setitems(self) -> None:
        items: list[Any] = self.pop_mark()  # type: ignore[attr-defined]
        _fill(self.stack[-1], items)  # type: ignore[attr-defined]

    dispatch[pickle.FRAME[0]] = load_frame
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems


def _fill(target: Any, items: list[Any]) -> None:
    """Adds keys and values to a dict. Keys must not be nested: hashing nested tuples takes exponential time, or overflows the C stack."""
    if type(target) is not dict or len(items) % 2:
        raise PickleRefused("the pickle is damaged: keys and values without a dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is tuple and any(type(part) is tuple for part in key):
            raise PickleRefused("the pickle is damaged: a nested tuple as a key")
        target[key] = value
