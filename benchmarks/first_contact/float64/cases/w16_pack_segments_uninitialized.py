"""Jagged to padded, cut at a maximum length; the backward's buffer is torch.empty and rows of cut segments are never written. Truth: their gradient is zero.

Source: pytorch/FBGEMM#5754 (pack_segments' backward leaves rows of longer segments unwritten)
"""
import hashlib
import math

import torch
import torch.nn.functional as F
from torch import nn

LOW, FIXED = torch.float32, False


@torch.library.custom_op("w16::pack", mutates_args=())
def pack(x: torch.Tensor, lengths: torch.Tensor, most: int) -> torch.Tensor:
    out = x.new_zeros(len(lengths), most, x.shape[1])
    at = 0
    for i, n in enumerate(lengths.tolist()):
        k = min(n, most)
        out[i, :k] = x[at : at + k]
        at += n
    return out


@torch.library.custom_op("w16::unpack", mutates_args=())
def unpack(g: torch.Tensor, lengths: torch.Tensor, most: int) -> torch.Tensor:
    rows = int(lengths.sum())
    spent = [torch.full((rows, g.shape[2]), -3.25, dtype=g.dtype) for _ in range(8)]
    del spent  # memory that other tensors have left
    out = g.new_zeros(rows, g.shape[2]) if FIXED else g.new_empty(rows, g.shape[2])
    at = 0
    for i, n in enumerate(lengths.tolist()):
        k = min(n, most)
        out[at : at + k] = g[i, :k]
        at += n
    return out


def setup(ctx, inputs, output):
    _, lengths, ctx.most = inputs
    ctx.save_for_backward(lengths)


def backward(ctx, g):
    return unpack(g.contiguous(), ctx.saved_tensors[0], ctx.most), None, None  # FAULT


pack.register_autograd(backward, setup_context=setup)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 2)

    def forward(self, x, lengths):
        return self.b(pack(self.a(x).tanh(), lengths, 5).mean(1))  # FAULT


def batch(step):
    g = torch.Generator().manual_seed(100 + step)
    return (torch.randn(24, 8, generator=g).to(LOW), torch.tensor([4, 9, 3, 8])), torch.randn(4, 2, generator=g).to(LOW)


def loss_of(out, y):
    return (out - y).square().mean()


def build():
    return Net().to(LOW)


def main():
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(4):
        x, y = batch(step)
        loss = loss_of(model(*x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6g}", flush=True)
    digest = hashlib.sha256(b"".join(p.detach().float().numpy().tobytes() for p in model.state_dict().values()))
    print("weights", digest.hexdigest()[:16])


if __name__ == "__main__":
    main()
