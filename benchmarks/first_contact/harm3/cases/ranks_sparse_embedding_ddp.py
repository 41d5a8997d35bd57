"""DDP with sparse embedding gradients on gloo (sparse all-reduce) and SparseAdam beside Adam, uneven sequence lengths, EmbeddingBag; bits and layouts of gradients on both ranks."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
r = dist.get_rank()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 8, sparse=True, mode="mean")
        self.body = net(1)

    def forward(self, i, o):
        return self.body(self.bag(i, o))


torch.manual_seed(2)
m = DDP(Net())
W(m)
os_ = [torch.optim.SparseAdam(m.module.bag.parameters(), 1e-2), torch.optim.Adam(m.module.body.parameters(), 1e-2)]
out = []
for s in range(4):
    g = torch.Generator().manual_seed(10 * s + r)
    i = torch.randint(0, 30, (9 + 2 * r,), generator=g)
    loss = m(i, torch.tensor([0, 3, 4])).square().mean()
    for o in os_:
        o.zero_grad()
    loss.backward()
    gr = m.module.bag.weight.grad
    out.append((str(gr.layout), H(gr.coalesce().indices(), gr.coalesce().values())))
    for o in os_:
        o.step()
with open(f"r{r}.txt", "w") as f:
    print(out, M(m.module), file=f)
dist.destroy_process_group()
