"""Links to other files, loops of links, a pipe, a socket, a device in a run's folder: refused, none waited for, none followed.

source: public reports on archive and log readers that follow links; own arrangement
truth: docs/promises.md: "links in a run's folder ... are refused, and pipes are not waited for"
meta: {"kind": "tool", "limit": 400}
"""
import os
import shutil
import socket
from pathlib import Path
from fctool import done, make_run, sane, say, tool

Path("secret.txt").write_text('{"attempts": [{"command": "TOPSECRET-1"}], "x": "TOPSECRET-2"}')
base = make_run("base", bad=-1)


def variant(name, change):
    run = Path(name)
    shutil.copytree(base, run, symlinks=True)
    change(run)
    seen = b""
    for args in (("stats", run), ("layers", run), ("top", run), ("report", run, "-o", f"{name}.html")):
        result = tool(*args, timeout=45)
        sane(result, f"{name}: {args[0]}", limit=45)
        seen += result[1] + result[2]
    page = Path(f"{name}.html")
    seen += page.read_bytes() if page.exists() else b""
    say(b"TOPSECRET" not in seen, f"{name}: nothing of the linked file is shown")


def link_json(run):
    (run / "run.json").unlink(missing_ok=True)
    (run / "run.json").symlink_to(os.path.abspath("secret.txt"))


def pipe_part(run):
    os.mkfifo(run / "statistics" / "rank0-1-9.parquet")
    os.mkfifo(run / "findings-rank0.json") if not (run / "findings-rank0.json").exists() else None


def pipe_json(run):
    (run / "run.json").unlink(missing_ok=True)
    os.mkfifo(run / "run.json")
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(run / "statistics")
    s.bind("rank0-1-8.parquet")
    os.chdir(here)


def loops(run):
    (run / "statistics" / "loop").symlink_to("..")
    (run / "ranks" / "rank0-2.json").symlink_to("rank0-2.json")
    shutil.rmtree(run / "debug_logs", ignore_errors=True)
    (run / "debug_logs").symlink_to("debug_logs")


def device(run):
    (run / "statistics" / "rank0-1-7.parquet").symlink_to("/dev/zero")
    shutil.move(run / "ranks", run / "moved")
    (run / "ranks").symlink_to("moved")


def folders(run):
    (run / "run.json").unlink(missing_ok=True)
    (run / "run.json").mkdir()
    (run / "statistics" / "rank0-1-6.parquet").mkdir()
    (run / "findings-rank3.json").mkdir()


for name, change in (("linked", link_json), ("pipe", pipe_part), ("pipe2", pipe_json), ("loops", loops), ("device", device), ("folders", folders)):
    variant(name, change)
done()
