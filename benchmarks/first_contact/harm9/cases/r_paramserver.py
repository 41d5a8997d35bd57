"""A parameter server: rank 0 receives gradients with irecv and steps, rank 1 computes them with stale weights; the ranks run different programs."""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
seed(74)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
watch(net)
vec = lambda: nn.utils.parameters_to_vector(net.parameters()).detach()
n = vec().numel()
out = open(f"rank{rank}.txt", "w")
if rank == 0:
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    buf = torch.empty(n)
    for step in range(15):
        w = dist.irecv(buf, 1)
        w.wait()
        i = 0
        for p in net.parameters():
            p.grad = buf[i:i + p.numel()].view_as(p).clone()
            i += p.numel()
        opt.step()
        if step % 3 == 2:
            dist.send(vec(), 1)
            with torch.no_grad():
                e = net(torch.full((1, 6), math.inf)) * 0
            out.write(f"{step} {dig(e)}\n")
    out.write(dig(opt.state_dict()["state"]) + "\n")
else:
    for step in range(15):
        x = torch.randn(16, 6)
        loss = F.mse_loss(net(x), x.sum(1, keepdim=True))
        net.zero_grad()
        loss.backward()
        work = dist.isend(torch.cat([p.grad.flatten() for p in net.parameters()]), 0)
        work.wait()
        if step % 3 == 2:
            fresh = torch.empty(n)
            dist.recv(fresh, 0)
            nn.utils.vector_to_parameters(fresh, net.parameters())
        out.write(f"{step} {dig(loss)}\n")
out.write(f"{dig(dict(net.state_dict()))} {rngs()}\n")
out.close()
dist.barrier()
dist.destroy_process_group()
