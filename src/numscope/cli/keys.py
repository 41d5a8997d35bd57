"""Single keys from a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator


class Keys:
    """Keys as they are pressed, while the block runs; nothing where stdin is no terminal."""

    def __init__(self) -> None:
        self._file = -1

    @contextlib.contextmanager
    def listening(self) -> Iterator[Keys]:
        try:
            import termios
            import tty

            file = sys.stdin.fileno()
            before = termios.tcgetattr(file)
        except Exception:  # another system; no stdin, or no terminal
            yield self
            return
        try:
            tty.setcbreak(file)  # Ctrl-C stays a signal
            self._file = file
            yield self
        finally:
            self._file = -1
            termios.tcsetattr(file, termios.TCSADRAIN, before)

    def wait(self, seconds: float) -> str:
        """The keys pressed within some time, or as soon as there are any; "" if there are none."""
        if self._file < 0:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._file], [], [], seconds)
        return os.read(self._file, 1024).decode(errors="replace") if ready else ""
