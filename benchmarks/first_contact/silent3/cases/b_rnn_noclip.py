"""A recurrent net (IRNN: relu, identity start) on long sequences, SGD with momentum and a warm-up that never ends, no clipping. Cure: clip_grad_norm_(0.5), up to 0.02."""
import sys
import torch
from torch import nn
from _lost import Lost

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class IRNN(nn.Module):
    def __init__(self, h=32):
        super().__init__()
        self.rnn, self.out = nn.RNN(2, h, nonlinearity="relu", batch_first=True), nn.Linear(h, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, 0, 0.05)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


model, lost = IRNN(), Lost()
opt = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
for step in range(300):
    v, m = torch.rand(32, 60), torch.zeros(32, 60)
    m[:, torch.randint(0, 30, (1,))] = 1
    m[:, torch.randint(30, 60, (1,))] = 1
    loss = nn.functional.mse_loss(model(torch.stack([v, m], -1))[:, 0], (v * m).sum(1))
    opt.zero_grad()
    loss.backward()
    if HEALTHY:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    opt.param_groups[0]["lr"] = min(opt.param_groups[0]["lr"] * 1.05, 0.02 if HEALTHY else 1e9)
    if not lost(loss):
        break
lost.report()
