"""Two virtual stages on each of two ranks with ScheduleInterleaved1F1B, gradients scaled, losses collected, then eval by the schedule."""
# PRELUDE
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
dist.init_process_group("gloo")
r = dist.get_rank()
def part(i):
    torch.manual_seed(i)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.LayerNorm(8))
mods = [part(r), part(r + 2)]
for x in mods:
    W(x)
ex = torch.randn(3, 8)
st = [PipelineStage(m, i, 4, torch.device("cpu")) for m, i in zip(mods, (r, r + 2))]
sch = ScheduleInterleaved1F1B(st, n_microbatches=4, loss_fn=F.mse_loss)
opt = torch.optim.SGD([p for m in mods for p in m.parameters()], 0.05)
ls = []
for s in range(4):
    g = torch.Generator().manual_seed(s)
    x, y = torch.randn(12, 8, generator=g), torch.randn(12, 8, generator=g)
    opt.zero_grad()
    losses = []
    if r == 0:
        sch.step(x)
    else:
        sch.step(target=y, losses=losses)
    opt.step()
    ls += losses
out = [None, None]
dist.all_gather_object(out, ([M(m) for m in mods], H([l.detach() for l in ls]), R()))
if r == 0:
    print(out)
dist.destroy_process_group()
