"""Vision transformer with ReLU linear attention (EfficientViT, DIFFormer), without an epsilon below.
Source: qitianwu/DIFFormer#3 (the normalizer may contain 0), mit-han-lab/efficientvit (eps in relu_linear_att)."""
import sys, math
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(39)
EPS = 1e-5 if "--cured" in sys.argv else 0.0


class LinearAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = F.relu(q), F.relu(k)
        kv = k.transpose(-1, -2) @ v
        den = q @ k.sum(-2)[..., None]
        out = (q @ kv) / (den + EPS)  # FAULT
        return self.proj(out.transpose(1, 2).reshape(b, n, d))


class ViT(nn.Module):
    def __init__(self, dim=48, depth=2, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4, bias=False)
        self.blocks = nn.ModuleList(nn.ModuleList([nn.LayerNorm(dim, bias=False), LinearAttention(dim, 3), nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 96), nn.GELU(), nn.Linear(96, dim))]) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for n1, attn, n2, mlp in self.blocks:
            x = x + attn(n1(x))
            x = x + mlp(n2(x))
        return self.head(x.mean(1))


model = ViT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
losses = []
for step in range(12):
    images, y = torch.randn(6, 3, 16, 16), torch.randint(0, 5, (6,))
    if step == 7:
        images[1, :, 8:] = 0.0  # letterbox
    loss = F.cross_entropy(model(images), y, label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
