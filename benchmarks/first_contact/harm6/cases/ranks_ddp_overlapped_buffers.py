"""DDP with optimizers that step inside backward (_register_fused_optim), a buffer communication hook of the script's own, many small buckets, BatchNorm buffers broadcast, no_sync with accumulation, a second DDP without broadcast; rank for rank the same weights."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.parallel.distributed import _BufferCommHookLocation

dist.init_process_group("gloo")
r = dist.get_rank()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.n, self.b = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return self.b(torch.relu(self.n(self.a(x))))


log = []


def buffer_hook(state, buffers):
    log.append(sorted(buffers))
    for k, b in buffers.items():
        if b.is_floating_point():
            dist.all_reduce(b)
            b.div_(2)


m = Net()
W(m)
d = DDP(m, gradient_as_bucket_view=True)
d._register_fused_optim(torch.optim.SGD, lr=0.05, optim_params=list(m.b.parameters()))
d._register_buffer_comm_hook(None, buffer_hook, _BufferCommHookLocation.POST_FORWARD)
opt = torch.optim.SGD([*m.a.parameters(), *m.n.parameters()], 0.05, momentum=0.9)
for s in range(5):
    x, y = batch(2 * s + r)
    loss = F.mse_loss(d(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    say(s, loss.item().hex(), M(m), len(log), log[-1])
m2 = Net()
W(m2)
d2 = DDP(m2, broadcast_buffers=False, bucket_cap_mb=0.0005)
opt = torch.optim.Adam(m2.parameters(), 1e-2)
for s in range(4):
    opt.zero_grad()
    with d2.no_sync():
        F.mse_loss(d2(batch(9 * s + r)[0]), batch(s)[1]).backward()
    F.mse_loss(d2(batch(7 * s + r)[0]), batch(s)[1]).backward()
    opt.step()
    say(s, M(m2), H(opt.state_dict()))
out = [None, None]
dist.all_gather_object(out, H([p.detach() for p in m2.parameters()]))
say(out[0] == out[1], R())
dist.barrier()
dist.destroy_process_group()
