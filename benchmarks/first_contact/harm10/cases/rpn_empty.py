#: what: a detector head: images without boxes, targets log(w/0) infinite and indexed out, mean of an empty tensor nan and replaced by 0*sum
#: benign: inf regression targets, nan of an empty mean that torch.where drops
#: source: https://github.com/pytorch/vision/issues/2144
# PRELUDE
class Det(nn.Module):
    def __init__(self): super().__init__(); self.b = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU()); self.c, self.r = nn.Conv2d(8, 1, 1), nn.Conv2d(8, 4, 1)
    def forward(self, x, targets):
        h = self.b(x); cls = self.c(h).flatten(1); reg = self.r(h).flatten(2).transpose(1, 2); losses = {"cls": 0.0, "reg": 0.0}
        for i, t in enumerate(targets):
            wh = torch.zeros(64, 2); pos = torch.zeros(64, dtype=torch.bool)
            for ix, w, hh in t: wh[ix] = torch.tensor([w, hh]); pos[ix] = True
            tgt = torch.cat([torch.zeros(64, 2), torch.log(wh / 2.0)], 1)                      # -inf where no box
            losses["cls"] = losses["cls"] + F.binary_cross_entropy_with_logits(cls[i], pos.float()); raw = F.smooth_l1_loss(reg[i][pos], tgt[pos])
            losses["reg"] = losses["reg"] + (raw if pos.any() else reg[i].sum() * 0)
        return losses
m = Det(); watch(m); opt = torch.optim.SGD(m.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
for s in range(15):
    x = torch.randn(3, 1, 8, 8); t = [[(int(k), random.random() + 1, random.random() + 1) for k in np.random.choice(64, random.randint(0, 2), replace=False)] for _ in range(3)]
    L = m(x, t); l = sum(L.values()); opt.zero_grad(); l.backward(); opt.step(); print(s, {k: float(v) for k, v in L.items()})
show(m, opt)
