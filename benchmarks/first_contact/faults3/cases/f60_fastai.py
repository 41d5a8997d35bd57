"""fastai Learner trained on root mean squared logarithmic error; an unbounded prediction falls below -1.
Source: fastai forum and rossmann notebook (exp_rmspe, log targets), kaggle RMSLE threads."""
import sys, math, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
from fastai.learner import Learner
from fastai.data.core import DataLoaders
from fastai.callback.core import Callback
from fastai.callback.progress import *
from fastai.data.load import DataLoader

torch.set_num_threads(1)
torch.manual_seed(60)
CURED = "--cured" in sys.argv


def rmsle(pred, y):
    pred = pred.squeeze(1)
    if CURED:
        pred = pred.clamp(min=0)
    return ((torch.log(pred + 1) - torch.log(y + 1)) ** 2).mean()  # FAULT


class Keep(Callback):
    def after_loss(self):
        losses.append(self.learn.loss.item())


losses = []
x = torch.randn(240, 5)
y = torch.relu(x[:, 0] * 2 + 1.0)
x[130] *= 8.0
items = list(zip(x, y))
dls = DataLoaders(DataLoader(items, bs=16, shuffle=False, num_workers=0), DataLoader(items[:16], bs=16, num_workers=0))
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
with torch.no_grad():
    model[2].bias.fill_(1.0)
learn = Learner(dls, model, loss_func=rmsle, cbs=[Keep()], lr=1e-2)
with learn.no_bar(), learn.no_logging():
    learn.fit(2)
print(losses)
print("FINITE", all(map(math.isfinite, losses)) and all(bool(p.isfinite().all()) for p in model.parameters()))
