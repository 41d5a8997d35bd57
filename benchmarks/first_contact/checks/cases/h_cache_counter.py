"""Model with a counter, a running mean, a memory queue (MoCo) and a mask cache in attributes; warm-up by the counter."""
from _c import *
class M(nn.Module):
    def __init__(self): super().__init__(); self.f = nn.Linear(10, 16); self.o = nn.Linear(16, 3); self.n = 0; self.cache = {}; self.hist = []; self.register_buffer("q", F.normalize(torch.randn(32, 16), dim=-1)); self.ptr = 0; self.mean = None
    def forward(self, x):
        self.n += 1; h = self.f(x).tanh() * min(1., self.n / 4); k = x.shape[0]
        if k not in self.cache: self.cache[k] = torch.rand(k, 1)
        self.mean = h.detach().mean(0) if self.mean is None else .9 * self.mean + .1 * h.detach().mean(0); sim = h @ self.q.clone().t()
        with torch.no_grad(): self.q[self.ptr:self.ptr + 4] = F.normalize(h[:4].detach(), dim=-1); self.ptr = (self.ptr + 4) % 32
        self.hist.append(float(h.detach().mean())); return self.o(h - self.mean + sim.mean(-1, keepdim=True) * self.cache[k]) + sum(self.hist[-3:])
m = M(); x = torch.randn(6, 16, 10); y = torch.randint(3, (6, 16)); fit(m, lambda s: F.cross_entropy(m(x[s]), y[s]), lr=.1)
