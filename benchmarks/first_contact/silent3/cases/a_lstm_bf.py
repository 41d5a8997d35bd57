"""An LSTM without batch_first gets (batch, time, features): it runs over the samples of a batch as if they were time steps.
Source: https://github.com/AndersonJo/dqn-pytorch/issues/1
Truth: sample 5's output depends on sample 0 (healthy: it does not).
Could a tool know: partly: the recurrent layer's first dimension is the batch's (it equals that of the model's input and target).
"""
import sys
import torch
from torch import nn

HEALTHY = "--healthy" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 16, 3, padding=1), nn.ReLU())
        self.lstm = nn.LSTM(16, 24, 1, batch_first=HEALTHY)
        self.q = nn.Linear(24, 4)

    def forward(self, x):
        h = self.conv(x).transpose(1, 2)
        o, _ = self.lstm(h)
        return self.q(o[:, -1])


model = QNet()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(150):
    x = torch.randn(32, 3, 12)
    a = torch.randint(0, 4, (32,))
    target = x[:, 0].sum(1) * 0.3 + a * 0.5
    q = model(x).gather(1, a[:, None])[:, 0]
    loss = nn.functional.smooth_l1_loss(q, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    x = torch.randn(8, 3, 12)
    y = x.clone()
    y[0] += 1
    print(f"loss {loss.item():.4f} sample 5 depends on sample 0: {(model(x)[5] - model(y)[5]).abs().max():.2e}")
