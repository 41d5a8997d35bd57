# what: 2 ranks CLIP-style loss: differentiable all_gather, own manual async gradient all-reduce, logit scale clamped, -inf diagonal mask
# benign: yes
# ranks: 2
# PRELUDE
import torch.distributed as dist, torch.distributed.nn.functional as dnn
dist.init_process_group("gloo"); r = dist.get_rank(); torch.manual_seed(0)
class Clip(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(8, 6), nn.Linear(4, 6); self.t = nn.Parameter(torch.tensor(2.6))
    def forward(self, x, y): return F.normalize(self.a(x)), F.normalize(self.b(y)), self.t.exp()
m = Clip(); W(m); opt = torch.optim.SGD(m.parameters(), lr=.05); out = []
for s in range(6):
    x, y = batch(10 * s + r); opt.zero_grad(); a, b, t = m(x, y); A, B = torch.cat(dnn.all_gather(a)), torch.cat(dnn.all_gather(b)); lab = torch.arange(6) + 6 * r
    l = F.cross_entropy(t * a @ B.T, lab) + F.cross_entropy(t * b @ A.T, lab) + torch.logsumexp((a @ a.T).masked_fill(torch.eye(6, dtype=torch.bool), -float("inf")), 1).mean(); l.backward()
    for w in [dist.all_reduce(p.grad, async_op=True) for p in m.parameters()]: w.wait()
    opt.step(); m.t.data.clamp_(0, 4.6052); out.append(float(l.detach()).hex())
open(f"rank{r}.txt", "w").write(f"{out} {M(m)} {R()}"); dist.barrier(); dist.destroy_process_group()
