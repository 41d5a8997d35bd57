# Princeton-Robot-Planning-and-Learning/kinder-baselines#140: running statistics of observations (in the environment's wrapper) are not saved; PPO with two optimizers
import hashlib, os, sys
import numpy as np, torch
from torch import nn
fault = "--fault" in sys.argv
stop = int(sys.argv[sys.argv.index("--stop") + 1]) if "--stop" in sys.argv else 1000
class Rms:
    def __init__(self): self.mean, self.var, self.count = np.zeros(4), np.ones(4), 1e-4
    def __call__(self, x):
        bm, bv, bc = x.mean(0), x.var(0), len(x); d = bm - self.mean; t = self.count + bc; self.var = (self.var * self.count + bv * bc + d ** 2 * self.count * bc / t) / t; self.mean = self.mean + d * bc / t; self.count = t
        return ((x - self.mean) / np.sqrt(self.var + 1e-8)).astype(np.float32)
torch.manual_seed(24); pi = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)); v = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1)); po, vo = torch.optim.Adam(pi.parameters(), 3e-3), torch.optim.Adam(v.parameters(), 1e-2); rms = Rms(); n = 0
if os.path.exists("agent.pkl"):
    c = torch.load("agent.pkl", weights_only=False); n = c["n"]
    for a, b in zip((pi, v, po, vo), c["parts"]): a.load_state_dict(b)
    if not fault: rms.mean, rms.var, rms.count = c["rms"]
while n < stop:
    r = np.random.default_rng(n); obs = torch.from_numpy(rms(r.normal(3, 5, (64, 4)))); act = torch.from_numpy(r.integers(0, 3, 64)); ret = torch.from_numpy(r.normal(size=64).astype(np.float32))
    adv = ret - v(obs)[:, 0].detach(); old = pi(obs).log_softmax(-1).gather(1, act[:, None])[:, 0].detach()
    for _ in range(2):
        ratio = (pi(obs).log_softmax(-1).gather(1, act[:, None])[:, 0] - old).exp(); pl = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean(); po.zero_grad(); pl.backward(); po.step()
        vl = (v(obs)[:, 0] - ret).square().mean(); vo.zero_grad(); vl.backward(); vo.step()
    n += 1; print(n, repr(pl.item()), repr(vl.item()), flush=True)
    if n % 5 == 0: torch.save({"parts": [q.state_dict() for q in (pi, v, po, vo)], "rms": (rms.mean, rms.var, rms.count), "n": n}, "agent.pkl")
print("end", hashlib.sha256(b"".join(p.detach().numpy().tobytes() for m in (pi, v) for p in m.parameters())).hexdigest()[:16])
