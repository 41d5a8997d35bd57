"""skorch-dev/skorch with an RMSE criterion, pytorch/pytorch#2421-like: sqrt of an error of exactly 0
TRUTH op=aten.div|aten.mul reason=gradient of sqrt or norm at zero phase=backward"""
import sys
import torch
from torch import nn
import torch.nn.functional as F
from _util import done
CURED = "--cured" in sys.argv
torch.manual_seed(0); torch.set_num_threads(1)

from skorch import NeuralNetRegressor
import numpy as np
class RMSE(nn.Module):
    def forward(self, a, b):
        mse = F.mse_loss(a, b) + (1e-8 if CURED else 0)
        return torch.sqrt(mse)  # FAULT
class Reg(nn.Module):
    def __init__(self):
        super().__init__(); self.b, self.o = nn.Sequential(nn.Linear(5, 16), nn.SELU()), nn.Linear(16, 1)
        nn.init.zeros_(self.o.weight); nn.init.zeros_(self.o.bias)
    def forward(self, x): return self.o(self.b(x))
X = np.random.default_rng(0).standard_normal((32, 5)).astype("float32"); Y = np.zeros((32, 1), "float32"); Y[16:] = 1   # first batch: no event
n = NeuralNetRegressor(Reg, criterion=RMSE, max_epochs=1, lr=0.05, batch_size=16, train_split=None, verbose=0); n.fit(X, Y)
done(torch.zeros(()), n.module_)
