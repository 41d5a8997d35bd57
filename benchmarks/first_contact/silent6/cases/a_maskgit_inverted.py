"""From dome272/MaskGIT-pytorch issue 14 and pull 16.
Wrong: cos(r*pi/2) tokens are to be masked, but so many are kept (the mask is used the wrong way round), and the loss is over all tokens, not
the masked ones.  Could know: no.
"""
import sys, math, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
V, MASK, N = 16, 16, 24
class T(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(V + 1, 48); self.p = nn.Parameter(torch.randn(N, 48) * .02)
        self.b = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True), 2, enable_nested_tensor=False); self.h = nn.Linear(48, V)
    def forward(self, z): return self.h(self.b(self.e(z) + self.p))
def z(n=48):
    s = torch.randint(0, V, (n, 1)); d = torch.randint(1, 3, (n, 1)); return (s + d * torch.arange(N)) % V
m = T(); opt = torch.optim.AdamW(m.parameters(), lr=2e-3, betas=(0.9, 0.96)); share = 0.
for step in range(120):
    x = z(); r = math.floor(math.cos(torch.rand(1).item() * math.pi / 2) * N); r = max(1, min(N - 1, r))
    sample = torch.rand(x.shape).topk(r, dim=1).indices
    mask = torch.zeros(x.shape, dtype=torch.bool).scatter(1, sample, True)
    keep = ~mask if H else mask
    share += (~keep).float().mean().item() / 120
    a = torch.where(keep, x, torch.full_like(x, MASK)); logits = m(a)
    loss = F.cross_entropy(logits[~keep], x[~keep]) if H else F.cross_entropy(logits.reshape(-1, V), x.reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: mean share of masked tokens (schedule: 0.64)", share)
