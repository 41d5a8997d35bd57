"""Each rank computes the eigenvectors of the preconditioners that it owns and broadcasts roots (SOAP and Shampoo like), under DDP: bases, weights and which rank did what must stay the same."""
# PRELUDE
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()


class Soap(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        owner = 0
        for g in self.param_groups:
            for p in g["params"]:
                s, gr = self.state[p], p.grad
                if not s:
                    s.update(m=torch.zeros_like(p), v=torch.zeros_like(p), t=0, L=[torch.zeros(n, n) for n in p.shape], Q=[torch.eye(n) for n in p.shape])
                s["t"] += 1
                for d, L in enumerate(s["L"]):
                    mat = gr.movedim(d, 0).reshape(gr.shape[d], -1)
                    L.lerp_(mat @ mat.T, 0.1)
                    if s["t"] % 2:
                        if owner % 2 == rank:
                            e, q = torch.linalg.eigh(L + 1e-6 * torch.eye(len(L)))
                            s["Q"][d].copy_(q.flip(1))
                            out.append(f"own {owner} {H(e)} {H(torch.linalg.eigvalsh(L))} {H(torch.linalg.cond(L + torch.eye(len(L))))}")
                        dist.broadcast(s["Q"][d], owner % 2)
                        owner += 1
                rot = gr
                for q in s["Q"]:
                    rot = torch.tensordot(rot, q, ([0], [0]))
                s["m"].lerp_(gr, 0.1)
                s["v"].lerp_(rot * rot, 0.05)
                u = s["m"]
                for q in s["Q"]:
                    u = torch.tensordot(u, q, ([0], [0]))
                u = u / (s["v"].sqrt() + 1e-6)
                for q in s["Q"]:
                    u = torch.tensordot(u, q, ([0], [1]))
                p.add_(u, alpha=-g["lr"])


out = []
m = DDP(net(1), bucket_cap_mb=1, gradient_as_bucket_view=True)
W(m)
opt = Soap(m.parameters(), dict(lr=0.01))
for s in range(5):
    x, y = batch(10 * s + rank)
    opt.zero_grad(set_to_none=s != 2)
    loss = F.mse_loss(m(x), y)
    loss.backward()
    opt.step()
    out.append(f"{s} {float(loss.detach()).hex()} {M(m)} {H([v['Q'] for v in opt.state.values()])} {[p._version for p in m.parameters()]} {[p.grad._is_view() for p in m.parameters()]}")
both = [None, None]
dist.all_gather_object(both, out)
if rank == 0:
    for r, lines in enumerate(both):
        for l in lines:
            print(r, l)
dist.destroy_process_group()
