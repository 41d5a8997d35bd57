"""A fastai Learner with fit_one_cycle, hooks (hook_outputs) and its own optimizer.

Source: https://github.com/fastai/fastai (Learner, hook_outputs)
"""
# PRELUDE
from fastai.basics import *
from fastai.callback.schedule import *
from fastai.callback.hook import *
set_seed(3)
xs, ys = torch.randn(64, 8), torch.randn(64, 1)
dls = DataLoaders.from_dsets(list(zip(xs, ys)), list(zip(xs[:16], ys[:16])), bs=16, device=torch.device("cpu"), num_workers=0)
m = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 1))
learn = Learner(dls, m, loss_func=MSELossFlat(), opt_func=Adam)
with learn.no_bar(), learn.no_logging():
    learn.fit_one_cycle(2, 1e-2)
with hook_outputs([m[0], m[2]]) as hs:
    m(xs[:4])
    print([tuple(h.stored.shape) for h in hs], H([h.stored for h in hs]))
print(M(m), [float(v).hex() for v in learn.recorder.losses], R())
