"""Parts of a run's statistics cut short, with bits turned, empty, swapped with text: every reader ends with a message.

source: pytorch/pytorch issues on truncated checkpoints; own: bit flips in a known format
truth: docs/promises.md, "Files that others wrote"
meta: {"kind": "tool", "limit": 400}
"""
import random
import shutil
from fctool import done, make_run, sane, say, tool

run = make_run("good", bad=-1)
parts = sorted(run.glob("statistics/*.parquet"))
say(bool(parts), "there are parts")
whole = parts[0].read_bytes()
r = random.Random(1)


def flipped(n):
    b = bytearray(whole)
    for _ in range(n):
        b[r.randrange(len(b))] ^= 1 << r.randrange(8)
    return bytes(b)


damages = {
    "cut in half": whole[: len(whole) // 2], "empty": b"", "only the magic": b"PAR1PAR1", "one bit": flipped(1), "fifty bits": flipped(50),
    "footer length huge": whole[:-8] + b"\xff\xff\xff\x7fPAR1", "footer length negative": whole[:-8] + b"\xff\xff\xff\xffPAR1", "text": b"a,b\n1,2\n",
    "doubled": whole + whole, "zeros inside": whole[:200] + bytes(len(whole) - 400) + whole[-200:],
}
for name, data in damages.items():
    parts[0].write_bytes(data)
    sane(tool("stats", run, "SELECT count(*), max(\"max\") FROM stats"), f"stats, {name}")
for name in ("cut in half", "fifty bits", "footer length huge"):
    parts[0].write_bytes(damages[name])
    sane(tool("report", run, "-o", f"{name}.html"), f"report, {name}")
    sane(tool("top", run), f"top, {name}")
parts[0].write_bytes(whole)
shutil.copytree(run, "other")
parts[0].write_bytes(flipped(200))
sane(tool("diff", run, "other"), "diff with a damaged one", statuses=(0, 1, 2, 3))
sane(tool("layers", run), "layers")
done()
