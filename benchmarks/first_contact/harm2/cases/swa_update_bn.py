"""Stochastic weight averaging with SWALR and update_bn; n_averaged, buffers.

Source: https://github.com/lucidrains/ema-pytorch/issues/6
"""
# PRELUDE
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn, get_ema_multi_avg_fn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)); W(m)
swa = AveragedModel(m); ema = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9); sch = SWALR(opt, 0.05, anneal_epochs=2)
for e in range(4):
    print(train(m, opt, 2, 2 * e)); swa.update_parameters(m); ema.update_parameters(m); sch.step()
update_bn([batch(s)[0] for s in range(4)], swa)
print(int(swa.n_averaged), M(m), M(swa), M(ema), opt.param_groups[0]["lr"], R())
