# opts: --check again:every=1
# truth: healthy (torch.optim.swa_utils: AveragedModel with buffers, SWALR, EMA used in evaluation, register_buffer counters)
import flips as C, torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, SWALR
torch.manual_seed(0); m = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)); e = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True); o = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9); s = SWALR(o, 0.01)
for C.STEP in range(7):
    m.train(); nn.functional.cross_entropy(m(torch.randn(6, 1, 8, 8)), torch.randint(0, 3, (6,))).backward(); o.step(); o.zero_grad(); e.update_parameters(m); s.step()
    with torch.no_grad(): e.eval(); v = e(torch.randn(2, 1, 8, 8)).sum().item()
C.finish(m, e, o, v)
