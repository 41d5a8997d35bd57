import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# practical-torchtext 5, qclass_dl 1: the output at the last position, which is padding for short sequences
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.fc = nn.Embedding(20, 16, padding_idx=0), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, 2)

    def forward(self, t, lengths):
        h, _ = self.rnn(self.emb(t))
        last = h[torch.arange(len(t)), lengths - 1] if HEALTHY else h[:, -1]
        return self.fc(last)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(120):
    n = torch.randint(2, 15, (32,))
    t = torch.randint(1, 20, (32, 14)) * (torch.arange(14)[None] < n[:, None])
    y = (t[torch.arange(32), n - 1] > 9).long()
    loss = F.cross_entropy(net(t, n), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
report(net)
