import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# sequences that become longer in four stages
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.GRU(2, 32, batch_first=True), nn.Linear(32, 1)

    def forward(self, x):
        return self.fc(self.rnn(x)[0][:, -1])


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(500):
    T = (4, 8, 16, 24)[step // 125]
    x = torch.rand(32, T, 2)
    m = torch.zeros(32, T)
    m.scatter_(1, torch.rand(32, T).topk(2, 1).indices, 1.0)
    x[..., 1] = m
    loss = F.mse_loss(net(x), (x[..., 0] * m).sum(1, keepdim=True))
    opt.zero_grad(); loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
print("steps", 500)
report(net)
