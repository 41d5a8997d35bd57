"""mp.spawn, 2 gloo ranks, DDP: rank 0 draws a row whose log1p target is below -1.
Source: Own: RMSLE of a negative label."""
import os
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CURED = "--cured" in sys.argv


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.body(x).squeeze(1)


def rmsle(pred, y):
    if CURED:
        y = y.clamp(min=0)
    return (nn.functional.softplus(pred).log1p() - torch.log1p(y)).pow(2).mean()  # FAULT


def work(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = DDP(Net())
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    torch.manual_seed(rank)
    for step in range(4):
        y = torch.rand(8) * 5
        if step == 2 and rank == 0:
            y[5] = -3.0
        loss = rmsle(net(torch.randn(8, 3)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(rank, step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, args=(2, port), nprocs=2)
