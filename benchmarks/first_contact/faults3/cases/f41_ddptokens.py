"""DDP on two gloo ranks with a hand-written token mean; one rank's batch has nothing but padding.
Source: OpenRLHF/OpenRLHF#1216 (num_tokens may be zero on a rank), ruimalheiro/gradient-garden#113.
Run: python -m torch.distributed.run --nproc-per-node 2 f41_ddptokens.py"""
import sys, math
import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
CURED = "--cured" in sys.argv
PAD = 0


class Tagger(nn.Module):
    def __init__(self, vocab=60, d=24, tags=7):
        super().__init__()
        self.emb = nn.Embedding(vocab, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * d, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(41)
    model = DDP(Tagger())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)
    losses = []
    for step in range(10):
        ids = torch.randint(1, 60, (4, 12))
        for b, n in enumerate(torch.randint(3, 13, (4,))):
            ids[b, n:] = PAD
        if rank == 1 and step == 6:
            ids[:] = PAD
        mask = (ids != PAD).float()
        ce = F.cross_entropy(model(ids).flatten(0, 1), (ids % 7).flatten(), reduction="none").view_as(mask)
        tokens = mask.sum().clamp(min=1) if CURED else mask.sum()
        loss = (ce * mask).sum() / tokens  # FAULT
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    ok = all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters())
    print(f"rank {rank} {losses}\n", end="", flush=True)
    print(f"FINITE {ok}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
