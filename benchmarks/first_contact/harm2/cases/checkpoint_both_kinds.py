"""Activation checkpointing, reentrant and not, nested, with dropout, early stop and a determinism check: number of forwards.

Source: https://github.com/pytorch/pytorch/pull/90105
"""
# PRELUDE
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop
calls = []
class Block(nn.Module):
    def __init__(self, i):
        super().__init__(); self.i = i; self.l = nn.Linear(8, 8); self.d = nn.Dropout(0.3)
    def forward(self, x):
        calls.append(self.i); return x + self.d(torch.tanh(self.l(x)))
class Net(nn.Module):
    def __init__(self, kind):
        super().__init__(); self.b = nn.ModuleList(Block(i) for i in range(4)); self.kind = kind
    def forward(self, x):
        if self.kind == "nested":
            return checkpoint(lambda t: checkpoint(self.b[1], checkpoint(self.b[0], t, use_reentrant=False), use_reentrant=False), x, use_reentrant=False)
        if self.kind == "seq":
            return checkpoint_sequential(nn.Sequential(*self.b), 2, x, use_reentrant=False)
        for b in self.b:
            x = checkpoint(b, x, use_reentrant=self.kind)
        return x
for kind in (True, False, "nested", "seq"):
    torch.manual_seed(0); m = Net(kind); W(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for s in range(3):
        x = batch(s)[0].requires_grad_()
        loss = m(x).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    print(kind, calls, float(loss.detach()).hex(), M(m), R()); calls.clear()
with set_checkpoint_early_stop(False):
    m = Net(False); m(batch(0)[0].requires_grad_()).sum().backward(); print(calls)
