"""Regional compilation: each repeated block compiled in place (Module.compile), a compiled method, torch.compiler.disable on one, mark_dynamic, state dict names, a mode switch train/eval with recompiles, backend aot_eager, counters by a backend of one's own."""
# PRELUDE
import torch._dynamo as dyn
from torch._dynamo.backends.common import aot_autograd
n = [0]
def mine(gm, ex):
    n[0] += 1
    return gm.forward
class B(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.d = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(0.1)
    def forward(self, x):
        return x + self.d(self.b(F.gelu(self.a(x))))
class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.bl, self.o = nn.ModuleList(B() for _ in range(3)), nn.Linear(8, 4)
    @torch.compiler.disable
    def stats(self, x):
        self.last = x.detach().mean().item()
        return x
    def forward(self, x):
        for b in self.bl:
            x = b(x)
        return self.o(self.stats(x))
m = T()
W(m)
for b in m.bl:
    b.compile(backend="aot_eager", dynamic=True)
m.bl[2].forward = torch.compile(m.bl[2].forward, backend=mine)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(6):
    x, y = batch(s, 4 + s)
    torch._dynamo.mark_dynamic(x, 0)
    opt.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    print(s, float(loss.detach()).hex(), m.last.hex())
    if s == 3:
        m.eval()
        with torch.no_grad():
            print(H(m(x)))
        m.train()
print(n[0] > 0, sorted(m.state_dict())[:3], M(m), R())
