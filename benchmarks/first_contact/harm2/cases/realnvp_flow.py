"""A RealNVP flow: masks as buffers, log determinants, inverse, sampling; also double precision.

Source: arXiv:1605.08803 (RealNVP)
"""
# PRELUDE
class Coupling(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.s = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh())
        self.t = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
    def forward(self, x):
        h = x * self.mask
        s, t = self.s(h) * (1 - self.mask), self.t(h) * (1 - self.mask)
        return h + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)
    def inverse(self, y):
        h = y * self.mask
        s, t = self.s(h) * (1 - self.mask), self.t(h) * (1 - self.mask)
        return h + (1 - self.mask) * ((y - t) * (-s).exp())
class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        a = torch.tensor([1.0, 0, 1, 0])
        self.c = nn.ModuleList([Coupling(a), Coupling(1 - a), Coupling(a)])
    def forward(self, x):
        ld = 0
        for c in self.c:
            x, l = c(x)
            ld = ld + l
        return torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(-1) + ld
torch.manual_seed(0)
for dtype in (torch.float32, torch.float64):
    m = Flow().to(dtype); W(m)
    opt = torch.optim.NAdam(m.parameters(), 1e-2)
    for s in range(4):
        loss = -m(torch.randn(16, 4, dtype=dtype)).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        print(float(loss.detach()).hex())
    z = torch.randn(3, 4, dtype=dtype)
    with torch.no_grad():
        for c in reversed(m.c):
            z = c.inverse(z)
    print(H(z), M(m), R())
