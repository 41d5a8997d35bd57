import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

def ok(step, loss, *models):
    ps = [p for m in models for p in m.parameters()]
    print(step, "loss", bool(torch.isfinite(loss.detach()).all()), "grads", all(p.grad is None or bool(p.grad.isfinite().all()) for p in ps),
          "weights", all(bool(p.isfinite().all()) for p in ps), flush=True)

class Net(nn.Module):  # statistics pooling of speaker embeddings: padded frames of zeros, length 1
    def __init__(self):
        super().__init__(); self.rnn, self.out = nn.LSTM(6, 8, batch_first=True), nn.Linear(16, 3)
    def forward(self, x, lengths):
        p = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(p)[0], batch_first=True, total_length=5)
        mask = (torch.arange(5) < lengths[:, None]).float()[..., None]
        n = mask.sum(1)
        mean = (h * mask).sum(1) / n
        var = (((h - mean[:, None]) * mask) ** 2).sum(1) / n
        std = var.sqrt()
        return self.out(torch.cat([mean, std], -1))
net = Net(); opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(4):
    lengths = torch.tensor([5, 4, 3, 1 if step == 2 else 2])
    loss = F.cross_entropy(net(torch.randn(4, 5, 6), lengths), torch.tensor([0, 1, 2, 0]))
    opt.zero_grad(); loss.backward(); opt.step()
    ok(step, loss, net)
