"""A sharded optimizer by hand: asynchronous reduce_scatter of gradients with futures, update of a shard, all_gather_into_tensor into the parameter's own memory; a batched isend for the loss."""
# PRELUDE
import torch.distributed as dist
dist.init_process_group("gloo")
r, w = dist.get_rank(), 2
torch.manual_seed(1)
m = net(1, 8, 16, 4)
W(m)
class DistAdam(torch.optim.Optimizer):
    def __init__(self, ps):
        super().__init__(list(ps), dict(lr=1e-2))
    @torch.no_grad()
    def step(self):
        fs, sl = [], []
        ps = [p for g in self.param_groups for p in g["params"]]
        for p in ps:
            gs = torch.empty_like(p.grad[: p.shape[0] // w])
            fs.append(dist.reduce_scatter_tensor(gs, p.grad.contiguous(), async_op=True))
            sl.append(gs)
        out = []
        for p, f, g in zip(ps, fs, sl):
            f.wait()
            g /= w
            n = p.shape[0] // w
            ps_ = p[r * n:(r + 1) * n]
            st = self.state[p]
            if not st:
                st["m"], st["v"], st["t"] = torch.zeros_like(ps_), torch.zeros_like(ps_), 0
            st["t"] += 1
            st["m"].lerp_(g, 0.1)
            st["v"].lerp_(g * g, 0.01)
            ps_.add_((st["m"] / (1 - 0.9 ** st["t"])) / ((st["v"] / (1 - 0.99 ** st["t"])).sqrt() + 1e-8), alpha=-1e-2)
            out.append(dist.all_gather_into_tensor(p.data, ps_.clone(), async_op=True))
        for f in out:
            f.wait()
opt = DistAdam(m.parameters())
for s in range(6):
    x, y = batch(s * 2 + r)
    loss = F.mse_loss(m(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ops = [dist.P2POp(dist.isend, loss.detach().view(1), 1 - r), dist.P2POp(dist.irecv, torch.empty(1), 1 - r)]
    for q in dist.batch_isend_irecv(ops):
        q.wait()
out = [None, None]
dist.all_gather_object(out, (H(dict(m.state_dict())), H([p.grad for p in m.parameters()]), float(ops[1].tensor).hex(), R()))
if r == 0:
    print(out)
dist.destroy_process_group()
