"""FSDP2 (fully_shard) on two gloo ranks: sentence embeddings by masked mean pooling; an empty sentence on one rank.
Source: UKPLab/sentence-transformers pooling (clamp(min=1e-9)); LAION-AI/Open-Assistant#2001 ("whole input is masked").
Run: python -m torch.distributed.run --nproc-per-node 2 f42_fsdppool.py"""
import sys, math
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
MIN = 1e-9 if "--cured" in sys.argv else 0.0


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, vocab=50, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(2))

    def forward(self, ids, mask):
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=MIN)  # FAULT
        return F.normalize(pooled, dim=-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(42)
    model = Encoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.manual_seed(7 + rank)
    losses = []
    for step in range(9):
        ids = torch.randint(1, 50, (8, 10))
        length = torch.randint(2, 11, (8,))
        if rank == 0 and step == 5:
            length[3] = 0
        mask = (torch.arange(10) < length[:, None]).float()
        a, b = model(ids, mask), model(ids.roll(1, 1), mask)
        loss = F.cross_entropy(a @ b.T * 20, torch.arange(8))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    ok = all(map(math.isfinite, losses)) and all(bool(p.to_local().isfinite().all()) for p in model.parameters())
    print(f"rank {rank} {losses}\n", end="", flush=True)
    print(f"FINITE {ok}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
