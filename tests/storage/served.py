"""A local S3: moto's server, which counts what is asked of it, and which can be away."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "runs"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # bucket, key and query
    size: int  # of the answer's body


class Store:
    """One server in this process. ``address`` names a run in it."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.requests: list[Request] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._make = make_server
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._server: Any = None
        self.start()

    def empty(self) -> None:
        """Begin anew."""
        self.requests.clear()
        reset = urllib.request.Request(f"http://127.0.0.1:{self.port}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset).close()  # what it holds is the process's
        self.fs.mkdir(BUCKET)

    def start(self) -> None:
        import threading

        if self._server is not None:
            return
        self._server = self._make("127.0.0.1", self.port, self._counted, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """It refuses connections until it is started again; what it holds stays."""
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def _counted(self, environ: dict[str, Any], start_response: Any) -> Any:
        body = b"".join(self._app(environ, start_response))
        query = f"?{environ['QUERY_STRING']}" if environ["QUERY_STRING"] else ""
        self.requests.append(Request(environ["REQUEST_METHOD"], environ["PATH_INFO"] + query, len(body)))
        return [body]

    @property
    def environment(self) -> dict[str, str]:
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}"}

    @property
    def fs(self) -> Any:
        import fsspec

        return fsspec.filesystem("s3", use_listings_cache=False, endpoint_url=f"http://127.0.0.1:{self.port}", key="test", secret="test")

    def address(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def names(self, name: str) -> set[str]:
        """Of a run's files."""
        return {str(path).removeprefix(f"{BUCKET}/{name}/") for path in self.fs.find(f"{BUCKET}/{name}")}


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """For a process that runs this package."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **more}


def started(store: Store, *words: str, **options: Any) -> subprocess.Popen[str]:
    """A numscope command."""
    return subprocess.Popen(
        [sys.executable, "-m", "numscope", *words],
        env=environment({**store.environment, **options.pop("env", {})}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def numscope(store: Store, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A numscope command, ended."""
    process = started(store, *words, **options)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def until(holds: Any, seconds: float = 60.0) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.1)
