# what: a gradient is nan inside the graph (sqrt at 0 under where) and a tensor hook replaces it; weights stay finite
# PRELUDE
class Dist(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 4); self.b = nn.Linear(4, 4)
    def forward(self, x):
        h = self.a(x); d = h[:, None] - h[None]
        sq = d.pow(2).sum(-1)
        if sq.requires_grad: sq.register_hook(lambda g: torch.nan_to_num(g, 0., 0., 0.))
        return self.b(h), torch.sqrt(sq) * (1 - torch.eye(len(h)))
m = Dist(); W(m); opt = torch.optim.Adam(m.parameters(), lr=.01)
for s in range(5):
    x, y = batch(s); opt.zero_grad(); o, d = m(x)
    l = F.mse_loss(o, y) + (d - 1).pow(2).mean(); l.backward(); opt.step()
    print(float(l.detach()).hex(), all(p.grad.isfinite().all() for p in m.parameters()))
print(M(m), H(opt.state_dict()), R())
