"""Escape codes, OSC links, bidi marks and markup in names of layers, files and messages of a run: shown as text by all readers.

source: EONRaider/RootWire#53, jamie8johnson/cqs#1341, GingerGraham/bash-logger#36
truth: docs: "Text from files is escaped before a terminal sees it"; on the page names are text, never markup
meta: {"kind": "tool", "limit": 300}
"""
import json
import re
from fctool import done, make_run, sane, say, tool

EVIL = "\x1b[2J\x1b]0;owned\x07\x1b]8;;file:///etc/passwd\x1b\\x\u202egnp.\u2066</script><img src=x onerror=alert(1)>\x00\x9b31m\r\n[ok] forged"


def poison(x, depth=0):
    if isinstance(x, dict):
        return {k: poison(v, depth + 1) if k not in ("dtype", "kind", "phase", "schema_version", "format", "start", "time") else v for k, v in x.items()}
    if isinstance(x, list):
        return [poison(v, depth + 1) for v in x]
    return x + EVIL if isinstance(x, str) else x


run = make_run("run")
for path in [*run.glob("*.json"), *run.glob("ranks/*.json")]:
    try:
        data = json.loads(path.read_text())
    except ValueError:
        continue
    path.write_text(json.dumps(poison(data)))
(run / ("findings-rank1.json" + "\x1b[31m")).write_text("{}")
(run / "statistics" / "rank\x1b[31m-1-1.parquet").write_bytes(b"PAR1")
(run / "report-rank9.txt").write_text(EVIL)
for args in (("stats", run), ("stats", run, "SELECT layer, cls FROM stats LIMIT 3"), ("stats", run, "--csv", "SELECT layer FROM stats LIMIT 3"), ("top", run), ("layers", run), ("report", run, "-o", "page.html"), ("report", run, "--summary"), ("stats", run, "SELECT '" + EVIL.replace("\x00", "") + "'")):
    sane(tool(*args), " ".join(map(str, args[:2])) + (" …" if len(args) > 2 else ""))
try:
    html = open("page.html", encoding="utf-8", errors="replace").read()
    say("<img src=x" not in html, "no markup of a name in the page")
    say("\u202e" not in html and "\x1b" not in html, "no turning or control character in the page")
    say(not re.search(r"</script><img", html), "no end of a script in the page")
except OSError as e:
    print("no page was made:", e)
md = run / "summary.md"
if md.exists():
    say("\x1b" not in md.read_text() and "\u202e" not in md.read_text(), "no control character in summary.md")
done()
