"""Glow: ActNorm with data-dependent initialization in the first batch, invertible 1x1 convolutions by LU and by slogdet, inverse for sampling, bits per dim; weights."""
# PRELUDE
class Act(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.loc, self.s = nn.Parameter(torch.zeros(1, c, 1, 1)), nn.Parameter(torch.ones(1, c, 1, 1))
        self.register_buffer("init", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.init.item() == 0:
            with torch.no_grad():
                f = x.transpose(0, 1).flatten(1)
                self.loc.data.copy_(-f.mean(1).view(1, -1, 1, 1))
                self.s.data.copy_(1 / (f.std(1).view(1, -1, 1, 1) + 1e-6))
            self.init.fill_(1)
        return self.s * (x + self.loc), x[0, 0].numel() * self.s.abs().log().sum()


class Inv(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.linalg.qr(torch.randn(c, c))[0])

    def forward(self, x):
        return F.conv2d(x, self.w[..., None, None]), x[0, 0].numel() * torch.linalg.slogdet(self.w.double())[1].float()


class Coup(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n = nn.Sequential(nn.Conv2d(c // 2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, c, 3, padding=1))
        nn.init.zeros_(self.n[-1].weight), nn.init.zeros_(self.n[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        s, t = self.n(a).chunk(2, 1)
        s = torch.sigmoid(s + 2)
        return torch.cat([a, (b + t) * s], 1), s.log().sum((1, 2, 3))


m = nn.ModuleList(l for _ in range(3) for l in (Act(4), Inv(4), Coup(4)))
W(m)
opt = torch.optim.Adam(m.parameters(), 1e-3)
for k in range(5):
    x = torch.randn(4, 4, 6, 6, generator=torch.Generator().manual_seed(k))
    ld = 0
    for l in m:
        x, d = l(x)
        ld = ld + d
    loss = -(torch.distributions.Normal(0.0, 1.0).log_prob(x).sum((1, 2, 3)) + ld).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(k, loss.item().hex())
print(M(m), [int(b) for n, b in m.named_buffers()])
