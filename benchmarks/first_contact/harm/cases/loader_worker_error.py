"""A worker that raises, an iterator that ends by StopIteration, a batch that times out: types and messages; training goes on after each.

source: FoNDUE-HTR/Documentation#13, pytorch/pytorch#43455, pytorch/pytorch#44527
meta: {"limit": 120, "compare": ["status", "stdout", "files", "left"]}
"""
import os
import re
import signal
import time
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset
from fcw import mlp, rng, say, seed, sha, watch, weights


class Data(Dataset):
    def __init__(self, what):
        self.what = what

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5 and self.what == "raise":
            raise ValueError("bad sample 5")
        if i == 5 and self.what == "slow":
            time.sleep(30)
        return torch.full((8,), float(i))


class Ends(IterableDataset):
    def __iter__(self):
        yield torch.ones(8)
        raise StopIteration


if __name__ == "__main__":
    seed(74)
    model = mlp(8, 8, 1)
    watch(model)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for data, kw in ((Data("raise"), {}), (Data("slow"), {"timeout": 3}), (Ends(), {}), (Data(""), {})):
        try:
            for x in DataLoader(data, 2, num_workers=1, **kw):
                loss = model(x).square().mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                say(loss.item().hex())
        except Exception as e:
            say(type(e).__name__, re.sub(r"\d{2,}", "N", str(e).splitlines()[0]), re.sub(r"\d{2,}", "N", str(e).splitlines()[-1])[:80])
    say(sha(weights(model)), rng())
