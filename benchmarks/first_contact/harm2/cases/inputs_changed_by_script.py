"""Inputs, targets and outputs are reused and overwritten in place right after the call, before backward and the step, and resized to nothing (FSDP's trick).

Source: https://github.com/pytorch/pytorch/pull/18223
"""
# PRELUDE
m = net(); W(m); opt = torch.optim.SGD(m.parameters(), 0.1); x = torch.empty(6, 8)
class Lin(nn.Module):
    def __init__(self): super().__init__(); self.s = nn.Parameter(torch.ones(8))
    def forward(self, x): return (x * 1.0).sum() * self.s.sum()
k = Lin(); W(k); ok = torch.optim.SGD(k.parameters(), 1e-3)
for s in range(4):
    a, y = batch(s); x.copy_(a); out = m(x.clone()); x.zero_(); loss = F.mse_loss(out, y); y.fill_(1e9) if False else None; opt.zero_grad(); loss.backward(); out.detach().fill_(7); opt.step(); print(float(loss.detach()).hex(), H(out))
    z = a.clone(); l = k(z); n = z.untyped_storage().nbytes(); z.untyped_storage().resize_(0); ok.zero_grad(); l.backward(); ok.step(); print(z.untyped_storage().nbytes(), float(l.detach()).hex()); z.untyped_storage().resize_(n)
print(M(m), M(k))
