"""Attention by F.scaled_dot_product_attention(dropout_p=self.p) without a look at self.training: validation has dropout.
Source: https://github.com/pytorch/pytorch/issues/124464 (also huggingface/pytorch-image-models pull 1978, wenet issue 2699)
Truth: two evaluations of one batch differ in eval mode.
Could a tool know: yes. In eval mode and without gradients a module draws random numbers.
"""
import sys, torch, torch.nn.functional as F
from torch import nn
HEALTHY = "--healthy" in sys.argv
torch.set_num_threads(1); torch.manual_seed(0)

class Attention(nn.Module):
    def __init__(self, d, h, p):
        super().__init__(); self.qkv, self.out, self.h, self.p = nn.Linear(d, 3 * d), nn.Linear(d, d), h, p
    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        p = (self.p if self.training else 0.0) if HEALTHY else self.p
        return self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=p).transpose(1, 2).reshape(B, T, D))

class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 32, 2, 2); self.pos = nn.Parameter(torch.randn(1, 16, 32) * 0.02)
        self.a = nn.ModuleList(Attention(32, 4, 0.2) for _ in range(2)); self.n = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.head = nn.Linear(32, 4)
    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        for a, n in zip(self.a, self.n): x = x + a(n(x))
        return self.head(x.mean(1))

def batch():
    y = torch.randint(0, 4, (32,)); x = torch.randn(32, 1, 8, 8); x[torch.arange(32), 0, :, y * 2] += 1.5
    return x, y
model = ViT(); opt = torch.optim.AdamW(model.parameters(), 2e-3)
val = [batch() for _ in range(3)]
for step in range(160):
    model.train(); x, y = batch(); loss = F.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 19:
        model.eval()
        with torch.no_grad(): vl = sum(F.cross_entropy(model(a), b) for a, b in val) / 3
model.eval()
with torch.no_grad(): diff = (model(val[0][0]) - model(val[0][0])).abs().max()
print(f"TRUTH two evaluations differ by {diff:.3f} val {vl:.3f}")
