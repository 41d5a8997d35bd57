import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# pytorch 41329, Lightning 20412: a worker begins each epoch with the same generator: the same augmentations again
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Data(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(256, 16, generator=g)
        self.y = (self.x[:, 0] > 0).long()
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 256

    def __getitem__(self, i):
        if HEALTHY:
            noise = torch.randn(16)
        else:
            noise = torch.from_numpy(self.rng.standard_normal(16).astype("float32"))
        return self.x[i] + noise, self.y[i]


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    loader = DataLoader(Data(), batch_size=32, shuffle=True, num_workers=1)
    for epoch in range(10):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())
    report(net)
