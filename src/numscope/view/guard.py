"""Lets in only requests that hold the token, use one of this server's own names, and only read."""

from __future__ import annotations

import hmac
import html
import ipaddress
import re
import socket
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from numscope.page.document import SERVED_POLICY

HEADERS = {
    "Content-Security-Policy": f"{SERVED_POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Stands before an application and refuses what may not reach it.

    The token comes once, in the address that the command prints; the answer puts it into a cookie and leads to the address without it.
    It leads there by a page and not by a redirection: a browser that came from another site would not send the cookie along with one.

    Args:
        token: the secret.
        port: of the server. Cookies don't know ports, so this one's name does.
        names: by which the server may be asked for, beside addresses: pages of other sites can make their own names lead here (DNS
            rebinding), but not an address, nor a name that is not theirs.
    """

    def __init__(self, app: ASGIApp, token: str, port: int, names: frozenset[str]) -> None:
        self._app, self._token, self._names = app, token.encode(), names
        self._cookie = f"numscope-view-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http":
            await self._answer_to(Request(scope))(scope, receive, sending)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)  # a websocket is never accepted

    def _answer_to(self, request: Request) -> ASGIApp:
        """The application, or a refusal."""
        hosts, given = request.headers.getlist("host"), dict(request.query_params)
        if request.method != "GET":
            return PlainTextResponse("This server is only read: GET.", 405, {"Allow": "GET"})
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return PlainTextResponse(
                "This server is not known by the name in the address. Use localhost, or the address that was printed.", 421
            )
        if "token" in given:
            return self._entrance(given.pop("token"), given)
        if not self._is_token(request.cookies.get(self._cookie, "")):
            return PlainTextResponse("Open the link with the token that numscope view has printed in its terminal.", 403)
        return self._app

    def _entrance(self, token: str, given: dict[str, str]) -> Response:
        if not self._is_token(token):
            return PlainTextResponse("The token in this link is not this server's: numscope view prints a new link at each start.", 403)
        link = html.escape("./?" + urlencode(given) if given else "./", quote=True)
        body = f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><title>numscope</title><a href="{link}">numscope view</a>'
        return HTMLResponse(body, headers={"Set-Cookie": f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"})

    def _is_ours(self, host: str) -> bool:
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/\s]+)(:\d{1,5})?", host)
        if match is None:
            return False
        name = match[1].strip("[]").lower().rstrip(".")
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._token)


def own_names(host: str) -> frozenset[str]:
    """The names by which a server that listens at a host may be asked for."""
    machine = socket.gethostname().lower()
    listening = {host.lower(), machine, machine.partition(".")[0]} if not is_loopback(host) else set()
    return frozenset({"localhost", *listening})


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
