"""skorch NeuralNetRegressor with a Gaussian likelihood whose variance comes from a ReLU.
Source: tonyduan/mixture-density-network#4 (positive standard deviation), skorch-dev/skorch custom criteria."""
import sys, math
import numpy as np
import torch
from torch import nn
from skorch import NeuralNetRegressor

torch.set_num_threads(1)
torch.manual_seed(59)
CURED = "--cured" in sys.argv


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.mean, self.var = nn.Linear(32, 1), nn.Linear(32, 1)
        nn.init.constant_(self.var.bias, 1.0)

    def forward(self, x):
        h = self.body(x)
        var = nn.functional.softplus(self.var(h)) + 1e-4 if CURED else torch.relu(self.var(h))
        return self.mean(h), var


class NLL(nn.Module):
    def forward(self, out, y):
        mean, var = out
        return 0.5 * (torch.log(var) + (y - mean) ** 2 / var.clamp(min=1e-6)).mean()  # FAULT


class Net(NeuralNetRegressor):
    def get_loss(self, y_pred, y_true, *args, **kwargs):
        loss = self.criterion_(y_pred, y_true)
        history.append(loss.item())
        return loss


history = []
rng = np.random.default_rng(59)
X = rng.normal(size=(320, 4)).astype(np.float32)
y = (X[:, :1] * 0.5 + 0.05 * rng.normal(size=(320, 1))).astype(np.float32)
net = Net(Gaussian, criterion=NLL, max_epochs=6, lr=0.02, batch_size=32, optimizer=torch.optim.SGD, optimizer__momentum=0.9, train_split=None, verbose=0, iterator_train__shuffle=False)
net.fit(X, y)
print(history)
print("FINITE", all(map(math.isfinite, history)) and all(bool(p.isfinite().all()) for p in net.module_.parameters()))
