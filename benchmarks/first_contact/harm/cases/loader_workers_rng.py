"""DataLoader workers by fork and spawn, persistent, NumPy and random in workers, generators, worker_init_fn, pids that end.

source: pytorch/pytorch#3880, pytorch/pytorch#5059, facebookresearch/fairseq#1383
meta: {"limit": 120}
"""
import os
import random
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info
from fcw import mlp, rng, say, seed, sha, watch, weights


class Data(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        info = get_worker_info()
        return torch.randn(8) + i, np.random.randint(1000), random.randint(0, 1000), info.id if info else -1


def init(i):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(i)


if __name__ == "__main__":
    seed(73)
    model = mlp(8, 8, 1)
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for how, n in (("fork", 2), ("spawn", 2), (None, 0)):
        loader = DataLoader(Data(), 4, shuffle=True, num_workers=n, multiprocessing_context=how, persistent_workers=n > 0, worker_init_fn=init if how == "fork" else None, generator=torch.Generator().manual_seed(3) if how else None)
        for epoch in range(2):
            for x, a, b, w in loader:
                loss = model(x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                say(how, epoch, loss.item().hex(), a.tolist() if how != "spawn" else "", b.tolist() if how == "fork" else "", w.tolist())
        pids = [w.pid for w in loader._iterator._workers] if n else []
        del loader
        say("gone", [not os.path.exists(f"/proc/{p}") for p in pids])
    say(sha(weights(model)), rng())
