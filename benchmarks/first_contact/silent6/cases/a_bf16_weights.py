"""From meta-pytorch/torchtune issue 2254.
Wrong: weights and optimizer in bfloat16, with a fine-tuning rate: most updates are rounded away.
Could know: yes, updates below half an ulp of the weights.
"""
import sys, torch, torch.nn as nn, torch.nn.functional as F
H = "--healthy" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)
dtype = torch.float32 if H else torch.bfloat16
class LM(nn.Module):
    def __init__(self): super().__init__(); self.e = nn.Embedding(64, 64); self.b = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(3)); self.o = nn.Linear(64, 64)
    def forward(self, x):
        h = self.e(x)
        for f in self.b: h = h + f(h)
        return self.o(h)
m = LM().to(dtype); opt = torch.optim.AdamW(m.parameters(), lr=5e-5, weight_decay=0.); perm = torch.randperm(64); w0 = m.e.weight.detach().clone(); hist = []
for step in range(200):
    x = torch.randint(0, 64, (64, 8)); loss = F.cross_entropy(m(x).float().flatten(0, 1), perm[x].flatten()); opt.zero_grad(); loss.backward(); opt.step(); hist.append(loss.item())
    if step % 25 == 0: print(step, round(loss.item(), 4))
print("check: share of embedding elements that have moved", (m.e.weight != w0).float().mean().item(), "loss", sum(hist[-10:]) / 10)
