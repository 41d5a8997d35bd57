"""``numscope view`` as users start it, and plain requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

MOST_WAIT_S = 30.0


@dataclass
class Served:
    """A server and the way to it."""

    process: subprocess.Popen[str]
    link: str
    port: int
    token: str

    @property
    def site(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def cookie(self) -> str:
        return f"numscope-view-{self.port}={self.token}"

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, signed: bool = True
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer; the path goes out as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=MOST_WAIT_S)
        try:
            given = {"Host": f"127.0.0.1:{self.port}", **({"Cookie": self.cookie} if signed else {}), **(headers or {})}
            connection.putrequest(method, path, skip_host=True)
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def api(self, path: str, **values: str) -> Any:
        status, _, body = self.ask(f"/api/{path}?{urlencode(values)}")
        assert status == 200, body
        return json.loads(body)

    def until(self, found: Callable[[Any], object], path: str = "run", **values: str) -> Any:
        """The first answer of which something is true."""
        end = time.monotonic() + MOST_WAIT_S
        while not found(answer := self.api(path, **values)):
            assert time.monotonic() < end, answer
            time.sleep(0.05)
        return answer

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(MOST_WAIT_S)


@contextlib.contextmanager
def serve(*words: str | Path) -> Iterator[Served]:
    """A server of its own, at a free port, which ends with the block."""
    command = [sys.executable, "-m", "numscope", "view", "--port", "0", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while not (match := re.search(r"http://\S+:(\d+)/\?token=(\S+)\n", said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        yield Served(process, match[0].strip(), int(match[1]), match[2])
    finally:
        process.kill()
        process.wait(MOST_WAIT_S)
        process.stdout.close()
