"""Who is let in: a program that holds the token, that asks this server by a name of its own, and that only reads."""

from __future__ import annotations

import hmac
import html
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from numscope.page.document import SERVED_POLICY

Connection = MutableMapping[str, Any]  # what ASGI calls a scope
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Connection, Any, Send], Awaitable[None]]

HEADERS = (
    ("Content-Security-Policy", f"{SERVED_POLICY}; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


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

    def __init__(self, app: App, token: str, port: int, names: frozenset[str]) -> None:
        self._app, self._token, self._names = app, token.encode(), names
        self._cookie = f"numscope-view-{port}"

    async def __call__(self, scope: Connection, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a websocket: never accepted
        headers = scope["headers"]
        of = {name: [value.decode("latin-1") for key, value in headers if key == name] for name in (b"host", b"cookie")}
        if scope["method"] != "GET":
            await _answer(send, 405, "This server is only read: GET.", ("Allow", "GET"))
        elif len(of[b"host"]) != 1 or not self._is_ours(of[b"host"][0]):
            await _answer(send, 421, "This server is not known by the name in the address. Use localhost, or the address that was printed.")
        elif (given := dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))).get("token") is not None:
            await self._enter(send, scope, given)
        elif not any(map(self._is_in, of[b"cookie"])):
            await _answer(send, 403, "Open the link with the token that numscope view has printed in its terminal.")
        else:
            await self._app(scope, receive, _with_headers(send))

    async def _enter(self, send: Send, scope: Connection, given: dict[str, str]) -> None:
        if not self._is_token(given.pop("token")):
            await _answer(send, 403, "The token in this link is not this server's: numscope view prints a new link at each start.")
            return
        path = "./?" + urlencode(given) if given else "./"
        link = html.escape(path, quote=True)
        body = f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><title>numscope</title><a href="{link}">numscope view</a>'
        cookie = f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 200, body, ("Set-Cookie", cookie), kind="text/html")

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

    def _is_in(self, cookies: str) -> bool:
        try:
            found = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self._is_token(found.value)

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


async def _answer(send: Send, status: int, text: str, *more: tuple[str, str], kind: str = "text/plain") -> None:
    body = text.encode()
    headers = (*HEADERS, *more, ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))))
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_encoded(HEADERS)]}
        await send(message)

    return sending


def _encoded(headers: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
