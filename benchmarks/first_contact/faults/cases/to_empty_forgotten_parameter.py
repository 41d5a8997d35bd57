"""A model made on the meta device and materialised by to_empty: one parameter is left out of init_weights. (Deterministic mode fills such memory with nan.)
Source: karpathy/nanochat#686, gordicaleksa/pytorch-GAT#11, sauradip/STALE#16."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.use_deterministic_algorithms(True)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.fc, self.norm = nn.Linear(w, w), nn.LayerNorm(w)
        self.mix = nn.Parameter(torch.zeros(w))

    def forward(self, x):
        return x + self.mix * self.fc(self.norm(x))  # FAULT


class GPTish(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.blocks = nn.ModuleList(Block(12) for _ in range(2))
        self.head = nn.Linear(12, 30)

    def init_weights(self):
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding, nn.LayerNorm)):
                m.reset_parameters()
        if CURED:
            for b in self.blocks:
                nn.init.zeros_(b.mix)

    def forward(self, ids):
        x = self.embed(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


with torch.device("meta"):
    net = GPTish()
net.to_empty(device="cpu")  # FAULT
net.init_weights()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(30, (2, 7))
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
