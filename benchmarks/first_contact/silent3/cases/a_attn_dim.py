"""Self-attention in an image model whose softmax runs over the queries (dim=1 of b, i, j, h) and not over the keys.
Source: https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146
Truth: the attention weights of a query do not sum to 1.
Could a tool know: partly: the softmax's result is multiplied along another dimension than the one it was normalized over.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class AttentionBlock(nn.Module):
    def __init__(self, c, heads=2, dk=16):
        super().__init__()
        self.heads, self.dk = heads, dk
        self.norm = nn.GroupNorm(4, c)
        self.proj, self.output = nn.Linear(c, heads * dk * 3), nn.Linear(heads * dk, c)

    def forward(self, x):
        b, c, h, w = x.shape
        s = x.view(b, c, -1).permute(0, 2, 1)
        q, k, v = self.proj(self.norm(x).view(b, c, -1).permute(0, 2, 1)).view(b, -1, self.heads, 3 * self.dk).chunk(3, dim=-1)
        attn = torch.einsum("bihd,bjhd->bijh", q, k) * self.dk**-0.5
        attn = attn.softmax(dim=2 if HEALTHY else 1)
        self.row = attn.detach().sum(2).flatten()[:4]
        res = torch.einsum("bijh,bjhd->bihd", attn, v).reshape(b, -1, self.heads * self.dk)
        return (self.output(res) + s).permute(0, 2, 1).view(b, c, h, w)


class Eps(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.attn, self.out = nn.Conv2d(1, 16, 3, padding=1), AttentionBlock(16), nn.Conv2d(16, 1, 3, padding=1)
        self.t = nn.Embedding(50, 16)

    def forward(self, x, t):
        return self.out(torch.relu(self.attn(self.inp(x) + self.t(t)[:, :, None, None])))


model = Eps()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
alpha = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 50), 0)
for step in range(150):
    x0 = torch.sign(torch.randn(16, 1, 1, 1)) * torch.ones(16, 1, 8, 8)
    t, eps = torch.randint(0, 50, (16,)), torch.randn(16, 1, 8, 8)
    a = alpha[t].view(-1, 1, 1, 1)
    loss = nn.functional.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} sums of weights of four queries {[round(v, 3) for v in model.attn.row.tolist()]}")
