"""From Cerebras/modelzoo pull 85.
Wrong: q_norm and k_norm are made when the configuration asks for them, and forward never calls them.
Could know: yes, parameters in the optimizer whose modules are never called and which never get a gradient.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
class Attention(nn.Module):
    def __init__(self, d=32, h=4, qk_norm=True):
        super().__init__(); self.h = h; self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4)); self.q_norm = nn.LayerNorm(d // h) if qk_norm else None; self.k_norm = nn.LayerNorm(d // h) if qk_norm else None
    def forward(self, x):
        q, k, v = (f(x).view(*x.shape[:2], self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        if H and self.q_norm is not None: q, k = self.q_norm(q), self.k_norm(k)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
class LM(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(20, 32); self.p = nn.Parameter(.02 * torch.randn(12, 32)); self.a = nn.ModuleList(Attention() for _ in range(2)); self.n = nn.ModuleList(nn.LayerNorm(32) for _ in range(2)); self.out = nn.Linear(32, 20)
    def forward(self, x):
        x = self.e(x) + self.p
        for n, a in zip(self.n, self.a): x = x + a(n(x))
        return self.out(x)
m = LM(); opt = torch.optim.AdamW(m.parameters(), lr=3e-3)
for step in range(110):
    ids = (torch.randint(0, 20, (32, 1)) + torch.arange(13)) % 20; loss = F.cross_entropy(m(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()); opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 0: print(step, round(loss.item(), 4))
print("check: q_norm has a gradient", m.a[0].q_norm.weight.grad is not None)
