"""For cases about numscope's other commands: runs them within limits, and says what is ok and what is harm."""

import hashlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

TOOL = os.environ["FC_VENV"] + "/bin/numscope"

TRAIN = '''
import sys; sys.path.insert(0, {lib!r})
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
    def forward(self, x):
        return self.last(torch.log(self.first(x).abs() * {zero} + x.abs().sum()))
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(12):
    opt.zero_grad()
    net(torch.full((2, 4), 0.0 if step == {bad} else 1.0)).sum().backward()
    opt.step()
'''

STATS = """all:
  enabled: true
  layers: {layer_name_regex_pattern: ".*"}
  statistics: {enabled: true, stats: [mean, std, max], tensors: [activation, output, weight], freq: 1}
"""


def tool(*args, timeout=60, stdin=b"", env=None, cwd=None, preexec=None):
    """The command's (status, stdout, stderr, seconds); status None where it did not end in time."""
    began = time.monotonic()
    try:
        p = subprocess.run([TOOL, *map(str, args)], capture_output=True, timeout=timeout, input=stdin, env={**os.environ, **(env or {})}, cwd=cwd, preexec_fn=preexec)
    except subprocess.TimeoutExpired as e:
        return None, e.stdout or b"", e.stderr or b"", time.monotonic() - began
    return p.returncode, p.stdout, p.stderr, time.monotonic() - began


def make_run(where, bad=6, stats=True):
    """A run folder, made by the tool itself: statistics, and a finding at step ``bad`` (none: -1)."""
    Path("train_it.py").write_text(TRAIN.format(lib=os.environ["FC_LIB"], zero=0 if bad >= 0 else 1, bad=bad))
    Path("stats.yaml").write_text(STATS)
    options = ["--config", "stats.yaml"] if stats else []
    status, out, err, _ = tool("run", *options, "--log-dir", where, "train_it.py", timeout=120)
    say(status == (3 if bad >= 0 else 0), "a run folder is made", status, err[-300:] if status not in (0, 3) else "")
    return Path(where)


def say(ok, what, *more):
    print("ok  " if ok else "harm", what, *([repr(m)[:300] for m in more] if not ok else []), flush=True)
    return ok


def sane(result, what, statuses=(0, 1, 2), limit=60.0):
    """Ended in time, by a status of its own, without a traceback, without a raw control character on stdout or stderr."""
    status, out, err, seconds = result
    ok = say(status is not None and seconds < limit, f"{what}: ends in time", seconds)
    ok &= say(status in statuses, f"{what}: a status of its own", status, err[-300:])
    ok &= say(b"Traceback (most recent call last)" not in err + out, f"{what}: no traceback", (err + out)[-500:])
    bad = [c for c in out + err if (c < 32 and c not in (9, 10, 13)) or c == 127]
    ok &= say(not bad, f"{what}: no control characters", bad[:10], (out + err)[:300])
    return ok


def digest(root):
    h = hashlib.sha256()
    for folder, dirs, files in os.walk(root):
        dirs.sort()
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink():
                h.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return h.hexdigest()[:16]


def children_peak_mib():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def done():
    print("done", flush=True)
