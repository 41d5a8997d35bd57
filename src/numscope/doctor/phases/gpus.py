"""The GPUs of this host, queried in a child process that can be killed: with a broken driver the query itself hangs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from numscope.doctor.budget import Deadline

_QUERY = ("--query-gpu=index,name,uuid,memory.total,driver_version", "--format=csv,noheader,nounits")
_ERROR_CHARACTERS = 300


class GpuQuery:
    """Starts nvidia-smi when created; the answer is awaited later. It ignores CUDA_VISIBLE_DEVICES."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._error = ""
        program = shutil.which("nvidia-smi", path=environ.get("PATH"))
        if program is None:
            return
        try:
            self._child = subprocess.Popen(
                [program, *_QUERY],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=dict(environ),
                start_new_session=True,  # so that its own children are killed with it
            )
        except OSError as error:
            self._error = str(error)

    def answer(self, deadline: Deadline) -> dict[str, Any]:
        """The GPUs, as described in ``meet/messages.py``."""
        if self._child is None:
            return _without("failed" if self._error else "none", self._error)
        try:
            text, _ = self._child.communicate(timeout=max(deadline.left, 0.01))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)
            # Not waited for: a process that hangs in the driver can't be killed.
            if self._child.stdout is not None:
                self._child.stdout.close()
            return _without("timeout", f"nvidia-smi did not end within {deadline.seconds:.1f} s")
        if self._child.returncode != 0:
            if "No devices were found" in text:
                return _without("none")
            return _without("failed", f"nvidia-smi ended with {self._child.returncode}: {' '.join(text.split())[:_ERROR_CHARACTERS]}")
        devices, driver = parse(text)
        return {"status": "ok" if devices else "none", "error": "", "driver": driver, "devices": devices}


def _without(status: str, error: str = "") -> dict[str, Any]:
    return {"status": status, "error": error, "devices": []}


def parse(text: str) -> tuple[list[dict[str, Any]], str]:
    """The devices in nvidia-smi's lines, and the driver's version; other lines (warnings) are skipped."""
    devices, driver = [], ""
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 5 or not words[0].isdigit():
            continue
        memory = int(words[3]) << 20 if words[3].isdigit() else 0
        devices.append({"index": int(words[0]), "name": words[1], "uuid": words[2], "memory_bytes": memory})
        driver = words[4]
    return devices, driver
