"""Diffusion with zero noise at t=0: its SNR is inf, clamped (Min-SNR weighting); EMA; sampling with guidance and dynamic thresholds."""
# PRELUDE
import copy
seed(25)
T = 20
ab = torch.cos(torch.linspace(0, 1, T) * math.pi / 2) ** 2
ab[0], ab[-1] = 1.0, 0.0
snr = ab / (1 - ab)
print("snr", dig(snr), int(snr.isinf().sum()))


class Den(nn.Module):
    def __init__(self):
        super().__init__()
        self.t, self.c = nn.Embedding(T, 16), nn.Embedding(4, 16)
        self.n = nn.Sequential(nn.Linear(4 + 32, 64), nn.SiLU(), nn.Linear(64, 4))

    def forward(self, x, t, c):
        return self.n(torch.cat([x, self.t(t), self.c(c)], 1))


net = Den()
ema = copy.deepcopy(net).requires_grad_(False)
watch(net)
opt = torch.optim.AdamW(net.parameters(), 2e-3)
for step in range(30):
    x, c, t, n = torch.randn(32, 4) * 0.1 + 1, torch.randint(0, 4, (32,)), torch.randint(0, T, (32,)), torch.randn(32, 4)
    a = ab[t][:, None]
    v = a.sqrt() * n - (1 - a).sqrt() * x
    w = torch.clamp(snr[t], max=5) / (snr[t] + 1)
    w = torch.where(snr[t].isinf(), torch.zeros(()), w)
    loss = (F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * n, t, c), v, reduction="none").mean(1) * w).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), net.parameters()):
            p.lerp_(q, 0.1)
    if step % 10 == 9:
        with torch.no_grad():
            z = torch.randn(3, 4)
            for s in range(T - 1, 0, -1):
                tt = torch.full((3,), s)
                o = ema(z, tt, torch.zeros(3).long())
                u = ema(z, tt, torch.ones(3).long())
                v = u + 2 * (o - u)
                x0 = ab[s].sqrt() * z - (1 - ab[s]).sqrt() * v
                e = (z - ab[s].sqrt() * x0) / (1 - ab[s]).sqrt()
                z = ab[s - 1].sqrt() * x0 + (1 - ab[s - 1]).sqrt() * e
            q = torch.quantile(z.abs(), 0.9)
            print(step, dig(z, q))
    print(step, dig(loss))
end(net, opt)
