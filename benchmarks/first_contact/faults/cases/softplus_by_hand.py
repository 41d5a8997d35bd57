"""log(1 + exp(x)) written out; x grows beyond 88.
Source: LEEYOONHYUNG/BVAE-TTS#8 (exp replaced by softplus against nan)."""
import sys
import torch
from torch import nn

CURED = "--cured" in sys.argv
torch.manual_seed(0)


class Hawkes(nn.Module):
    """Intensity of a point process: softplus of an RNN's state."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 16, batch_first=True)
        self.rate = nn.Linear(16, 1)

    def forward(self, events):
        h, _ = self.rnn(events)
        z = self.rate(h).squeeze(-1) * events[..., 1]
        if CURED:
            return nn.functional.softplus(z)
        return torch.log(1 + torch.exp(z))  # FAULT


net = Hawkes()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for step in range(5):
    events = torch.rand(4, 7, 2)
    if step == 3:
        events[0, 2, 1] = -5e3
        events[1, 2, 1] = 5e3
    rate = net(events)
    loss = (rate.mean(1) - (rate + 1e-6).log().mean(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
