"""Chromium without a window, driven over its DevTools pipe: real clicks and keys, and what the page threw or was refused."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
MOST_WAIT_S = 30.0
MUST_BE_THERE = os.environ.get("CI") == "true" and sys.platform == "linux" and os.geteuid() == 0  # .ci/run installs it

needs_browser = pytest.mark.skipif(
    CHROMIUM is None and not MUST_BE_THERE, reason="no chromium on this machine (Debian: apt install chromium)"
)


class Tab:
    """A page in a browser.

    Attributes:
        complaints: exceptions, errors on the console, and what the content security policy refused.
        requests: addresses that the page asked for, but data and blobs.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = os.fdopen(to, "wb", buffering=0), os.fdopen(back, "rb", buffering=0)
        self._held = b""
        self._last = 0
        self._session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(1440, 1000)

    def call(self, method: str, most_s: float = 2 * MOST_WAIT_S, **params: Any) -> dict[str, Any]:
        """Raises AssertionError where the browser refuses, or has not answered after so many seconds."""
        self._last += 1
        end = time.monotonic() + most_s
        said = {"id": self._last, "method": method, "params": params, **({"sessionId": self._session} if self._session else {})}
        self._to.write(json.dumps(said).encode() + b"\0")
        while True:
            heard = self._read(method, end)
            if heard.get("id") == self._last:
                if "error" in heard:
                    raise AssertionError(f"{method}: {heard['error']}")
                result: dict[str, Any] = heard["result"]
                return result
            self._note(heard)

    def _read(self, method: str, end: float) -> dict[str, Any]:
        while b"\0" not in self._held:
            if not select.select([self._back], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"{method}: the browser does not answer")
            more = self._back.read(1 << 16)
            if not more:
                raise AssertionError("the browser ended")
            self._held += more
        text, _, self._held = self._held.partition(b"\0")
        heard: dict[str, Any] = json.loads(text)
        return heard

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str([one.get("value") for one in params["args"]]))
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("data:", "blob:", "about:")):
            self.requests.append(params["request"]["url"])

    def size(self, width: int, height: int, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path: Path, address: str = "") -> None:
        self.visit(path.absolute().as_uri() + address)

    def visit(self, url: str) -> None:
        """A page of ours, until it is drawn; anew also where it is shown already."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait("document.documentElement?.dataset.ready")

    def js(self, expression: str, most_s: float = 2 * MOST_WAIT_S) -> Any:
        found = self.call("Runtime.evaluate", most_s, expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails'].get('exception', {}).get('description')}")
        return found["result"].get("value")

    def wait(self, condition: str, most_s: float = MOST_WAIT_S) -> Any:
        end, why = time.monotonic() + most_s, ""
        while True:
            try:
                if value := self.js(condition, 5.0):
                    return value
            except AssertionError as error:  # the page that was asked has just made way for another one
                why = str(error)
            assert time.monotonic() < end, f"never true: {condition}; {self.complaints} {why}"
            time.sleep(0.02)

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """A click of the mouse at a place within an element, as shares of its size."""
        place = {**self._place(selector, x, y), "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place)
        self.settle()

    def move(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """The mouse moves to such a place."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self._place(selector, x, y))
        self.settle()

    def _place(self, selector: str, x: float, y: float) -> dict[str, float]:
        found = json.dumps(selector)
        self.js(f"document.querySelector({found}).scrollIntoView({{block: 'center'}})")
        box = self.js(
            f"(() => {{ const b = document.querySelector({found}).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"
        )
        return {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Until what a click began is drawn. A click that leads to another page ends the one that is asked, which then may never answer."""
        with contextlib.suppress(AssertionError):
            self.js("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 30))", 5.0)

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def screenshot(self, path: Path, selector: str | None = None, most_tall: int = 100_000) -> None:
        clip: dict[str, Any] = {}
        if selector is not None:
            box = self.js(
                f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                f" return [b.x + scrollX, b.y + scrollY, b.width, Math.min(b.height, {most_tall})]; }})()"
            )
            clip = {"clip": dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}, "captureBeyondViewport": True}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))


@contextlib.contextmanager
def browse() -> Iterator[Tab]:
    """A tab of a browser of its own, which ends with the block."""
    assert CHROMIUM is not None, "no chromium, which .ci/run installs"
    to_read, to = os.pipe()
    back, back_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The browser reads at 3 and writes at 4.
        command = f'exec "$@" 3<&{to_read} 4>&{back_write}'
        words = ["/bin/bash", "-c", command, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(words, pass_fds=(to_read, back_write), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        try:
            yield Tab(to, back)
        finally:
            process.terminate()
            process.wait(20)
