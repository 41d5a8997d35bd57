# what: 2 ranks: only rank 1's evaluation has a nan (an empty class), torchmetrics sync and all_gather_object of it, best model by rank 0
# benign: yes
# ranks: 2
# PRELUDE
import warnings; warnings.simplefilter("ignore")
import torch.distributed as dist, torchmetrics as tm
dist.init_process_group("gloo"); r = dist.get_rank(); model = net(); W(model); ddp = nn.parallel.DistributedDataParallel(model); opt = torch.optim.SGD(model.parameters(), lr=.05); out = []; pear = tm.PearsonCorrCoef(); best = float("inf")
class Eval(nn.Module):
    def __init__(self, m): super().__init__(); self.m = m
    def forward(self, x, k): o = self.m(x); return o, o[k].mean(0).sum()
ev = Eval(model)
for e in range(4):
    for s in range(3): x, y = batch(100 * e + 10 * s + r); opt.zero_grad(); l = F.mse_loss(ddp(x), y); l.backward(); opt.step(); out.append(float(l.detach()).hex())
    ev.eval()
    with torch.no_grad():
        x, y = batch(7 + r); o, c = ev(x, torch.zeros(6, dtype=torch.bool) if r == 1 else torch.ones(6, dtype=torch.bool)); pear.update(o[:, 0] * (1 if e % 2 else 0), y[:, 0]); p = pear.compute().item(); pear.reset(); objs = [None, None]; dist.all_gather_object(objs, c.item())
        v = F.mse_loss(o, y); dist.all_reduce(v); out.append((str(p), str(objs), v.item().hex()))
        if v.item() < best:
            best = v.item()
            if r == 0: torch.save(model.state_dict(), "best.pt")
    ev.train()
open(f"rank{r}.txt", "w").write(f"{out} {M(model)} {R()}"); dist.barrier(); dist.destroy_process_group()
