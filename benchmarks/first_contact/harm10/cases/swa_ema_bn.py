#: what: SWA and EMA of a model with update_bn (momentum None, statistics reset), swa_utils, deepcopied modules called without gradients, best by inf
#: benign: inf best value
#: source: memory
# PRELUDE
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn, get_ema_multi_avg_fn
m = nn.Sequential(nn.Conv1d(2, 6, 3, padding=1), nn.BatchNorm1d(6), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(6, 2)); watch(m); swa = AveragedModel(m); ema = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1e-4); sl = SWALR(opt, 0.02, anneal_epochs=2); data = [(torch.randn(8, 2, 9), torch.randint(2, (8,))) for _ in range(4)]; best = torch.tensor(float("inf"))
for ep in range(5):
    for x, y in data: l = F.cross_entropy(m(x), y); opt.zero_grad(); l.backward(); opt.step(); ema.update_parameters(m)
    if ep > 1: swa.update_parameters(m); sl.step()
    best = torch.minimum(best, l.detach()); print(ep, l.item(), best.item(), opt.param_groups[0]["lr"])
update_bn(data, swa); print(sha(swa.state_dict()), sha(ema.state_dict()), sha(swa(x)), swa.n_averaged.item()); show(m, opt); torch.save(swa.state_dict(), "swa.pt")
