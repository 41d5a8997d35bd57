"""Decentralized SGD: each of three ranks mixes its weights with its ring neighbours by isend and irecv after its step, momentum kept local, a changing topology, push-sum weights, one slow rank; weights of each rank and their spread."""
# PRELUDE
import time
import torch.distributed as dist

dist.init_process_group("gloo")
r, n = dist.get_rank(), dist.get_world_size()
say = lambda *a: open(f"rank{r}.txt", "a").write(" ".join(map(str, a)) + "\n")
m = net(10 + r)
W(m)
opt = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
weight = torch.ones(1)
for s in range(8):
    x, y = batch(10 * s + r)
    opt.zero_grad()
    loss = F.mse_loss(m(x) / weight, y)
    loss.backward()
    opt.step()
    if r == 2 and s == 3:
        time.sleep(0.5)
    step = 1 + s % (n - 1)
    to, fr = (r + step) % n, (r - step) % n
    flat = torch.cat([p.detach().flatten() for p in m.parameters()] + [weight]) / 2
    inbox = torch.empty_like(flat)
    if s % 2:
        ops = [dist.P2POp(dist.isend, flat, to), dist.P2POp(dist.irecv, inbox, fr)]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
    else:
        ws = [dist.isend(flat, to, tag=s), dist.irecv(inbox, fr, tag=s)]
        for w in ws:
            w.wait()
    mixed = flat + inbox
    k = 0
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(mixed[k : k + p.numel()].view_as(p))
            k += p.numel()
        weight = mixed[-1:].clone()
    say(s, loss.item().hex(), weight.item(), M(m))
out = [torch.empty_like(mixed) for _ in range(n)]
dist.all_gather(out, mixed)
say(H(torch.stack(out).std(0)), H(opt.state_dict()), R())
dist.barrier()
dist.destroy_process_group()
