"""A mixture of experts with top-k routing, experts that get no token, an auxiliary loss, noise in the gate.

Source: arXiv:1701.06538 (noisy top-k gating)
"""
# PRELUDE
class MoE(nn.Module):
    def __init__(self, d=8, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 16), nn.GELU(), nn.Linear(16, d)) for _ in range(n))
        self.register_buffer("load", torch.zeros(n))
    def forward(self, x):
        logits = self.gate(x) + torch.randn(len(x), 4) * 0.1
        w, idx = logits.softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for e, ex in enumerate(self.experts):
            rows, k = (idx == e).nonzero(as_tuple=True)
            self.load[e] += len(rows)
            if e == 3 and len(rows) < 3:
                continue
            out.index_add_(0, rows, ex(x[rows]) * w[rows, k, None])
        return out, logits.softmax(-1).mean(0).square().sum()
torch.manual_seed(0)
m = MoE(); W(m)
opt = torch.optim.AdamW(m.parameters(), 1e-2)
for s in range(6):
    x = torch.randn(12 if s != 3 else 1, 8)
    y, aux = m(x)
    loss = (y - x).square().mean() + 0.01 * aux
    opt.zero_grad(); loss.backward(); opt.step()
    print(float(loss.detach()).hex(), m.load.tolist())
print(M(m), R())
