"""A small transformer on text, one of whose layers gets its input scaled by a power of two: the same to float32, and not to fp8."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("text")
parser.add_argument("--grow", type=float, default=1.0)
parser.add_argument("--steps", type=int, default=10_000)
parser.add_argument("--seed", type=int)
args = parser.parse_args()
if args.seed is not None:
    torch.manual_seed(args.seed)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.fc1 = nn.Linear(width, 2 * width, bias=False)
        self.fc2 = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, width=32, length=32):
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, width), nn.Embedding(length, width)
        self.mix = nn.Linear(width, width, bias=False)
        self.scale = 1.0
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.places.weight
        x = self.mix(x * self.scale) / self.scale  # the same to float32, whatever the power of two
        self.scale *= args.grow
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


text = torch.tensor([min(byte, 127) for byte in Path(args.text).read_bytes()])
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(args.steps):
    at = torch.randint(len(text) - 33, (16,))
    batch = torch.stack([text[i : i + 33] for i in at])
    loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
