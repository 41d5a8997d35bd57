"""Gradient accumulation over micro-batches of very different lengths: mean of means in place of the mean over tokens.
Source: https://github.com/karpathy/nanochat/pull/59 (also huggingface/transformers issue 35203)
Truth: cosine and ratio of the accumulated gradient to that of the whole batch.
Could a tool know: no. Means of micro-batches are what most loops average.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)
class LM(nn.Module):
    def __init__(self):
        super().__init__(); self.e = nn.Embedding(20, 24); self.r = nn.GRU(24, 32, batch_first=True); self.o = nn.Linear(32, 20)
    def forward(self, t): return self.o(self.r(self.e(t))[0])
net = LM(); opt = torch.optim.AdamW(net.parameters(), 3e-3)
def micro():
    B, T = 4, 24; t = (torch.randint(0, 20, (B, 1)) + torch.arange(T + 1)) % 20
    n = 2 if torch.rand(1) < 0.5 else 24; y = t[:, 1:].clone(); y[:, n:] = -100
    if n == 2: y[:, :n] = 0          # short answers have another law
    return t[:, :-1], y
for step in range(60):
    ms = [micro() for _ in range(4)]; total = sum((y >= 0).sum() for _, y in ms); opt.zero_grad()
    for x, y in ms:
        l = F.cross_entropy(net(x).reshape(-1, 20), y.reshape(-1), ignore_index=-100, reduction="sum")
        (l / total if HEALTHY else l / (y >= 0).sum() / 4).backward()
    if step == 59: acc = torch.cat([p.grad.flatten() for p in net.parameters()])
    opt.step() if step < 59 else None
opt.zero_grad()
sum(F.cross_entropy(net(x).reshape(-1, 20), y.reshape(-1), ignore_index=-100, reduction="sum") for x, y in ms).div(total).backward()
ref = torch.cat([p.grad.flatten() for p in net.parameters()])
print(f"TRUTH cosine {F.cosine_similarity(acc, ref, 0):.3f} ratio {acc.norm() / ref.norm():.2f}")
