# what: Glow's ActNorm: parameters start as nan and are set from the first batch inside the forward
# benign: yes
# PRELUDE
class Act(nn.Module):
    def __init__(self): super().__init__(); self.loc = nn.Parameter(torch.full((8,), float("nan"))); self.scale = nn.Parameter(torch.full((8,), float("nan"))); self.register_buffer("init", torch.tensor(0, dtype=torch.uint8))
    def forward(self, x):
        if self.init == 0:
            with torch.no_grad(): self.loc.copy_(-x.mean(0)); self.scale.copy_(1 / (x.std(0) + 1e-6)); self.init.fill_(1)
        return self.scale * (x + self.loc), self.scale.abs().log().sum()
class Flow(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.ModuleList(Act() for _ in range(2)); self.w = nn.Parameter(torch.linalg.qr(torch.randn(8, 8))[0])
    def forward(self, x):
        ld = 0
        for a in self.a: x, l = a(x); ld = ld + l + torch.slogdet(self.w)[1]; x = x @ self.w
        return x, ld
m = Flow(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5): x, _ = batch(s); opt.zero_grad(); z, ld = m(x); l = z.pow(2).sum(1).mean() / 2 - ld; l.backward(); opt.step(); print(float(l.detach()).hex())
print(M(m), R())
