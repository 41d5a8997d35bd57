"""view and top follow a folder that is emptied, renamed, replaced by a file, and comes back: no crash, no change to it.

source: geographika/mappyfile#182 (folder deleted during run)
meta: {"kind": "tool", "limit": 150}
"""
import http.client
import os
import re
import shutil
import signal
import subprocess
import time
from urllib.parse import urlsplit
from fctool import TOOL, digest, done, make_run, sane, say, tool

run = make_run("keep", bad=-1)
shutil.copytree(run, "live")
p = subprocess.Popen([TOOL, "view", "live", "--port", "18433"], stdout=open("view.out", "wb"), stderr=subprocess.STDOUT)
link = None
for _ in range(400):
    m = re.search(r"http://\S+", open("view.out", errors="replace").read())
    if m:
        link = m[0]
        break
    time.sleep(0.1)
say(link is not None, "it prints a link")
u = urlsplit(link.rstrip(".,;:)"))


def get(cookie=None):
    c = http.client.HTTPConnection("127.0.0.1", u.port, timeout=20)
    c.request("GET", (u.path + "?" + u.query) if not cookie else "/", headers={"Host": f"{u.hostname}:{u.port}", **({"Cookie": cookie} if cookie else {})})
    r = c.getresponse()
    r.read()
    return r.status, (r.getheader("set-cookie") or "").split(";")[0]


status, cookie = get()
for name, change in {
    "emptied": lambda: [shutil.rmtree("live"), os.mkdir("live")],
    "gone": lambda: os.rmdir("live"),
    "a file": lambda: open("live", "w").write("x"),
    "back": lambda: [os.remove("live"), shutil.copytree(run, "live")],
    "a part replaced": lambda: [open(f, "wb").write(b"PAR1") for f in map(str, __import__("pathlib").Path("live/statistics").glob("*.parquet"))],
}.items():
    change()
    time.sleep(1.5)
    codes = [get(cookie)[0] for _ in range(3)]
    say(all(c < 500 for c in codes) and p.poll() is None, f"{name}: the server lives", codes)
    sane(tool("top", "live"), f"{name}: top")
p.send_signal(signal.SIGTERM)
try:
    p.wait(20)
except subprocess.TimeoutExpired:
    pass
say(p.poll() is not None, "SIGTERM ends it")
p.poll() is None and p.kill()
say("Traceback" not in open("view.out", errors="replace").read(), "no traceback", open("view.out", errors="replace").read()[-600:])
done()
