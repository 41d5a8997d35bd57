"""The server: answers admitted requests with the page's files and with the changes of a run."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from numscope.page.document import LIBRARIES, STATIC, served
from numscope.page.payload import comparison_of
from numscope.records.errors import UsageError
from numscope.view.guard import Guard
from numscope.view.live import WAIT_S, LiveRun
from numscope.view.refresher import Refresher
from numscope.view.shelf import Shelf

KINDS = {".js": "text/javascript", ".css": "text/css"}
AGAIN_S, AGAIN_TIMES = 5.0, 10  # a comparison is made again after so long, and after so many times as long as it took
MOST_COMPARED = 4
DEADLINE_S = 20.0  # for a request to arrive whole, from the connection's begin or its last answer on
LEAST_RATE = 1024  # bytes a second that a client has to take of an answer


class _Comparison:
    """Of two runs, made when somebody asks, in a thread."""

    def __init__(self, a: LiveRun, b: LiveRun) -> None:
        self._sides = a, b
        self._refresher = Refresher("numscope view comparison", self._make)
        self._told: dict[str, Any] = {"version": "", "comparison": None}

    def latest(self) -> dict[str, Any]:
        """The latest one, and of which versions it is."""
        self._refresher.ask(WAIT_S)
        return self._told

    def _make(self) -> float:
        start, version = time.monotonic(), " ".join(side.shown[0] for side in self._sides)
        a, b = (side.recorded for side in self._sides)
        if a is None or b is None or version == self._told["version"]:
            return 0.0
        try:
            told = comparison_of(a, b)
        except Exception as error:  # parts that are gone meanwhile, numbers that no tensor has
            told = {"problem": f"{type(error).__name__}: {error}", "settings": []}
        self._told = {"version": version, "comparison": told}
        return max(AGAIN_S, AGAIN_TIMES * (time.monotonic() - start))


def application(shelf: Shelf) -> Starlette:
    """All that the server answers, for those who are let in."""
    files = {path.name: (path.read_bytes(), KINDS[path.suffix]) for path in STATIC.iterdir() if path.suffix in KINDS}
    files |= {name: ((STATIC / name).read_bytes(), KINDS[".js"]) for name in LIBRARIES}
    page = served("view.js", "numscope view").encode()
    comparison = functools.lru_cache(MOST_COMPARED)(_Comparison)

    def known(work: Callable[[Request, LiveRun], Response], name: str = "run") -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            run = shelf.find(request.query_params.get(name, ""))
            return PlainTextResponse("There is no run of that name.", 404) if run is None else work(request, run)

        return answer

    def of_run(request: Request, run: LiveRun) -> Response:
        run.look()
        told, content = run.answer(request.query_params.get("since", ""))
        head = json.dumps({"key": run.key, "name": run.name, **told})
        return Response(head[:-1].encode() + b', "content": ' + content + b"}", media_type="application/json")

    def of_two(request: Request, run: LiveRun) -> Response:
        other = shelf.find(request.query_params.get("with", ""))
        if other is None:
            return PlainTextResponse("There is no run of that name.", 404)
        for one in (run, other):
            one.look()
        told = comparison(run, other).latest()
        told = {} if told["version"] == request.query_params.get("since") else told
        return JSONResponse({"names": [run.name, other.name], "seen": [run.seen.message, other.seen.message], **told})

    async def file(request: Request) -> Response:
        found = files.get(request.path_params["name"])
        return PlainTextResponse("Not found", 404) if found is None else Response(found[0], media_type=found[1])

    routes = [
        Route("/", lambda request: Response(page, media_type="text/html")),
        Route("/api/runs", lambda request: JSONResponse(shelf.glances())),
        Route("/api/run", known(of_run)),
        Route("/api/comparison", known(of_two)),
        Route("/{name:path}", file),
    ]
    return Starlette(routes=routes)


def listen(host: str, port: int, others: range) -> socket.socket:
    """A socket that listens at the host and port, or at one of some others, or, if there are some and none is free, at any.

    Raises: UsageError.
    """
    tried = [port, *others, 0] if others else [port]
    for one in tried:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, one, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listening = socket.socket(family, socket.SOCK_STREAM)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind(address)
                listening.listen()
            except OSError:
                listening.close()
                raise
            return listening
        except socket.gaierror as error:
            raise UsageError(f"--port: got {host!r}, expected a name or address of this machine: {error.strerror}.") from None
        except OSError as error:
            failed = error
    raise UsageError(f"--port: {host}, port {port}: {failed.strerror}.")


class TimedConnection(H11Protocol):
    """A connection that is closed where its client keeps the server waiting, for a request or for an answer to be taken."""

    _ticking: asyncio.TimerHandle | None = None
    _unsent = 0  # bytes, at the last look

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._unsent = self.transport.get_write_buffer_size()
        self._ticking = self.loop.call_later(DEADLINE_S, self._look)

    def _look(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        is_asked = self.cycle is not None and not self.cycle.response_complete
        is_late = unsent + LEAST_RATE * DEADLINE_S > self._unsent > 0 if unsent else not is_asked
        if is_late:
            self.transport.abort()
        else:
            self._wait()


def serve(shelf: Shelf, listening: socket.socket, token: str, names: frozenset[str], on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    app = Guard(application(shelf), token, listening.getsockname()[1], names)
    config = uvicorn.Config(
        app,
        http=TimedConnection,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=20,
    )
    server = uvicorn.Server(config)
    started = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await started(sockets=sockets)
        on_start()

    server.startup = startup  # type: ignore[method-assign]
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # how uvicorn passes on the signal that ended it
        pass
