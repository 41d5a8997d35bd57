"""The live page's server: no token, a wrong one, other hosts' names, other methods, paths that climb; the run's folder stays as it was.

source: jupyter/notebook PR 3714 (Host header), DNS rebinding articles named there
truth: docs/page.md, "numscope view": token needed on 127.0.0.1 too; another host name refused; all but GET refused; no CORS; it writes nothing
meta: {"kind": "tool", "limit": 150}
"""
import http.client
import os
import re
import signal
import subprocess
import time
from urllib.parse import urlsplit
from fctool import TOOL, digest, done, make_run, say

run = make_run("run")
before = digest(run)
p = subprocess.Popen([TOOL, "view", str(run), "--port", "0"], stdout=open("view.out", "wb"), stderr=subprocess.STDOUT)
link = None
for _ in range(300):
    m = re.search(r"http://\S+", open("view.out", errors="replace").read())
    if m:
        link = m[0]
        break
    if p.poll() is not None:
        break
    time.sleep(0.1)
if link is None and p.poll() is not None:  # a port of 0 may not be taken: ask for one
    p = subprocess.Popen([TOOL, "view", str(run), "--port", "18377"], stdout=open("view.out", "wb"), stderr=subprocess.STDOUT)
    for _ in range(300):
        m = re.search(r"http://\S+", open("view.out", errors="replace").read())
        if m:
            link = m[0]
            break
        time.sleep(0.1)
say(link is not None, "it prints a link", open("view.out", errors="replace").read()[-300:])
u = urlsplit(link.rstrip(".,;:)"))
say(u.hostname in ("127.0.0.1", "localhost"), "on this machine alone", link)


def ask(path, method="GET", host=None, headers=None, body=None):
    c = http.client.HTTPConnection("127.0.0.1", u.port, timeout=20)
    try:
        c.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        c.putheader("Host", host or f"{u.hostname}:{u.port}")
        for k, v in (headers or {}).items():
            c.putheader(k, v)
        if body is not None:
            c.putheader("Content-Length", str(len(body)))
        c.endheaders(body)
        r = c.getresponse()
        return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read(2_000_000)
    except (http.client.HTTPException, ConnectionError):
        return 400, {}, b""  # a connection that is closed without an answer is a refusal, too
    finally:
        c.close()


full = u.path + ("?" + u.query if u.query else "")
status, headers, body = ask(full or "/")
cookie = headers.get("set-cookie", "").split(";")[0]
say(status in (200, 302, 303, 307), "the link works", status)
say("httponly" in headers.get("set-cookie", "").lower() and "samesite=strict" in headers.get("set-cookie", "").lower(), "the cookie is HttpOnly and SameSite=Strict", headers)
where = headers.get("location", "/")
where = urlsplit(where).path or "/"
good = ask(where, headers={"Cookie": cookie})
say(good[0] == 200, "with the cookie the page comes", good[0])
say("access-control-allow-origin" not in good[1], "no CORS")
say("content-security-policy" in good[1], "a content security policy", list(good[1]))
for path in (where, "/", "/index.html", "/data.json", "/api"):
    for kind, kw in {"no token": {}, "a wrong cookie": {"headers": {"Cookie": cookie[:-4] + "AAAA" if cookie else "x=y"}}, "an empty cookie": {"headers": {"Cookie": cookie.split("=")[0] + "="}}}.items():
        s, h, b = ask(path, **kw)
        say(s in (400, 401, 403, 404, 421), f"{path} with {kind} is refused", s, b[:100])
for wrong in ("?token=", "?token=x", "?" + u.query[:-3] + "zzz" if u.query else "?token=zz"):
    s, h, b = ask((u.path or "/") + wrong)
    say(s in (400, 401, 403, 404, 421) and not h.get("set-cookie"), f"a wrong token is refused: {wrong[:12]}", s)
for host in ("evil.example", f"evil.example:{u.port}", "127.0.0.1.evil.example", f"localhost.evil:{u.port}", "", "[::1", "127.0.0.1:1@evil", f"{u.hostname}:{u.port}, evil"):
    s, h, b = ask(where, host=host or " ", headers={"Cookie": cookie})
    say(s in (400, 403, 404, 421), f"host {host!r} is refused even with the cookie", s)
for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"):
    s, h, b = ask(where, method=method, headers={"Cookie": cookie, "Origin": "http://evil.example"}, body=b"x")
    say(s in (400, 403, 404, 405, 501), f"{method} is refused", s)
for path in ("/../../etc/passwd", "/static/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/%2e%2e%2f%2e%2e%2fetc/passwd", "//etc/passwd", "/run.json/../../train_it.py", "/train_it.py", "/static//etc/passwd", "/%00", "/static/view.js%00.html"):
    s, h, b = ask(path, headers={"Cookie": cookie})
    say(b"root:" not in b and b"manual_seed" not in b[:4000] and s != 500, f"{path} gives nothing away", s, b[:100])
say(p.poll() is None, "it still runs")
p.send_signal(signal.SIGINT)
try:
    p.wait(20)
except subprocess.TimeoutExpired:
    pass
say(p.poll() is not None, "Ctrl-C ends it")
say("Traceback" not in open("view.out", errors="replace").read(), "no traceback", open("view.out", errors="replace").read()[-500:])
say((m := re.search(r"GET /", open("view.out", errors="replace").read())) is None, "requests are not logged")
say(digest(run) == before, "the run is as it was")
p.poll() is None and p.kill()
done()
