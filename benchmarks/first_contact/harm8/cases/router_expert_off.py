# what: mixture of experts: an expert is switched off in the middle of training by a router bias of -inf (frozen parameter) and on again; top-2 gates
# benign: yes
# PRELUDE
class Moe(nn.Module):
    def __init__(self): super().__init__(); self.r = nn.Linear(8, 4); self.off = nn.Parameter(torch.zeros(4), requires_grad=False); self.e = nn.ModuleList(nn.Linear(8, 4) for _ in range(4))
    def forward(self, x):
        g, i = (self.r(x) + self.off).softmax(-1).topk(2); o = torch.zeros(len(x), 4)
        for k, e in enumerate(self.e):
            b, j = (i == k).nonzero(as_tuple=True)
            if len(b): o = o.index_add(0, b, e(x[b]) * g[b, j, None])
        return o
m = Moe(); W(m); opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=.1)
for s in range(9):
    if s == 3: m.off.data[1] = -float("inf")
    if s == 5: m.off[2].fill_(-float("inf"))
    if s == 7: m.off.zero_()
    x, y = batch(s); opt.zero_grad(); l = F.mse_loss(m(x), y); l.backward(); opt.step(); print(float(l.detach()).hex(), m.off.isinf().sum().item())
print(M(m), R())
