"""A recursive module 240 levels deep, which fits in Python's limit of 1,000 frames bare (three frames a level).

Source: https://github.com/pytorch/pytorch/issues/6959
"""
# PRELUDE
class Tree(nn.Module):
    def __init__(self, d):
        super().__init__(); self.l = nn.Linear(4, 4); self.child = Tree(d - 1) if d else None
    def forward(self, x):
        return x + 0.01 * self.l(x if self.child is None else self.child(x))
torch.manual_seed(0); m = Tree(240)
opt = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3):
    loss = m(batch(s, i=4)[0]).square().mean(); opt.zero_grad(); loss.backward(); opt.step(); print(float(loss.detach()).hex())
print(M(m), sys.getrecursionlimit())
