import torch
import torch.multiprocessing as mp
from torch import nn


def train(rank):
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    opt = torch.optim.SGD(m.parameters(), lr=1e30)
    for _ in range(3):
        loss = m(torch.ones(2, 4)).sum()  # FAULT
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(loss.item())


if __name__ == "__main__":
    mp.spawn(train, nprocs=1)
