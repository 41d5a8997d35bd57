"""Half-open connections, requests that never end, readers that never read, garbage: others are served meanwhile, and they are closed.

source: tensorflow/tensorboard PR 2371 (sockets that hang), slowloris descriptions
truth: docs/page.md: closed if a request does not arrive within 20 s, or if a client takes less than 1 KiB a second
meta: {"kind": "tool", "limit": 200}
"""
import http.client
import re
import signal
import socket
import subprocess
import time
from urllib.parse import urlsplit
from fctool import TOOL, done, make_run, say

run = make_run("run")
p = subprocess.Popen([TOOL, "view", str(run), "--port", "18411"], stdout=open("view.out", "wb"), stderr=subprocess.STDOUT)
link = None
for _ in range(400):
    m = re.search(r"http://\S+", open("view.out", errors="replace").read())
    if m:
        link = m[0]
        break
    time.sleep(0.1)
say(link is not None, "it prints a link")
u = urlsplit(link.rstrip(".,;:)"))


def good():
    t = time.monotonic()
    c = http.client.HTTPConnection("127.0.0.1", u.port, timeout=15)
    c.request("GET", u.path + ("?" + u.query if u.query else ""), headers={"Host": f"{u.hostname}:{u.port}"})
    s = c.getresponse().status
    c.close()
    return s, time.monotonic() - t


say(good()[0] in (200, 302, 303, 307), "it serves")
socks = []
for i in range(60):
    s = socket.create_connection(("127.0.0.1", u.port), 5)
    kind = i % 5
    if kind == 1:
        s.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
    elif kind == 2:
        s.sendall(b"\x16\x03\x01\x02\x00" + bytes(100))
    elif kind == 3:
        s.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nabc")
    elif kind == 4:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        s.sendall((f"GET {u.path}?{u.query} HTTP/1.1\r\nHost: {u.hostname}:{u.port}\r\n\r\n").encode() * 30)
    socks.append(s)
status, seconds = good()
say(status in (200, 302, 303, 307) and seconds < 6, "others are served meanwhile", status, seconds)
s = socket.create_connection(("127.0.0.1", u.port), 5)
try:
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 3_000_000)
    s.settimeout(25)
    s.recv(100)
except OSError:
    pass
s.close()
deadline = time.monotonic() + 45
open_ones = list(socks)
while open_ones and time.monotonic() < deadline:
    for s in list(open_ones):
        s.settimeout(0.05)
        try:
            if s.recv(65536) == b"":
                open_ones.remove(s)
        except (TimeoutError, socket.timeout):
            pass
        except OSError:
            open_ones.remove(s)
    for i, s in enumerate(socks):  # those of kind 1 drip
        if i % 5 == 1 and s in open_ones:
            try:
                s.sendall(b"a")
            except OSError:
                open_ones.remove(s)
    time.sleep(0.3)
say(not open_ones, "every waiting connection is closed within 45 s", len(open_ones), [socks.index(s) % 5 for s in open_ones])
status, seconds = good()
say(status in (200, 302, 303, 307) and seconds < 6, "it serves afterwards", status, seconds)
rss = int(open(f"/proc/{p.pid}/statm").read().split()[1]) * 4 / 1024
say(rss < 700, "its memory stays below 700 MiB", rss)
p.send_signal(signal.SIGINT)
try:
    p.wait(20)
except subprocess.TimeoutExpired:
    pass
say(p.poll() is not None, "Ctrl-C ends it")
p.poll() is None and p.kill()
say("Traceback" not in open("view.out", errors="replace").read(), "no traceback", open("view.out", errors="replace").read()[-500:])
done()
