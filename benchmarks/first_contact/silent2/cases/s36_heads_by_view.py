"""Recommender with self-attention over fields: heads are split by view(B * h, -1, d) without transpose, so heads attend over scrambled fields.
Source: https://github.com/reczoo/FuxiCTR/issues/30 (also hyunwoongko/transformer issue 15, jsbaan/transformer-from-scratch pull 6)
Truth: field 0 of head 0 as seen by attention is not field 0.
Could a tool know: no. A view is a view; partly where causality is meant.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0); H, D = 4, 32
class MHSA(nn.Module):
    def __init__(self): super().__init__(); self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
    def split(self, t):
        B, L, _ = t.shape; return t.view(B, L, H, D // H).transpose(1, 2).reshape(B * H, L, -1) if HEALTHY else t.view(B * H, -1, D // H)
    def forward(self, x):
        B, L, _ = x.shape; q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        o = (q @ k.transpose(1, 2) / (D // H) ** 0.5).softmax(-1) @ v
        return self.o(o.view(B, H, L, -1).transpose(1, 2).reshape(B, L, D) if HEALTHY else o.view(B, L, D)) + x
class AutoInt(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.ModuleList(nn.Embedding(10, D) for _ in range(6)); self.a = nn.ModuleList(MHSA() for _ in range(2)); self.f = nn.Linear(6 * D, 1)
    def forward(self, x):
        h = torch.stack([e(x[:, i]) for i, e in enumerate(self.e)], 1)
        for a in self.a: h = a(h).relu()
        return self.f(h.flatten(1))[:, 0]
net = AutoInt(); opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(120):
    x = torch.randint(0, 10, (64, 6)); y = ((x[:, 0] + x[:, 3]) % 2).float(); p = net(x); loss = F.binary_cross_entropy_with_logits(p, y); opt.zero_grad(); loss.backward(); opt.step()
t = torch.arange(6.0)[None, :, None].expand(1, 6, D).contiguous(); s = net.a[0].split(t)[0]
print(f"TRUTH fields seen by head 0 at place 0..5: {s[:, 0].tolist()} loss {loss:.3f}")
