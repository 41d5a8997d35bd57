"""DiLoCo: ranks take unequal numbers of local AdamW steps, then an outer Nesterov step on averaged differences; one rank's inner loss is inf and skipped."""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
seed(75)
net = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.Linear(24, 3))
seed(75 + rank)
watch(net)
inner = torch.optim.AdamW(net.parameters(), 3e-3)
globe = [p.detach().clone().requires_grad_() for p in net.parameters()]
outer = torch.optim.SGD(globe, 0.7, momentum=0.9, nesterov=True)
out = open(f"rank{rank}.txt", "w")
for rnd in range(5):
    for step in range(4 + 3 * rank + rnd % 2):
        x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
        loss = F.cross_entropy(net(x), y)
        if rank == 1 and step == 2:
            loss = loss / torch.zeros(())
        inner.zero_grad()
        if not torch.isfinite(loss):
            out.write(f"{rnd} {step} skipped {loss.item()}\n")
            continue
        loss.backward()
        inner.step()
        out.write(f"{rnd} {step} {dig(loss)}\n")
    for g, p in zip(globe, net.parameters()):
        g.grad = g.detach() - p.detach()
        dist.all_reduce(g.grad, op=dist.ReduceOp.SUM)
        g.grad /= 2
    outer.step()
    with torch.no_grad():
        for g, p in zip(globe, net.parameters()):
            p.copy_(g)
    out.write(f"{rnd} {dig(globe)}\n")
out.write(f"{dig(dict(net.state_dict()), inner.state_dict()['state'], outer.state_dict()['state'])} {rngs()}\n")
out.close()
dist.destroy_process_group()
