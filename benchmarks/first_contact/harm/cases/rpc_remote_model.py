"""torch.distributed.rpc: a remote module, distributed autograd and DistributedOptimizer between two workers.

source: pytorch docs RPC tutorial; facebookresearch parameter servers
meta: {"torchrun": 2, "compare": ["status", "files", "left"], "limit": 90}
"""
import os
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer
from fcw import mlp, rng, seed, sha, watch, weights

r = int(os.environ["RANK"])


class Server(nn.Module):
    def __init__(self):
        super().__init__()
        seed(210)
        self.body = mlp()
        watch(self.body)

    def forward(self, x):
        return self.body(x)

    def params(self):
        return [rpc.RRef(p) for p in self.body.parameters()]

    def digest(self):
        return sha(weights(self.body))


rpc.init_rpc(f"w{r}", rank=r, world_size=2)
if r == 0:
    with open("out-0.txt", "w") as out:
        seed(211)
        head = nn.Linear(4, 2)
        watch(head)
        server = rpc.remote("w1", Server)
        opt = DistributedOptimizer(torch.optim.SGD, server.rpc_sync().params() + [rpc.RRef(p) for p in head.parameters()], lr=0.1)
        for step in range(4):
            with dist_autograd.context() as ctx:
                loss = head(server.rpc_sync().forward(torch.randn(3, 8))).square().mean()
                dist_autograd.backward(ctx, [loss])
                g = dist_autograd.get_gradients(ctx)
                print(loss.item().hex(), sha(sorted(sha(v) for v in g.values())), file=out)
                opt.step(ctx)
        print(server.rpc_sync().digest(), sha(weights(head)), rng(), file=out)
rpc.shutdown()
