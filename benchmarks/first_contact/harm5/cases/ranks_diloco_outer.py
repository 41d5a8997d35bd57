"""DiLoCo: inner AdamW on each rank alone, every few steps pseudo-gradients are averaged and an outer Nesterov step is taken on offloaded copies; a model-average check by all-reduce of int hashes."""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
torch.manual_seed(1)
m = net(1)
for p in m.parameters():
    dist.broadcast(p.data, 0)
W(m)
inner = torch.optim.AdamW(m.parameters(), 1e-2, weight_decay=0.1)
outer = torch.optim.SGD(m.parameters(), 0.7, momentum=0.9, nesterov=True)
off = [p.data.detach().clone() for p in m.parameters()]
for s in range(12):
    x, y = batch(s * 2 + r)
    loss = F.mse_loss(m(x), y) / 1
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    inner.step()
    inner.zero_grad()
    if s % 4 == 3:
        for o, p in zip(off, m.parameters()):
            p.grad = o - p.data
            dist.all_reduce(p.grad)
            p.grad /= 2
            p.data = o
        outer.step()
        outer.zero_grad()
        off = [p.data.detach().clone() for p in m.parameters()]
out = [None, None]
dist.all_gather_object(out, (M(m), H(off), float(loss.detach()).hex(), R()))
if r == 0:
    print(out)
dist.barrier()
dist.destroy_process_group()
