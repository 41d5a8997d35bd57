"""Who is let in, and what is refused; without a browser."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.test_recorded import FINDING, document
from tests.runs.tensors import two_layers, write
from tests.view.serving import Served, serve
from tests.warm import COLD


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("a", "b"):
        (folder / name).mkdir()
        write(folder / name, two_layers(2))
    with serve(folder) as served:
        yield served


def test_the_link_lets_in_and_leads_to_an_address_without_the_token(served: Served) -> None:
    status, headers, body = served.ask(f"/?run=a&token={served.token}", signed=False)
    assert status == 200
    assert headers["set-cookie"] == f"{served.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert b'content="0;url=./?run=a"' in body
    assert served.token.encode() not in body
    status, headers, body = served.ask("/?run=a")
    assert status == 200
    assert b'<script type="module" src="view.js">' in body
    assert served.token.encode() not in body


@pytest.mark.parametrize(
    "cookie",
    ["", "numscope-view-{port}=", "numscope-view-{port}=wrong", "numscope-view-1={token}", "{token}", "numscope-view-{port}=\xff", '"\x01'],
)
def test_nobody_is_let_in_without_the_token(served: Served, cookie: str) -> None:
    headers = {"Cookie": cookie.format(port=served.port, token=served.token)} if cookie else {}
    for path in ("/", "/view.js", "/api/runs", "/api/run?run=a", "/api/comparison?run=a&with=b", "/none"):
        status, answered, body = served.ask(path, headers=headers, signed=False)
        assert status == 403, path
        assert "set-cookie" not in answered
        assert served.token.encode() not in body


@pytest.mark.parametrize("token", ["", "wrong", "%FF", "%00", "é", "a" * 5000])
def test_a_wrong_token_is_refused_even_with_the_right_cookie(served: Served, token: str) -> None:
    token = token if token.isascii() else "%C3%A9"
    for signed in (True, False):
        status, headers, _ = served.ask(f"/?token={token}", signed=signed)
        assert (status, "set-cookie" in headers) == (403, False)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "localhost:x",
        "user@localhost",
        "[::1",
        "a b",
        "127.1",
    ],
)
def test_a_host_that_is_not_ours_is_refused(served: Served, host: str) -> None:
    for path in ("/", f"/?token={served.token}", "/api/runs"):
        status, headers, body = served.ask(path, headers={"Host": host.format(port=served.port)})
        assert status in (400, 421), (path, host)
        assert "set-cookie" not in headers
        assert served.token.encode() not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1", "[::1]:1", "localhost.:80"])
def test_the_names_of_this_machine_and_of_a_tunnels_end_are_ours(served: Served, host: str) -> None:
    assert served.ask("/api/runs", headers={"Host": host})[0] == 200


def test_two_hosts_are_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as link:
        link.sendall(f"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nCookie: {served.cookie}\r\n\r\n".encode())
        assert re.match(rb"HTTP/1\.1 4\d\d ", link.recv(100))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT"])
def test_nothing_but_get_is_answered(served: Served, method: str) -> None:
    status, headers, _ = served.ask("/api/runs", method, {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"})
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control")]


def test_a_websocket_is_not_accepted(served: Served) -> None:
    asked = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    assert served.ask("/api/run?run=a", headers=asked)[0] != 101


@pytest.mark.parametrize(
    "path",
    ["/../page.html", "/vendor/../../payload.py", "/%2e%2e/page.html", "/..%2f..%2fpayload.py", "/vendor/README.md", "/page.html",
     "//etc/passwd", "/etc/passwd", "/%2fetc%2fpasswd", "/view.js/..", "/view.js%00.html", "/\\..\\page.html", "http://evil.example/view.js/"],
)  # fmt: skip
def test_no_path_leads_out_of_the_pages_own_files(served: Served, path: str) -> None:
    status, _, body = served.ask(path)
    assert (status, body.lower()) == (404, b"not found")


@pytest.mark.parametrize("run", ["..", "../a", "/etc", "a/statistics", "a%00", "c", "A", "%F0%9F"])
def test_no_name_of_a_run_leads_elsewhere(served: Served, run: str) -> None:
    for path in (f"/api/run?run={run}", f"/api/comparison?run=a&with={run}", f"/api/comparison?run={run}&with=a"):
        assert served.ask(path)[0] == 404


def test_answers_forbid_what_a_page_does_not_need(served: Served) -> None:
    for path, signed in (("/", True), ("/view.js", True), ("/api/runs", True), ("/", False), ("/none", True)):
        _, headers, _ = served.ask(path, headers={"Origin": "http://evil.example"}, signed=signed)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["cache-control"], headers["referrer-policy"]) == (
            "nosniff",
            "no-store",
            "no-referrer",
        )
        assert not [name for name in headers if name.startswith("access-control")]


def test_the_token_is_printed_once_and_requests_are_not_logged(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        for path in (f"/?token={served.token}", "/?token=wrong", "/api/run", "/none"):
            served.ask(path)
        assert served.stop() == 0
        assert served.process.stdout is not None
        assert served.process.stdout.read() == ""


def test_a_signal_ends_it_at_once_although_somebody_is_connected(tmp_path: Path) -> None:
    write(tmp_path, two_layers(4))
    with serve(tmp_path) as served, socket.create_connection(("127.0.0.1", served.port)) as idle:
        idle.sendall(b"GET / HTTP/1.1\r\n")  # and never the rest
        served.ask("/api/run")
        start = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - start < 10  # a hang would last for ever


def answered(*words: str | Path) -> tuple[int, str]:
    ran = subprocess.run([COLD, "-m", "numscope", "view", *map(str, words)], capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stderr


def test_a_run_that_is_bad_at_the_start_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "notes.txt").write_text("x")
    expected = "expected a run's folder, such as numscope run --log-dir DIR train.py makes"
    cases = {
        tmp_path / "log": f"{expected}. There is nothing of that name.",  # logs, which is like it, is no run
        tmp_path / "logs" / "notes.txt": f"{expected}. It is a file.",
        tmp_path / "logs": f"{expected}. It holds other things.",
    }
    for given, told in cases.items():
        assert answered(given) == (2, f"numscope: RUN: got '{given}', {told}\n")
    known = "expected a kind of storage that fsspec knows, such as s3:// or gs://."
    assert answered("nosuch://bucket/run") == (2, f"numscope: RUN: got 'nosuch://bucket/run', {known}\n")
    assert answered() == (2, "numscope: got no RUN…, expected numscope view [options] RUN….\n")


def test_a_port_that_is_taken_is_told_where_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert answered("--port", str(port), tmp_path) == (2, f"numscope: --port: 127.0.0.1, port {port}: Address already in use.\n")
    assert answered("--port", "70000", tmp_path) == (
        2,
        "numscope: --port: got '70000', expected PORT or HOST:PORT, a port from 0 to 65535.\n",
    )
    status, told = answered("--port", "203.0.113.7:7377", tmp_path)
    assert (status, told.startswith("numscope: --port: 203.0.113.7, port 7377: ")) == (2, True)


def test_another_port_is_taken_where_none_was_asked_for() -> None:
    from numscope.view.server import listen

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with listen("127.0.0.1", port, range(port, port + 1)) as found:
            assert found.getsockname()[1] not in (0, port)


def test_all_addresses_are_served_only_by_names_of_this_machine(tmp_path: Path) -> None:
    with serve("--port", "0.0.0.0:0", tmp_path) as served:
        name = socket.gethostname()
        assert served.link.startswith(f"http://{name}:{served.port}/?token=")
        for host, status in ((name, 200), ("192.0.2.7", 200), ("localhost", 200), ("evil.example", 421)):
            assert served.ask("/api/runs", headers={"Host": host})[0] == status
        assert served.ask("/api/runs", signed=False)[0] == 403


def test_without_its_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from click.testing import CliRunner

    from numscope.cli.view import view
    from numscope.records.errors import UsageError

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("starlette", "uvicorn") else name)
    error = CliRunner().invoke(view, [os.curdir]).exception
    assert isinstance(error, UsageError)
    assert str(error) == "starlette, uvicorn not installed, which numscope view needs. Install: pip install 'numscope[view]'."


def test_no_torch_is_loaded() -> None:
    code = "import numscope.cli.view, numscope.view.server, numscope.view.shelf, sys; assert 'torch' not in sys.modules"
    subprocess.run([COLD, "-c", code], check=True)


def test_a_hostile_run_is_text_and_can_be_asked_for(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>&run=\u202eb"
    (tmp_path / name).mkdir()
    (tmp_path / name / "findings-rank0.json").write_text(document(FINDING))
    with serve(tmp_path) as served:
        (told,) = served.api("runs")
        assert told["name"] == name
        assert re.fullmatch(r"[\w.-]+", told["key"], re.ASCII)
        whole = served.until(lambda answer: answer["content"], run=told["key"])["content"]
        assert (whole["name"], whole["numFindings"]) == (name, 1)
