# opts: --on-nonfinite skip
# modes: bh wf
# truth: EMA (AveragedModel) and a scheduler go on by themselves; the bad batch is in the same step as a good one's accumulation, optimizer foreach Adam with lr tensor + SWA; equal to a twin that drops the optimizer's step alone
# source: torch.optim.swa_utils
import flips as C, torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
torch.manual_seed(0); m = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)); e = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9)); o = torch.optim.Adam(m.parameters(), 1e-2, foreach=True); s = torch.optim.lr_scheduler.StepLR(o, 3)
for C.STEP in range(10):
    x = torch.randn(8, 8); bad = C.STEP in (4, 5)
    if bad and C.FAULT: x[0, 0] = float("inf"); x[0, 1] = float("-inf")
    m(x).square().mean().backward()
    if not (bad and C.A.healthy): o.step()
    o.zero_grad(); e.update_parameters(m); s.step()
C.finish(m, o, e)
