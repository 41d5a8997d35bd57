import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# HHTseng/video-classification 42, jessicayung 6: view where a transpose is needed, before an LSTM that wants time first
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(3, 24), nn.Linear(24, 2)

    def forward(self, x):  # (batch, time, features)
        B, T, C = x.shape
        x = x.transpose(0, 1) if HEALTHY else x.view(T, B, C)
        out, _ = self.lstm(x)
        return self.fc(out[-1])


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    x = torch.randn(32, 10, 3)
    y = (x.sum((1, 2)) > 0).long()
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
