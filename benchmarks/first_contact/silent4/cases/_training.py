import copy, math, os, random, sys
os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.nn.functional as F
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0); random.seed(0)
H = "--healthy" in sys.argv
def blobs(n, d=16, c=4, s=1.0, seed=1):
    g = torch.Generator().manual_seed(seed)
    m = torch.randn(c, d, generator=torch.Generator().manual_seed(99)) * 1.2
    y = torch.randint(c, (n,), generator=g)
    return m[y] + s * torch.randn(n, d, generator=g), y
def truth(**k):
    print("TRUTH", " ".join(f"{a}={b:.5g}" if isinstance(b, float) else f"{a}={b}" for a, b in k.items()), flush=True)
def mlp(*d, act=nn.ReLU):
    l = []
    for i in range(len(d) - 1):
        l.append(nn.Linear(d[i], d[i + 1]))
        if i < len(d) - 2: l.append(act())
    return nn.Sequential(*l)
def acc(m, x, y):
    with torch.no_grad(): return (m(x).argmax(-1) == y).float().mean().item()
class Lost:
    """Notes the losses; says at the end from which step on the run was lost."""
    def __init__(s): s.l = []
    def add(s, v):
        s.l.append(float(v)); return not math.isfinite(s.l[-1])
    def end(s):
        best, lost = [], []
        b = float("inf")
        for v in s.l:
            lim = max(10 * b, 2 * s.l[0]) if b < float("inf") else float("inf")
            lost.append((not math.isfinite(v)) or v > lim)
            if math.isfinite(v): b = min(b, v)
        k = len(lost)
        while k and lost[k - 1]: k -= 1
        print("LOST", k if k < len(lost) else None, "steps", len(s.l), "first %.4g best %.4g last %.4g" % (s.l[0], b, s.l[-1]), flush=True)
