import sys, math, copy
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
torch.manual_seed(0)
HEALTHY = "--healthy" in sys.argv


def report(*modules):
    s = sum(p.detach().double().abs().sum().item() for m in modules for p in m.state_dict().values())
    print("weights", repr(s))


# a stateful LSTM over one long text, truncated backpropagation
text = ("the quick brown fox jumps over the lazy dog and runs away from the big bad wolf " * 60)
ids = torch.tensor([ord(c) - 96 if c != " " else 0 for c in text])
n = len(ids) // 8
data = ids[: n * 8].view(8, n)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(27, 24), nn.LSTM(24, 48, batch_first=True), nn.Linear(48, 27)

    def forward(self, x, h):
        y, h = self.rnn(self.emb(x), h)
        return self.out(y), h


net = LM()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
step, h = 0, None
while step < 400:
    h = None
    for i in range(0, n - 17, 16):
        if h is not None:
            h = tuple(t.detach() for t in h)
        out, h = net(data[:, i:i + 16], h)
        loss = F.cross_entropy(out.flatten(0, 1), data[:, i + 1:i + 17].flatten())
        opt.zero_grad(); loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        step += 1
print("steps", step)
report(net)
