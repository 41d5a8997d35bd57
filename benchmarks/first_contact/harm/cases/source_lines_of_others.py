"""A finding of somebody else's folder that names files of this machine as its source: a page must not show lines of them.

source: local file inclusion reports of log viewers (jamie8johnson/cqs#1341 lists them); own arrangement
truth: docs/page.md: "Source is read from .py files only, and only if the recorded line matches"
meta: {"kind": "tool", "limit": 120}
"""
import json
import os
from pathlib import Path
from fctool import done, make_run, sane, say, tool

for name in ("secret.txt", "secret.py", "id_rsa", "passwd.py.txt"):
    Path(name).write_text("first = 1\nsecond = 'TOPSECRET'\nthird = 3\nfourth = 'TOPSECRET'\n")
run = make_run("run")
finding = sorted(run.glob("findings*.json"))
say(bool(finding), "there are findings")
original = json.loads(finding[0].read_text())


def point(x, file, line):
    if isinstance(x, dict):
        return {k: (file if k == "file" else line if k == "line" else point(v, file, line)) for k, v in x.items()}
    if isinstance(x, list):
        if len(x) == 4 and isinstance(x[0], str) and isinstance(x[1], int):
            return [file, line, x[2], x[3]]
        return [point(v, file, line) for v in x]
    return x


for name in ("secret.txt", "secret.py", "id_rsa", "passwd.py.txt", "/etc/passwd", "../../../../../../etc/passwd", "/proc/self/environ", "/dev/zero", "//localhost/x.py"):
    for line in (2, 10**12, -1):
        finding[0].write_text(json.dumps(point(original, os.path.abspath(name) if not name.startswith(("/", ".")) else name, line)))
        if line == 2 or name == "secret.py":
            sane(tool("report", run, "-o", "page.html", timeout=60), f"report of {name}:{line}")
            result = tool("top", run)
            sane(result, f"top of {name}:{line}")
            page = Path("page.html").read_bytes() if Path("page.html").exists() else b""
            say(b"TOPSECRET" not in page + result[1] and b"root:x:" not in page + result[1], f"{name}:{line}: no line of it is shown")
done()
