# what: AveragedModel, SWALR, update_bn, EMA by multi_avg_fn, evaluation of a single sample in BatchNorm training (error caught), var of one is nan
# benign: yes
# cmp: status stdout files left
# PRELUDE
import warnings; warnings.simplefilter("ignore")
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn, get_ema_multi_avg_fn
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)); W(model); opt = torch.optim.SGD(model.parameters(), lr=.1); swa, ema = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(.9), use_buffers=True); sl = SWALR(opt, .05, 3)
for e in range(4):
    print(train(model, opt, 3, 3 * e)); sl.step(); swa.update_parameters(model); ema.update_parameters(model)
    with torch.no_grad(): print(model(batch(3)[0])[:1].var(0).isnan().all().item())
    try: model(batch(3)[0][:1])
    except ValueError as x: print(str(x)[:40])
update_bn([batch(s)[0] for s in range(4)], swa); print(M(swa), M(ema), H(swa(batch(8)[0]).detach()), M(model), R())
