"""Empty batches, zero-size parameters, scalar parameters, integer and boolean outputs, no gradients at all, no parameters at all.

Source: invented
"""
# PRELUDE
class Net(nn.Module):
    def __init__(self): super().__init__(); self.s = nn.Parameter(torch.tensor(0.5)); self.z = nn.Parameter(torch.zeros(0, 3)); self.l = nn.Linear(8, 4); self.e = nn.Embedding(1, 4)
    def forward(self, x): y = self.l(x) * self.s + self.e(torch.zeros(len(x), dtype=torch.long)); return y, y > 0, y.argmax(-1), self.z.sum(), y.long()
torch.manual_seed(0); m = Net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
for n in (6, 0, 1, 0, 3):
    x = batch(n, max(n, 1))[0][:n]; y, b, i, z, k = m(x); loss = y.square().sum() + z; opt.zero_grad(); loss.backward(); opt.step(); print(n, float(loss.detach()).hex(), b.sum().item(), i.tolist(), H(m.z.grad))
class No(nn.Module):
    def forward(self, x): return x * 2
k = No(); W(k); print(k(torch.ones(2)).tolist(), nn.Sequential()(3), M(m)); x = torch.ones(2, requires_grad=True); k(x).sum().backward(); print(x.grad.tolist())
