"""Floating-point traps of the processor, which a script may have set: where numbers are compared that may be nan, they are held off."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ENVIRONMENT_BYTES = 64  # more than glibc's fenv_t on any processor


def _library() -> Any:
    """The C library's functions of ``fenv.h``; None where traps can't be set, or it has no such functions."""
    if sys.platform != "linux":
        return None
    try:
        library: Any = ctypes.CDLL("libm.so.6")
        library.fegetexcept, library.feholdexcept, library.fesetenv  # noqa: B018
    except (OSError, AttributeError):
        return None
    return library


_libm = _library()


@contextmanager
def untrapped() -> Iterator[None]:
    """No floating-point trap strikes inside; traps, flags and rounding mode are afterwards as they were.

    *Cost:* 1 µs.
    """
    if _libm is None or not _libm.fegetexcept():
        yield
        return
    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    _libm.feholdexcept(environment)
    try:
        yield
    finally:
        _libm.fesetenv(environment)
