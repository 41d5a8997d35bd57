"""Sparse files of gigabytes, JSON nested a hundred thousand deep, numbers of a megabyte, wrong types everywhere: bounded time and memory.

source: public JSON recursion and memory reports; own arrangement
truth: docs/promises.md: 32 MiB, wrong types not taken, bounded time, memory and depth
meta: {"kind": "tool", "limit": 500}
"""
import json
import os
import shutil
from pathlib import Path
from fctool import children_peak_mib, done, make_run, sane, say, tool

base = make_run("base")
names = ["run.json", *(str(p.relative_to(base)) for p in base.glob("ranks/*.json")), *(p.name for p in base.glob("findings*.json"))]


def sparse(p):
    with open(p, "wb") as f:
        f.truncate(6 << 30)


def deep(p):
    p.write_text("[" * 100000 + "]" * 100000)


def long_number(p):
    p.write_text('{"attempts": [{"attempt": ' + "9" * 1000000 + '}], "schema_version": 1, "findings": [' + "1e999," * 1000 + "1]}")


def wrong(p):
    def turned(x):
        if isinstance(x, dict):
            return [turned(v) for v in x.values()]
        if isinstance(x, list):
            return {str(i): turned(v) for i, v in enumerate(x)}
        return {"a": None} if isinstance(x, str) else "text" if x is not None else -1

    try:
        data = json.loads(p.read_text())
    except ValueError:
        data = {}
    p.write_text(json.dumps({k: turned(v) for k, v in data.items()} if isinstance(data, dict) else 5))


def text(p):
    p.write_bytes(b"\xff\xfe\x00{" + os.urandom(2000))


for change in (sparse, deep, long_number, wrong, text):
    run = Path("run-" + change.__name__)
    shutil.copytree(base, run)
    for name in names:
        if (run / name).exists():
            change(run / name)
    for args in (("stats", run), ("layers", run), ("top", run), ("report", run, "-o", f"{run}.html"), ("report", run, "--summary")):
        sane(tool(*args, timeout=60), f"{change.__name__}: {' '.join(map(str, args[:1] + args[2:3]))}")
    if change is sparse:
        shutil.rmtree(run)
say(children_peak_mib() < 1500, "no command took more than 1.5 GiB", children_peak_mib())
done()
