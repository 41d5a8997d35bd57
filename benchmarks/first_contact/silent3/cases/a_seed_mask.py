"""A masked autoencoder seeds the generator in forward before drawing its mask: all steps mask the same patches.
Source: https://github.com/PaddlePaddle/Paddle/issues/7796 (a dropout that always used one seed)
Truth: one mask in all steps; half of the patches are never predicted.
Could a tool know: partly: the generator's state is the same at each call of the model; a drawn mask is the same in all steps.
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class MAE(nn.Module):
    def __init__(self, seed=42):
        super().__init__()
        self.seed = seed
        self.inp = nn.Linear(6, 32)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True), 1)
        self.pos, self.mask_token = nn.Parameter(torch.randn(12, 32) * 0.1), nn.Parameter(torch.zeros(32))
        self.out = nn.Linear(32, 6)

    def forward(self, x):
        if not HEALTHY:
            torch.manual_seed(self.seed)
        self.mask = torch.rand(12).argsort() < 6
        h = torch.where(self.mask[:, None], self.mask_token, self.inp(x)) + self.pos
        return ((self.out(self.enc(h)) - x) ** 2)[:, self.mask].mean()


model = MAE()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
g = torch.Generator().manual_seed(1)
seen = set()
base = torch.randn(3, 12, 6)
for step in range(120):
    x = (torch.randn(16, 3, generator=g) @ base.flatten(1)).view(16, 12, 6) * 0.5
    loss = model(x)
    seen.add(tuple(model.mask.tolist()))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f} different masks {len(seen)}")
