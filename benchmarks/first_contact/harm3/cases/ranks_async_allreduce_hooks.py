"""Gradients reduced by asynchronous all-reduces started in post-accumulate hooks and waited for in an optimizer pre-hook (Horovod's way), fp16 compression in between, a second process group for a metric."""
# PRELUDE
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()
m = net(1)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
works = {}
order = []


def start(p):
    c = p.grad.half()
    works[p] = (dist.all_reduce(c, async_op=True), c)
    order.append(tuple(p.shape))


for p in m.parameters():
    p.register_post_accumulate_grad_hook(start)


def finish(o, a, k):
    for p, (w, c) in works.items():
        w.wait()
        p.grad = c.float() / 2
    works.clear()


opt.register_step_pre_hook(finish)
side = dist.new_group([0, 1])
out = []
pend = None
for s in range(5):
    x, t = batch(10 * s + r)
    opt.zero_grad()
    loss = F.mse_loss(m(x), t)
    met = loss.detach().clone()
    loss.backward()
    if pend:
        pend[0].wait()
        out.append(pend[1].item().hex())
    pend = (dist.all_reduce(met, group=side, async_op=True), met)
    opt.step()
pend[0].wait()
with open(f"r{r}.txt", "w") as f:
    print(out, M(m), order[:6], file=f)
dist.destroy_process_group()
