#: what: VQ-VAE with an EMA codebook in buffers: codes that nobody used divide 0 by 0 in a temporary that torch.where drops, dead codes replaced, straight-through gradient
#: benign: nan of 0/0 in an in-place buffer update, dropped
#: source: https://github.com/lucidrains/vector-quantize-pytorch/issues/38
# PRELUDE
class VQ(nn.Module):
    def __init__(self, K=24, d=4): super().__init__(); self.register_buffer("emb", torch.randn(K, d)); self.register_buffer("n", torch.zeros(K)); self.register_buffer("avg", torch.zeros(K, d))
    def forward(self, z):
        ix = torch.cdist(z, self.emb).argmin(1); q = self.emb[ix]
        if self.training:
            with torch.no_grad():
                one = F.one_hot(ix, len(self.emb)).type_as(z); self.n.mul_(0.9).add_(one.sum(0), alpha=0.1); self.avg.mul_(0.9).add_(one.T @ z, alpha=0.1); mean = self.avg / self.n[:, None]; self.emb.copy_(torch.where(self.n[:, None] > 0, mean, self.emb)); self.last = torch.isnan(mean).sum().item()
        return z + (q - z).detach(), F.mse_loss(z, q.detach()), ix
class AE(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)); self.vq = VQ(); self.d = nn.Linear(4, 8)
    def forward(self, x): q, c, ix = self.vq(self.e(x)); return self.d(q), c, ix
m = AE(); watch(m); opt = torch.optim.Adam(m.parameters(), 3e-3)
for s in range(25):
    x = torch.randn(16, 8); r, c, ix = m(x); l = F.mse_loss(r, x) + 0.25 * c; opt.zero_grad(); l.backward(); opt.step(); p = torch.bincount(ix, minlength=24) / 16; ppl = torch.exp(-(p * p.log()).nansum()); print(l.item(), m.vq.last, ppl.item())
show(m, opt)
