"""Trains a small GPT on the text of Python's own manual. An ordinary training script in float32: it knows nothing of numscope or fp8.

python examples/train_gpt.py [--steps 100] [--swing 1048576]

``--swing`` plants what harms fp8 alone: on every other step one layer sees its input that many times as large, and its result is divided
by as much. With a power of two, float32 computes the same to the last bit; a scale that is taken from the steps before fits neither.
"""

from __future__ import annotations

import argparse
import pydoc_data.topics

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LENGTH, BATCH = 64, 64, 8


def manual() -> torch.Tensor:
    """The reference manual that ships with Python, as bytes."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.mix, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 256)

    def forward(self, ids: torch.Tensor, swing: float) -> torch.Tensor:
        x = self.token(ids) + self.place.weight
        for block in self.blocks:
            x = block(x)
        x = self.mix(self.norm(x) * swing) / swing
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--swing", type=float, default=1.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a model gains nothing from more, and with one the run is the same every time
    text, model = manual(), GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(args.steps):
        piece = torch.stack([text[s : s + LENGTH + 1] for s in torch.randint(len(text) - LENGTH - 1, (BATCH,)).tolist()])
        logits = model(piece[:, :-1], args.swing if step % 2 else 1.0)
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 >= 8:
            print(f"step {step:3d}  loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
