"""DataLoader workers copy one NumPy generator: each worker draws the same augmentations.

Source: https://github.com/xingyizhou/CenterNet/issues/233 (and pytorch/pytorch#5059)
Truth: the noise that is added in worker 0 equals that of worker 1, counted at the end
Could a tool know: no (partly): samples differ, only the noise added to them is equal
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info

GENERATOR = np.random.default_rng(0)
BASE = torch.randn(512, 16)


class Augmented(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        noise = torch.from_numpy(GENERATOR.normal(size=16)).float()
        return BASE[i] + 0.5 * noise, (BASE[i].sum() > 0).long(), noise


def seed(worker):
    global GENERATOR
    if HEALTHY:
        GENERATOR = np.random.default_rng(torch.initial_seed() % 2**32)


if __name__ == "__main__":
    loader = DataLoader(Augmented(), 16, shuffle=True, num_workers=2, worker_init_fn=seed)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for epoch in range(8):
        for x, y, noise in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(noise)
        print(epoch, round(loss.item(), 4))
    twice = sum(torch.equal(a, b) for a, b in zip(seen[::2], seen[1::2]))
    print("end: batches with the noise of the one before", twice, "of", len(seen) // 2)
