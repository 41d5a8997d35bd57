"""``numscope view``: the page of runs that go on, from a local server."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import socket
import sys
import threading

import click

from numscope.cli.printing import say
from numscope.cli.values import Expected, Value
from numscope.records.errors import UsageError
from numscope.records.words import count
from numscope.view.shelf import Shelf

HOST, PORT, NUM_OTHERS = "127.0.0.1", 7377, 10
NEEDED = ("starlette", "uvicorn", "duckdb", "pyarrow", "fsspec")
NICE = 10  # the training goes first


def _place(text: str) -> tuple[str, int | None]:
    """The host and the port of ``[HOST:]PORT``; ``HOST:``: no port in particular."""
    host, _, port = text.rpartition(":")
    if not (host or port) or (port and not (port.isascii() and port.isdigit() and int(port) <= 65535)):
        raise Expected("PORT or HOST:PORT, a port from 0 to 65535.")
    return host.removeprefix("[").removesuffix("]") or HOST, int(port) if port else None


@click.command(options_metavar="[options]")
@click.option(
    "--port",
    "place",
    type=Value("[HOST:]PORT", _place),
    default=f"{HOST}:",
    help=f"Where to listen (default: {HOST}, which other machines don't reach; port {PORT}, or another one if it is taken).",
)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
def view(runs: tuple[str, ...], place: tuple[str, int | None]) -> None:
    """Serve the page of "numscope report", which follows the runs while they are trained. Ctrl-C ends it.

    RUN is a run's log_dir, a folder of several, or the same as s3://… or gs://…. Nothing is written there.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} not installed, which numscope view needs. Install: pip install 'numscope[view]'.")
    from numscope.view.guard import is_loopback, own_names
    from numscope.view.server import listen, serve

    host, port = place
    shelf = Shelf(runs)
    listening = listen(host, PORT if port is None else port, range(PORT + 1, PORT + NUM_OTHERS) if port is None else range(0))
    token, number = secrets.token_urlsafe(24), listening.getsockname()[1]
    if host in ("0.0.0.0", "::", ""):
        name = socket.gethostname()
    else:
        name = f"[{host}]" if ":" in host else host
    link = f"http://{name}:{number}/?token={token}"
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: Windows
        os.nice(NICE)

    def on_start() -> None:
        say(f"numscope: {count(len(shelf.runs()), 'run')}. Ctrl-C ends it.")
        if not is_loopback(host):
            say("numscope: other machines reach it; what they read is not encrypted. ssh -L is safer.")
        say(link)

    serve(shelf, listening, token, own_names(host), on_start)
    shelf.close()
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:  # one that still reads would hold the end up
        os._exit(0)
