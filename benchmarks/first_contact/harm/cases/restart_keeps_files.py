"""Three jobs into one folder, one of them killed in mid-run, two at the same time: no earlier file is changed or lost, all can be read.

source: pytorch/pytorch#76198 (restarts); own arrangement
truth: docs/promises.md: "A restart into the same folder overwrites nothing, and two jobs at once are kept apart"; parts may be merged, findings stay
meta: {"kind": "tool", "limit": 200}
"""
import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path
from fctool import TOOL, done, make_run, sane, say, tool

run = make_run("run")
keep = {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in run.rglob("*") if p.is_file() and (p.name.startswith(("findings", "report-rank")))}
say(len(keep) >= 2, "the first job left findings and report", [str(p) for p in keep])
rows = tool("stats", run, "--json", "SELECT count(*) AS n FROM stats WHERE attempt = 1")
Path("long.py").write_text("import torch\nfrom torch import nn\ntorch.manual_seed(1)\nn = nn.Linear(4, 1)\no = torch.optim.SGD(n.parameters(), 1e-3)\nimport time\nfor i in range(400):\n    l = (n(torch.randn(2, 4)) - 1).square().sum(); o.zero_grad(); l.backward(); o.step(); time.sleep(.02)\n    if i == 40: open('far', 'w').close()\n")
p = subprocess.Popen([TOOL, "run", "--config", "stats.yaml", "--log-dir", "run", "long.py"], stderr=subprocess.DEVNULL)
for _ in range(600):
    if os.path.exists("far"):
        break
    time.sleep(0.1)
p.send_signal(signal.SIGKILL)
p.wait()
sane(tool("stats", run), "stats after a kill")
pair = [subprocess.Popen([TOOL, "run", "--config", "stats.yaml", "--log-dir", "run", "train_it.py"], stderr=subprocess.DEVNULL) for _ in range(2)]
say([q.wait(120) for q in pair] == [3, 3], "two jobs at once end as one alone would")
for path, was in keep.items():
    say(path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == was, f"{path.name} of the first job is as it was")
again = tool("stats", run, "--json", "SELECT attempt, count(*) AS n FROM stats GROUP BY attempt ORDER BY attempt")
sane(again, "stats of all attempts")
found = sorted(p.name for p in run.glob("findings*"))
say(len(found) >= 3, "each job that stopped has findings of its own", found)
sane(tool("report", run, "-o", "page.html"), "report")
Path("run/report.html").write_text("somebody else's")
tool("run", "--log-dir", "run", "train_it.py", timeout=120)
say(Path("run/report.html").read_text() == "somebody else's", "a report.html of something else is not overwritten")
done()
