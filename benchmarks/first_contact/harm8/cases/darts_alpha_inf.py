# what: architecture search: the weakest operation of each edge is switched off by alpha = -inf after every epoch (softmax gives it 0); weights stay trained
# benign: yes
# PRELUDE
class Mixed(nn.Module):
    def __init__(self): super().__init__(); self.ops = nn.ModuleList([nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Identity(), nn.Tanh()]); self.alpha = nn.Parameter(1e-3 * torch.randn(4))
    def forward(self, x): return sum(w * o(x) for w, o in zip(self.alpha.softmax(0), self.ops))
m = nn.Sequential(Mixed(), Mixed(), nn.Linear(8, 4)); W(m); al = [c.alpha for c in m[:2]]; ids = {id(a) for a in al}
wo, ao = torch.optim.SGD([p for p in m.parameters() if id(p) not in ids], lr=.05), torch.optim.Adam(al, lr=.05)
for e in range(3):
    for s in range(3):
        x, y = batch(10 * e + s); ao.zero_grad(); F.mse_loss(m(x), y).backward(); ao.step(); x, y = batch(10 * e + s + 5); wo.zero_grad(); l = F.mse_loss(m(x), y); l.backward(); wo.step(); print(float(l.detach()).hex())
    with torch.no_grad():
        for a in al: a[torch.where(a.isinf(), torch.inf, a).argmin()] = -float("inf")
    print([a.tolist().count(-float("inf")) for a in al], all(p.grad is None or p.grad.isfinite().all() for p in m.parameters()))
print(M(m), R())
